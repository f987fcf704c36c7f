//! What is refused: status 2, one message, nothing written.

use std::fs;

use crate::place::{Place, text};

#[test]
fn bad_settings_of_safl_are_refused_before_anything_is_written() {
    let place = Place::new();
    for (set, expected) in [
        ("method.k=0", "method.k: found 0, expected at least 1 block"),
        ("method.k=3", "method.k: found 3 of 2 blocks, expected no more blocks than the model has"),
        ("method.k=-1", "method.k: found -1, expected a number of blocks"),
        ("method.k={ default = 1, \"nobody\" = 1 }", "method.k: found a number for \"nobody\""),
        ("method.selector=best", "method.selector: found \"best\", expected attention, random"),
        ("method.selector={ blocks = [] }", "method.selector: found no block, expected at least"),
        ("method.selector={ blocks = [0, 2] }", "method.selector: found block 2 of 2 blocks"),
        ("method.selector={ blocks = [0] }\nmethod.k=2", "method.k: found 2, expected the number"),
        ("method.prune=0.0", "method.prune: found 0, expected a share above 0 and at most 1"),
        ("method.prune={ heads = 0.0 }", "method.prune: found 0, expected a share above 0"),
        ("wire.encoding={ heads = { share = 0.5, of = 2 } }", "wire.encoding: found heads 0.5"),
        ("method.prune=1.5", "method.prune: found 1.5, expected a share above 0"),
        ("method.explore=2", "method.explore: found 2 of 2 blocks, expected less than k"),
        ("method.profile_every=0", "method.profile_every: found 0, expected at least 1"),
        (
            "method.k={ memory = \"lots\" }",
            "method.k: found { memory = \"lots\" }, expected a number of blocks",
        ),
        ("method.k={ memory = \"1 MB\", default = 2 }", "expected a number of blocks, { default"),
        ("method.mask=both", "method.mask: found \"both\", expected consensus or per_client"),
        (
            "federation.ranks={ \"hospital-1\" = 1 }",
            "federation.ranks: found no adapters, expected",
        ),
        ("model.lora={ target_modules = [\"classifier\"] }", "trains a head whole, as PEFT's"),
        ("model.lora={ target_modules = [\"quary\"] }", "expected modules inside the blocks"),
        ("model.lora={ target_modules = \".*0.*query\" }", "expected modules of every block"),
        (
            "model.lora={ target_modules = \".*(query\" }",
            "expected \"all-linear\", a list of names",
        ),
        ("federation.depths={ \"hospital-9\" = 1 }", "federation.depths: found a depth for"),
        ("federation.depths={ default = 3 }", "federation.depths.default: found 3, expected the 2"),
        ("federation.depths={ \"hospital-1\" = 3 }", "federation.depths: found 3 of 2 blocks"),
        ("conditions.away={ \"hospital-9\" = [{ from = 1 }] }", "conditions.away: found rounds of"),
        ("conditions.away={ \"hospital-1\" = [{ from = 0 }] }", "conditions.away: found"),
    ] {
        let sets: Vec<&str> = set.lines().flat_map(|set| ["--set", set]).collect();
        let message = place
            .refused(&[&["run", "tiny.toml", "--set", "method.name=safl"], &sets[..]].concat());
        assert!(message.contains(expected), "{set}: {message}");
    }
    let sets = ["method.name=safl", "method.side=query", "method.relevant=cls"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
    let message = place.refused(&[&["run", "tiny.toml"], &sets[..]].concat());
    assert!(message.contains("method.relevant: found \"cls\", expected \"all\""), "{message}");
}

#[test]
fn flags_of_a_superlink_are_refused_where_there_is_none() {
    let place = Place::new();
    let serve = ["serve", "tiny.toml", "--listen", "127.0.0.1:0"];
    let join = ["join", "tiny.toml", "--server", "127.0.0.1:1", "--client", "hospital-1"];
    for (command, flags) in [
        (&serve[..], &["--node-keys", "keys"][..]),
        (&serve, &["--stock", "hospital-1=20"]),
        (&serve, &["--ca", "ca.pem"]),
        (&join, &["--key", "north.key"]),
        (&join, &["--stock"]),
        (&join, &["--ca", "ca.pem"]),
    ] {
        let told = place.refused(&[command, flags].concat());
        let expected = format!("{} applies only with --superlink", flags[0]);
        assert!(told.contains(&expected), "{told}");
    }
}

#[test]
fn a_setting_of_safl_that_does_nothing_is_named_once_and_not_refused() {
    let place = Place::new();
    let notes = |command: &[&str], sets: &[&str]| -> Vec<String> {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
        let output = place.fedra(&[command, &sets[..]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let lines = text(&output.stderr).lines().map(str::to_owned).collect::<Vec<_>>();
        lines.into_iter().filter(|line| line.contains("has no effect here")).collect()
    };
    let even = ["method.name=safl", "method.selector=even", "method.relevant=entities"];
    let run = ["run", "tiny.toml", "--out", "even", "--set", "federation.rounds=1"];
    for command in [&["plan", "tiny.toml"][..], &run] {
        assert_eq!(
            notes(command, &even),
            ["note: method.relevant has no effect here: this selector does not use attention"]
        );
    }
    let plan = |sets: &[&str]| notes(&["plan", "tiny.toml"], sets);
    let base = "method.base={ name = \"safl\", k = 1, selector = \"last\", settle = 2 }";
    assert_eq!(
        plan(&["method.name=fedfrozen", "method.warmup=1", base]),
        ["note: method.base.settle has no effect here: clients measure nothing with this selector"]
    );
    let attention = ["method.name=safl", "method.relevant=entities", "method.profile_every=2"];
    assert!(plan(&attention).is_empty());
    assert_eq!(plan(&[&attention[..], &["method.settle=1"]].concat()).len(), 1);
}

#[test]
fn an_error_points_to_the_flag_that_was_typed() {
    let place = Place::new();
    for (flags, expected) in [
        (&["--set", "foo.bar=1"][..], "  --> --set foo.bar=1"),
        (&["--set", "lora.rank=4"], "  --> --set lora.rank=4\nhint: did you mean model.lora?"),
        (
            &["--set", "work..batch=3"],
            "is no key: a name before or after a dot is missing\n  --> --set work..batch=3",
        ),
        (&["--set", "=3"], "error: found \"=3\", expected KEY=VALUE\n  --> --set =3"),
        (&["--set", "privacy.delta=2"], "privacy.delta: found 2, expected a probability"),
        (
            &["--set", "work.batch=\"8\""],
            "work.batch: found \"8\", a text, expected a whole number",
        ),
        (
            &["--set", "federation.sample=all", "--set", "federation.sample.uniform=2"],
            "hint: federation.sample={ uniform = 2 } replaces it",
        ),
    ] {
        let told = place.refused(&[&["run", "tiny.toml"], flags].concat());
        assert!(told.contains(expected), "{flags:?}: {told}");
    }
    for (flags, expected) in [
        (["--baseline", "nix"], "error: --baseline: found \"nix\", expected one of tiny\n"),
        (["--sweep", "foo.bar=1,2"], "  --> foo.bar = 1, which the comparison sets"),
        (["--sweep", "work.batch=4,4"], "error: --sweep work.batch: found 4 twice, expected every"),
    ] {
        let told = place.refused(&[&["compare", "tiny.toml"], &flags[..]].concat());
        assert!(told.contains(expected), "{flags:?}: {told}");
    }
    let experiment =
        "[data]\nsource = 'csv'\ntask = 'classes'\npath = 'rows.csv'\n[federation]\nrounds = 1\n";
    fs::write(place.path("own.toml"), experiment).unwrap();
    fs::write(place.path("rows.csv"), "text,label\na,x\nb,y\n").unwrap();
    let told = place.refused(&["data", "own.toml", "--set", "data.columns.label=nix"]);
    assert!(told.contains("expected column \"nix\"; data.columns.label names another"), "{told}");
    assert!(told.contains("\n  --> --set data.columns.label=nix"), "{told}");
    // What has its default because a key is missing says so.
    let told = place.refused(&["data", "own.toml", "--set", "data.source=synthetic-clinic"]);
    assert!(told.contains("hint: data.source says how files are written"), "{told}");
}

#[test]
fn numbers_out_of_range_are_refused_before_anything_is_written() {
    let place = Place::new();
    for (set, expected) in [
        ("federation.rounds=4294967296", "found 4294967296, expected a whole number up to"),
        ("work.batch=0", "work.batch: found 0, expected at least 1"),
        ("work.epochs=0", "work.epochs: found 0, expected at least 1"),
        ("work.max_steps=0", "work.max_steps: found 0, expected at least 1"),
        ("work.accumulate=0", "work.accumulate: found 0, expected at least 1"),
        ("work.label_smoothing=1.0", "work.label_smoothing: found 1, expected a number from 0 to"),
        ("work.dropout=-0.1", "work.dropout: found -0.1, expected a number from 0 to below 1"),
        (
            "work.class_weights=even",
            "work.class_weights: found \"even\", expected \"balanced\", or a table",
        ),
        (
            "work.class_weights={ O = 0.0 }",
            "work.class_weights: found 0 for \"O\", expected finite",
        ),
        (
            "work.class_weights={ gout = 2.0 }",
            "work.class_weights: found a weight for \"gout\", expected",
        ),
        ("work.clip=0.0", "work.clip: found 0, expected a finite number above 0"),
        ("work.warmup=1.0", "work.warmup: found 1.0, expected a number of rounds, or a share"),
        ("work.warmup=-1", "work.warmup: found -1, expected a number of rounds, or a share"),
        ("work.warmup=99", "work.warmup: found 99 of 3 rounds, expected no more rounds than"),
        (
            "work.optimiser.epsilon=0",
            "work.optimiser.epsilon: found 0, expected a finite number above 0",
        ),
        ("work.optimiser.beta1=1.0", "work.optimiser.beta1: found 1, expected a number from 0 to"),
        (
            "federation.sample={ poisson = 0.0 }",
            "federation.sample: found { poisson = 0 }, expected above 0 and at most 1",
        ),
        (
            "federation.min_arrivals=4",
            "federation.min_arrivals: found 4 of at most 3 clients in a round, expected no more",
        ),
        ("federation.min_arrivals=1.5", "federation.min_arrivals: found 1.5, expected a whole"),
        ("federation.min_arrivals=-1", "federation.min_arrivals: found -1, expected a whole"),
        (
            "federation.min_arrivals=half",
            "federation.min_arrivals: found \"half\", expected a whole",
        ),
        ("federation.retries=1001", "federation.retries: found 1001, expected from 0 to 1000"),
        (
            "conditions.close_with=4",
            "conditions.close_with: found 4 of at most 3 clients in a round, expected no more",
        ),
        ("work.optimiser.name=0", "work.optimiser.name: found 0, expected a word in quotes"),
        ("work.optimiser=[0, 0.1]", "work.optimiser: found [0, 0.1], expected a word or a table"),
        (
            "work.schedule=slow",
            "work.schedule: found \"slow\", expected constant, linear or cosine",
        ),
        ("method={ name = \"safl\", base = { name = 2 } }", "base.name: found 2, expected a word"),
        (
            "data.clinic.hospitals=5",
            "data.clinic.hospitals: found 5, expected the 3 of federation.clients, or no key",
        ),
        ("model.blocks=70000", "model.blocks: found 70000, expected at most 1024"),
    ] {
        let message = place.refused(&["run", "tiny.toml", "--set", set]);
        assert!(message.contains(expected), "{set}: {message}");
    }
}

#[test]
fn settings_that_can_do_nothing_in_this_run_are_named() {
    let place = Place::new();
    for (sets, expected) in [
        ("work.optimiser.rate=0", "work.optimiser has no effect here: its rate is 0"),
        ("conditions.slow.share=0.5", "conditions.slow has no effect here: without"),
        (
            "conditions.away={ \"hospital-1\" = [{ from = 9 }] }",
            "conditions.away of \"hospital-1\" from round 9 has no effect here: the run has 3 rounds",
        ),
        (
            "federation.min_arrivals=0\nfederation.retries=5",
            "federation.retries has no effect here: with federation.min_arrivals = 0",
        ),
        ("method.rate=0", "the server has no effect here: its rate is 0"),
        (
            "work={ max_steps = 1, warmup = 2 }",
            "the first round has no effect here: work.warmup begins with the rate 0",
        ),
        (
            "method.name=fedfrozen\nmethod.warmup=3",
            "the second stage of fedfrozen has no effect here: it starts after 3 rounds",
        ),
    ] {
        let sets: Vec<&str> = sets.lines().flat_map(|set| ["--set", set]).collect();
        let output = place.fedra(&[&["plan", "tiny.toml"], &sets[..]].concat());
        let notes = text(&output.stderr);
        assert!(output.status.success(), "{notes}");
        let idle: Vec<&str> = notes.lines().filter(|note| note.contains("has no effect")).collect();
        assert_eq!(idle.len(), 1, "{notes}");
        assert!(idle[0].starts_with("note: ") && idle[0].contains(expected), "{notes}");
    }
    let output = place.fedra(&["plan", "tiny.toml", "--set", "conditions.close_with=3"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(!text(&output.stderr).contains("has no effect"));
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    let place = Place::new();
    let message = place.refused(&["run", "tiny.toml", "--set", "federation.ronuds=3"]);
    assert_eq!(
        message,
        "error: federation.ronuds: unknown key\n  \
         --> --set federation.ronuds=3\n\
         hint: did you mean federation.rounds?\n"
    );
}

#[test]
fn bad_values_are_refused_before_anything_is_written() {
    let place = Place::new();
    for (set, expected) in [
        ("federation.rounds=0", "federation.rounds: found 0, expected at least 1"),
        ("federation.clients=-1", "federation.clients: found -1, expected a whole number"),
        ("data.source=xml", "data.source: found \"xml\", expected synthetic-clinic, jsonl"),
        ("data.source=csv", "data.clinic applies only with data.source = \"synthetic-clinic\""),
        (
            "federation.sample=0.5",
            "federation.sample: found 0.5, expected \"all\", { uniform = 4 }",
        ),
        ("work.optimiser=sgd", "work.optimiser: found \"sgd\", expected a table such as { name"),
        ("work.optimiser.rate=fast", "work.optimiser.rate: found \"fast\", expected a number"),
        ("work.schedule={ linear = { rounds = 3 } }", "work.schedule"),
        (
            "data.partition=iid",
            "data.partition: found \"iid\", expected a table with keys out of by",
        ),
        ("data.partition.alpha=0.5", "data.partition.alpha applies only to data.partition.by"),
        ("data.partition.by=shards", "data.partition.shards is missing, expected the number"),
        ("data.shares.test=1.5", "data.shares.test: found 1.5, expected a share from 0 to below 1"),
        (
            "method.mu=0.1",
            "method.mu: unknown key, expected rate\n  --> --set method.mu=0.1\nhint: mu is a setting of",
        ),
        (
            "method.base=fedadam",
            "method.base: unknown key, expected rate\n  --> --set method.base=fedadam\nhint: base is a",
        ),
        ("seed=-1", "seed: found -1, expected a whole number that is not negative"),
        ("conditions.fail=2", "conditions.fail: found 2, expected a probability from 0 to 1"),
        ("data.path=/nowhere/at/all", "data.path applies only to sources that are read from files"),
        ("model.width=17", "model.width: found 17, expected a multiple of the 2 attention heads"),
        ("model.path=/nowhere/at/all", "model.preset cannot be combined with model.path"),
        ("method.name=fedavgg", "method.name: found \"fedavgg\", expected centralised"),
        ("method.k=3", "method.k: unknown key, expected"),
        ("wire.encoding=int4", "wire.encoding: found \"int4\", expected \"f32\", \"f16\""),
        (
            "wire.encoding={ top_k = 3 }",
            "wire.encoding = { top_k = 3 }: a share of 3 to keep, expected above 0 and at most 1",
        ),
        ("wire.encoding={ top_k = nan }", "a share of NaN to keep, expected"),
        ("privacy.epsilon=0", "privacy.epsilon: found 0, expected"),
        ("name=../up", "name: found \"../up\", expected letters"),
        ("data.train=${NO_SUCH}/x", "the environment variable NO_SUCH to be set"),
        ("model.vocabulary=5", "model.vocabulary"),
        (
            "model.lora={ rank = 1000000 }",
            "model.lora.rank: found 1000000, expected at most 16, the smaller side of block.0.query",
        ),
        ("model.lora={ alpha = nan }", "model.lora.alpha: found NaN, expected a positive number"),
        ("model.lora={ alpha = 1e300 }", "model.lora.alpha: found inf, expected a positive number"),
        (
            "model.lora={ roles = [\"gate\"] }",
            "model.lora.roles: found gate, expected a projection that the model has",
        ),
        ("model.blocks=1000000", "model.blocks: found 1000000, expected at most 1024"),
        ("model.width=65538", "model.width: found 65538, expected at most 65536"),
        ("model.width=4611686018427387904", "expected at most 65536"),
        ("model.heads=1000000", "model.heads: found 1000000, expected at most 4096"),
        (
            "model.vocabulary=99999999",
            "model.vocabulary: found 99999999, expected at most 16777216",
        ),
        ("model.head=fresh", "model.head applies only with model.path"),
        ("model.head=new", "model.head: found \"new\", expected fresh or trained"),
        ("model.lora={ rank = 0 }", "model.lora.rank: found 0, expected at least 1"),
        (
            "model.lora={ roles = [\"head\"] }",
            "model.lora.roles[0]: found \"head\", expected query, key, value, output, gate, up, down or \
             vocabulary",
        ),
        (
            "model.lora={ roles = [\"qkv_proj\"] }",
            "model.lora.roles[0]: found \"qkv_proj\", expected query, key, value, output, gate, up, down or \
             vocabulary, or their names in PEFT, such as q_proj",
        ),
        (
            "model.lora={ roles = [\"classifier\"] }",
            "found \"classifier\", expected query, key, value, output, gate, up, down or vocabulary",
        ),
        (
            "federation.rounds=99999999999999999999999",
            "federation.rounds: found 99999999999999999999999, expected a whole number up to 4294967295",
        ),
    ] {
        let message = place.refused(&["run", "tiny.toml", "--set", set]);
        assert!(message.contains(expected), "{set}: {message}");
    }
    let many = ["--set", "federation.clients=5000", "--set", "data.partition.by=iid"];
    let message = place.refused(&[&["run", "tiny.toml"], &many[..]].concat());
    let expected = "error: federation.clients: found 5000, expected at most the ";
    assert!(message.starts_with(expected), "{message}");
    let message = place.refused(&["run", "nowhere.toml"]);
    assert!(message.contains("cannot read nowhere.toml"), "{message}");
    let message = place.refused(&["run", "--resume", "old", "--set", "federation.rounds=9"]);
    assert!(message.contains("raise federation.rounds in old/experiment.toml"), "{message}");
    let message = place.refused(&["run", "--resume", "nowhere"]);
    assert!(message.contains("expected a run's folder"), "{message}");
}

#[test]
fn settings_left_over_from_another_method_are_told_from_slips() {
    let place = Place::new();
    let tiny = fs::read_to_string(place.path("tiny.toml")).unwrap();
    fs::write(place.path("safl.toml"), tiny + "[method]\nname = 'safl'\nk = 1\n").unwrap();
    let message = place.refused(&["run", "safl.toml", "--set", "method.name=fedavg"]);
    assert_eq!(
        message,
        "error: method.k: unknown key, expected rate\n   \
         --> safl.toml:27:1\n   \
         |\n\
         27 | k = 1\n   \
         | ^\n\
         hint: the file sets k for safl; method = { name = \"fedavg\" } replaces the whole table\n"
    );
    place.succeed(&["plan", "safl.toml", "--set", "method={ name = \"fedavg\" }"]);
    place.succeed(&["plan", "safl.toml", "--set", "method=fedavg"]);
}

#[test]
fn a_word_stands_for_a_method_beneath() {
    let place = Place::new();
    let sets = ["--set", "method.name=safl", "--set", "method.k=1", "--set"];
    // All but the run's memory, part of which is measured.
    let plan = |base: &str| {
        let plan = place.succeed(&[&["plan", "tiny.toml"], &sets[..], &[base]].concat());
        plan.split_once("run memory").unwrap().0.to_owned()
    };
    assert_eq!(plan("method.base=fedadam"), plan("method.base={ name = \"fedadam\" }"));
    let message =
        place.refused(&[&["run", "tiny.toml"], &sets[..], &["method.base=fedadm"]].concat());
    assert!(message.contains("method.base.name: found \"fedadm\", expected"), "{message}");
    assert!(message.contains("the nearest is \"fedadam\""), "{message}");
}

#[test]
fn a_file_for_another_command_is_named_with_that_command() {
    let place = Place::new();
    fs::write(place.path("bridge.toml"), "worlds = 2\nwarmups = [0]\n").unwrap();
    for command in ["run", "plan", "data", "compare"] {
        let message = place.refused(&[command, "bridge.toml"]);
        assert!(message.contains("this file has settings of `fedra lab`"), "{message}");
        assert!(message.contains("hint: fedra lab bridge bridge.toml"), "{message}");
    }
    let message = place.refused(&["lab", "bridge", "tiny.toml"]);
    assert!(message.contains("this file is an experiment (it has data)"), "{message}");
    let message = place.refused(&["lab", "bridge", "bridge.toml"]);
    assert!(message.contains("--> bridge.toml") && message.contains("expected"), "{message}");
}

#[test]
fn files_that_are_no_experiments_are_named_for_what_they_are() {
    let place = Place::new();
    fs::create_dir(place.path("folder")).unwrap();
    for (name, bytes) in
        [("empty", &b""[..]), ("torn", b"[data\n"), ("twice", b"a = 1\na = 2\n"), ("raw", b"\xff")]
    {
        fs::write(place.path(&format!("{name}.toml")), bytes).unwrap();
    }
    for (file, expected) in [
        ("folder", "folder: found a folder, expected an experiment file in TOML"),
        ("empty.toml", "data.task is missing, expected concepts, diagnosis"),
        ("torn.toml", "torn.toml: found TOML that cannot be read: "),
        ("torn.toml", " --> torn.toml:1:6\n  |\n1 | [data\n  |      ^"),
        ("twice.toml", "twice.toml: a is given twice\n"),
        ("raw.toml", "raw.toml: found bytes that are no text, expected TOML"),
    ] {
        let message = place.refused(&["run", file]);
        assert!(message.contains(expected), "{file}: {message}");
    }
    let message = place.refused(&["run", "tiny.toml", "--out", "tiny.toml"]);
    assert!(message.contains("found the file tiny.toml, expected a folder"), "{message}");
}

#[test]
fn rows_that_cannot_be_used_name_file_line_and_columns() {
    let place = Place::new();
    let experiment = "[data]\nsource = 'jsonl'\ntask = 'classes'\npath = 'rows.jsonl'\n\
                      [federation]\nrounds = 1\n";
    fs::write(place.path("own.toml"), experiment).unwrap();
    let missing = place.refused(&["data", "own.toml"]);
    assert!(missing.contains("data.path: there is no file or folder rows.jsonl"));
    assert!(missing.contains("relative paths start where fedra runs"), "{missing}");
    let both = place.refused(&["data", "own.toml", "--set", "data.train=other.jsonl"]);
    let expected = "data.path cannot be combined with data.train";
    assert!(both.contains(expected), "{both}");
    let row = "{\"text\":\"a\",\"label\":\"b\"}\n";
    for (rows, set, expected) in [
        ("nonsense\n", "seed=1", "rows.jsonl:1: found nonsense"),
        (
            row,
            "data.columns.label=kind",
            "rows.jsonl:1: found the columns \"label\", \"text\", expected column \"kind\"",
        ),
        (row, "seed=1", "rows.jsonl:1 names none, expected a client in every row"),
        (row, "data.columns.client=hospital", "expected column \"hospital\""),
        (row, "data.task=tokens", "expected column \"tags\"; data.columns.label names another"),
        (row, "data.source=parquet", "expected a Parquet file"),
        ("", "seed=1", "data.path: found no rows in"),
        (row, "data.path=.", "data.path: cannot read"),
    ] {
        fs::write(place.path("rows.jsonl"), rows).unwrap();
        let message = place.refused(&["data", "own.toml", "--set", set]);
        assert!(message.contains(expected), "{set}: {message}");
        assert_eq!(message.matches("os error").count().max(1), 1, "said twice: {message}");
    }
    // A test file without rows does not become a part of the training rows.
    fs::write(place.path("test.csv"), "text,label\n").unwrap();
    fs::write(place.path("train.csv"), "text,label\na,x\nb,y\n").unwrap();
    let split = experiment
        .replace("path = 'rows.jsonl'", "train = 'train.csv'\ntest = 'test.csv'")
        .replace("'jsonl'", "'csv'");
    fs::write(place.path("split.toml"), split).unwrap();
    let message = place.refused(&["data", "split.toml"]);
    assert!(message.contains("data.test: found no rows in"), "{message}");
}

#[test]
fn a_model_folder_that_is_none_says_what_it_lacks() {
    let place = Place::new();
    fs::create_dir(place.path("model")).unwrap();
    let tiny = fs::read_to_string(place.path("tiny.toml")).unwrap();
    let (before, after) = tiny.split_once("[model]").unwrap();
    let after = &after[after.find("[federation]").unwrap()..];
    fs::write(place.path("own.toml"), format!("{before}[model]\npath = 'model'\n{after}")).unwrap();
    let message = place.refused(&["run", "own.toml"]);
    assert!(message.contains("model.path: found no config.json in "), "{message}");
    fs::write(place.path("model/config.json"), "{}").unwrap();
    let message = place.refused(&["run", "own.toml"]);
    assert!(
        message.contains("config.json: model_type: found nothing, expected one of"),
        "{message}"
    );
    assert_eq!(message.matches("expected").count(), 1, "{message}");
}

#[test]
fn cuts_that_contradict_themselves_or_their_method_are_refused() {
    let place = Place::new();
    let cases = [
        (
            &["method.name=local-only", "split={ first = 0, last = 1 }"][..],
            "every client has its own model",
        ),
        (
            &[
                "split={ first = 0, last = 1, moves = [{ round = 2, first = 0, last = 0 }, { round = 2, first = 1, last = 0 }] }",
            ],
            "two moves in round 2",
        ),
        (
            &["split={ first = 0, last = 1, moves = [{ round = 99, first = 0, last = 0 }] }"],
            "a move in round 99",
        ),
        (
            &["split={ client_memory = \"1 GB\", moves = [{ round = 2, first = 0, last = 0 }] }"],
            "split.client_memory cannot be combined with clients and moves",
        ),
        (
            &["split={ client_memory = \"1 GB\", first = 1 }"],
            "split.client_memory cannot be combined with first and last",
        ),
        (&["split={ noise = { kind = \"clipped\", norm = 1.0 } }"], "split.noise.sigma is missing"),
        (
            &["split={ noise = { gamma = 0.1, sigma = 1.0 } }"],
            "split.noise.sigma: unknown key, expected gamma, draw or gradients",
        ),
        (
            &["split={ noise = { gamma = 0.1, sigma = 1.0 } }"],
            "hint: sigma is a setting of the kind clipped",
        ),
        (&["split={ noise = { gamma = \"x\" } }"], "split.noise.gamma: found \"x\", expected a"),
        (&["split={ noise = { kind = \"loud\" } }"], "split.noise.kind: found \"loud\", expected"),
    ];
    for (sets, expected) in cases {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
        let message = place.refused(&[&["plan", "tiny.toml"], &sets[..]].concat());
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_run_says_what_its_model_folder_lacks_and_what_its_noise_is() {
    let place = Place::new();
    let split = "split={ first = 0, last = 1, ends = \"personal\", noise = { gamma = 0.1 } }";
    let said = place.succeed_and_hear(&["run", "tiny.toml", "--out", "own", "--set", split]);
    assert!(said.contains("the folder model is not the model of any client: "), "{said}");
    assert!(said.contains("an empirical perturbation"), "{said}");
    let noise = place.summary("own")["noise"].to_string();
    assert!(noise.contains("relative, gamma 0.1"), "{noise}");
    let plan = place.succeed(&[
        "plan",
        "tiny.toml",
        "--set",
        "split={ first = 0, last = 1, moves = [{ round = 2, first = 0, last = 0 }] }",
    ]);
    assert!(plan.contains("from round 2 on, clients have 0 blocks and 0 blocks"), "{plan}");
}

#[test]
fn text_that_a_cut_model_would_have_to_write_is_refused_before_anything_is_read() {
    let place = Place::new();
    let sets = ["--set", "data.task=generation", "--set", "split={ first = 0, last = 1 }"];
    let message = place.refused(&[&["plan", "tiny.toml"], &sets[..]].concat());
    let expected = "data.task: generation cannot be combined with [split]";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn the_quickstart_refuses_keys_in_which_its_runs_differ() {
    let place = Place::new();
    for (set, hint) in [
        (
            "method.name=fedprox",
            "fedra run runs/quickstart/fedavg/experiment.toml --set method.name=fedprox",
        ),
        ("method={ name = \"fedprox\" }", "expected a key that all runs share"),
        ("name=mine", "--out DIR names the folder"),
    ] {
        let refused = place.refused(&["quickstart", "--set", set]);
        assert!(refused.contains(hint), "{refused}");
    }
}
