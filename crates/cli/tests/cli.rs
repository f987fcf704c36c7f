//! The built binary on tiny experiments: what it prints, writes and refuses.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A folder to run in, and the experiment in it.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tiny.toml"), include_str!("tiny.toml")).unwrap();
        Self { folder }
    }

    fn fedra(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
        command.current_dir(self.folder.path()).args(arguments);
        command.env_remove("FEDRA_DATA").env_remove("FEDRA_MODELS").output().unwrap()
    }

    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.fedra(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs what must be refused: status 2, one message on stderr, nothing on stdout or on disk.
    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.fedra(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
        assert!(!self.path("runs").exists(), "{arguments:?} wrote something");
        text(&output.stderr)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn summary(&self, run: &str) -> Value {
        let file = self.path(run).join("summary.json");
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    }

    fn weights(&self, run: &str) -> Vec<u8> {
        fs::read(self.path(run).join("model/model.safetensors")).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Each line of a round without its times, which no two runs share.
fn rounds_without_times(run: &Path) -> Vec<Value> {
    let lines = fs::read_to_string(run.join("rounds.jsonl")).unwrap();
    let round = |line: &str| {
        let mut report: Value = serde_json::from_str(line).unwrap();
        for key in ["seconds", "slowest", "most_updates_held"] {
            report.as_object_mut().unwrap().remove(key).unwrap();
        }
        report
    };
    lines.lines().map(round).collect()
}

#[test]
fn a_run_leaves_the_promised_files() {
    let place = Place::new();
    let table = place.succeed(&["run", "tiny.toml"]);
    assert!(table.contains("fedavg, 3 rounds") && table.contains("privacy"), "{table}");
    let run = place.path("runs/tiny");
    for file in
        ["experiment.toml", "model/config.json", "model/model.safetensors", "model/tokenizer.json"]
    {
        assert!(run.join(file).is_file(), "{file}");
    }
    assert_eq!(rounds_without_times(&run).len(), 3);
    let summary = place.summary("runs/tiny");
    assert_eq!(summary["method"], "fedavg");
    assert_eq!((&summary["seed"], &summary["rounds"]), (&3.into(), &3.into()));
    assert_eq!(summary["score"]["name"], "span_f1");
    assert!(summary["score"]["value"].is_f64() && summary["scores"]["client_test"].is_object());
    assert!(summary["privacy"].is_null());
    assert!(summary["seconds"].as_f64() > Some(0.0));
    assert!(summary["peak_rss_bytes"].as_u64() > Some(1_000_000));
    for direction in ["up", "down", "full_up", "full_down"] {
        assert!(summary["bytes"][direction].as_u64() > Some(0), "{direction}");
    }
}

#[test]
fn a_resumed_run_ends_with_the_same_bytes() {
    let place = Place::new();
    place.succeed(&["run", "tiny.toml", "--out", "whole", "--quiet"]);
    // One round, then the experiment file of three: an interruption between two rounds.
    place.succeed(&[
        "run",
        "tiny.toml",
        "--out",
        "parts",
        "--quiet",
        "--set",
        "federation.rounds=1",
    ]);
    let whole = fs::read_to_string(place.path("whole/experiment.toml")).unwrap();
    fs::write(place.path("parts/experiment.toml"), whole).unwrap();
    fs::remove_file(place.path("parts/summary.json")).unwrap();
    // A round that was reported and then lost with the power.
    let log = place.path("parts/rounds.jsonl");
    let torn = fs::read_to_string(&log).unwrap() + "{\"round\": 1, \"coh";
    fs::write(&log, torn).unwrap();

    let busy = place.fedra(&["run", "tiny.toml", "--out", "parts"]);
    assert_eq!(busy.status.code(), Some(2));
    assert!(text(&busy.stderr).contains("fedra run --resume parts"), "{}", text(&busy.stderr));

    place.succeed(&["run", "--resume", "parts", "--quiet"]);
    assert_eq!(place.weights("parts"), place.weights("whole"));
    let rounds = |run: &str| rounds_without_times(&place.path(run));
    // The first round was the last of its run, so it was scored either way.
    assert_eq!(rounds("parts"), rounds("whole"));
    assert_eq!(place.summary("parts")["bytes"], place.summary("whole")["bytes"]);
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_after_a_round_and_the_resumed_run_ends_with_the_same_bytes() {
    let place = Place::new();
    let many = ["run", "tiny.toml", "--quiet", "--set", "federation.rounds=150", "--out"];
    place.succeed(&[&many[..], &["whole"]].concat());

    let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
    command.current_dir(place.folder.path()).args(many).arg("parts");
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let log = place.path("parts/rounds.jsonl");
    while fs::read_to_string(&log).unwrap_or_default().lines().count() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).contains("go on with: fedra run --resume parts"));
    assert!(!place.path("parts/summary.json").exists());

    place.succeed(&["run", "--resume", "parts", "--quiet"]);
    assert_eq!(place.weights("parts"), place.weights("whole"));
    assert_eq!(place.summary("parts")["bytes"], place.summary("whole")["bytes"]);
}

#[test]
fn the_number_of_threads_changes_no_byte_and_the_seed_changes_many() {
    let place = Place::new();
    let run = |out: &str, more: &[&str]| {
        let all =
            [&["run", "tiny.toml", "--quiet", "--set", "federation.rounds=1", "--out", out], more];
        place.succeed(&all.concat());
        place.weights(out)
    };
    let one = run("one", &["--set", "threads=1"]);
    assert_eq!(one, run("three", &["--set", "threads=3"]));
    assert_ne!(one, run("other", &["--seed", "4"]));
}

#[test]
fn the_resolved_experiment_runs_again_to_the_same_model() {
    let place = Place::new();
    place.succeed(&["run", "tiny.toml", "--quiet", "--set", "federation.rounds=1", "--out", "a"]);
    place.succeed(&["run", "a/experiment.toml", "--quiet", "--out", "b"]);
    assert_eq!(place.weights("a"), place.weights("b"));
}

#[test]
fn the_plan_predicts_the_bytes_of_the_run_to_the_last_one() {
    let place = Place::new();
    for (number, sets) in [
        &["method.name=fedavg"][..],
        &["method.name=local-only"],
        &["method.name=fedper", "federation.sample={ uniform = 2 }"],
        &["method.name=scaffold", "work.optimiser={ name = \"sgd\", rate = 0.1 }"],
        &["wire.encoding=int8", "wire.download=bf16", "federation.sample={ poisson = 0.6 }"],
        &["wire.encoding={ top_k = 0.1 }", "federation.start=shared"],
        &["method.name=centralised"],
        &["method.name=safl", "method.k=1"],
        &["method.name=safl", "method.k=1", "method.profile_every=2", "method.prune=0.25"],
        &[
            "method.name=safl",
            "method.k=1",
            "method.selector=cyclic",
            "federation.sample={ uniform = 2 }",
        ],
        &["method.name=safl", "method.k=1", "method.selector=random", "method.mask=per_client"],
        &["method.name=safl", "method.k={ default = 2, \"hospital-2\" = 1 }", "method.explore=0"],
        &["method.name=safl", "method.selector=cyclic", "federation.depths={ \"hospital-3\" = 1 }"],
        &["method.name=safl", "method.selector={ blocks = [1] }", "method.mask=per_client"],
        &[
            "method.name=safl",
            "model.blocks=3",
            "method.selector={ blocks = [2, 0] }",
            "method.explore=1",
            "federation.depths={ \"hospital-3\" = 2 }",
        ],
        &["method.name=safl", "method.k=1", "method.selector=gradient_cover", "method.settle=1"],
        &["method.name=safl", "method.k=1", "method.prune={ heads = 0.5 }"],
        &["method.name=safl", "method.k=1", "model.blocks=3", "method.selector=race"],
        &["federation.depths={ default = 2, \"hospital-1\" = 1 }"],
        &["method.name=safl", "conditions.away={ \"hospital-1\" = [{ from = 2, to = 2 }] }"],
        &["method.name=fedfrozen", "method.warmup=1", "evaluate.attention=true"],
        &[
            "method.name=fedfrozen",
            "method.warmup=0.67",
            "method.stage2=strict",
            "method.base={ name = \"scaffold\" }",
            "federation.sample={ uniform = 2 }",
        ],
        &["model.lora={ rank = 2, roles = [\"query\", \"value\"] }", "wire.encoding=f16"],
        &["model.lora={ rank = 2 }", "method.name=fedfrozen", "method.warmup=2"],
        &[
            "method.name=fedfrozen",
            "method.warmup=1",
            "method.base={ name = \"safl\", k = 1, base = { name = \"fedadam\" } }",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        let out = format!("out-{number}");
        let mut run = vec!["run", "tiny.toml", "--quiet", "--out", &out];
        let mut plan = vec!["plan", "tiny.toml"];
        for set in sets {
            run.extend(["--set", set]);
            plan.extend(["--set", set]);
        }
        let plan = place.succeed(&plan);
        place.succeed(&run);
        let bytes = &place.summary(&out)["bytes"];
        for (line, key) in [("bytes up ", "up"), ("bytes down ", "down")] {
            let line = plan.lines().find(|found| found.starts_with(line)).unwrap();
            let predicted = line.split_whitespace().nth(2).unwrap().replace(',', "");
            assert_eq!(predicted, bytes[key].to_string(), "{sets:?}: {line}");
        }
    }
}

#[test]
fn where_choices_may_overlap_the_plan_is_a_range_that_holds_the_run() {
    let place = Place::new();
    for (out, set) in [
        ("own", "method.mask=per_client"),
        ("ragged", "federation.depths={ \"hospital-3\" = 1 }"),
        ("race", "method.selector=race\nfederation.sample={ uniform = 2 }"),
        ("ragged-race", "method.selector=race\nfederation.depths={ \"hospital-3\" = 2 }"),
    ] {
        let sets = ["method.name=safl", "method.k=1", "model.blocks=3"];
        let sets = sets.into_iter().chain(set.lines());
        let sets: Vec<&str> = sets.flat_map(|set| ["--set", set]).collect();
        let plan = place.succeed(&[&["plan", "tiny.toml"], &sets[..]].concat());
        place.succeed(&[&["run", "tiny.toml", "--quiet", "--out", out], &sets[..]].concat());
        let line = plan.lines().find(|line| line.starts_with("bytes down ")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[3], "to", "{line}");
        let number = |word: &str| word.replace(',', "").parse::<u64>().unwrap();
        let down = place.summary(out)["bytes"]["down"].as_u64().unwrap();
        assert!((number(words[2])..=number(words[4])).contains(&down), "{down}: {line}");
    }
}

#[test]
fn safl_reports_its_choice_and_resumes_to_the_same_bytes() {
    let place = Place::new();
    let safl = ["--set", "method.name=safl", "--set", "method.k=1", "--set", "method.prune=0.5"];
    let more = ["--set", "method.selector=corrected", "--set", "federation.sample={ uniform = 2 }"];
    let run = |out: &str, rounds: &str| {
        let rounds = format!("federation.rounds={rounds}");
        let start = ["run", "tiny.toml", "--quiet", "--out", out, "--set", &rounds];
        place.succeed(&[&start[..], &safl, &more].concat());
    };
    run("whole", "3");
    run("parts", "2");
    let whole = fs::read_to_string(place.path("whole/experiment.toml")).unwrap();
    fs::write(place.path("parts/experiment.toml"), whole).unwrap();
    fs::remove_file(place.path("parts/summary.json")).unwrap();
    place.succeed(&["run", "--resume", "parts", "--quiet"]);
    assert_eq!(place.weights("parts"), place.weights("whole"));
    let rounds = rounds_without_times(&place.path("whole"));
    assert_eq!(rounds_without_times(&place.path("parts")), rounds);
    let selection = &rounds[2]["selection"];
    assert_eq!(selection["scores"].as_array().unwrap().len(), 2);
    assert!(selection["entropy"].is_f64() && selection["scores_up"].as_u64() > Some(0));
}

#[test]
fn a_memory_budget_becomes_the_most_blocks_that_fit() {
    let place = Place::new();
    let shown = |budget: &str| {
        let k = format!("method.k={{ memory = \"{budget}\" }}");
        place.succeed(&["plan", "tiny.toml", "--set", "method.name=safl", "--set", &k])
    };
    assert!(shown("100 MB").contains("2 of 2 blocks"));
    let memory = |plan: &str| {
        let line = plan.lines().find(|line| line.starts_with("client memory")).unwrap().to_owned();
        line.split_whitespace().nth(3).unwrap().to_owned()
    };
    // Just what one block takes, as the plan itself says, is too little for two.
    let one =
        place.succeed(&["plan", "tiny.toml", "--set", "method.name=safl", "--set", "method.k=1"]);
    let one: f64 = memory(&one).parse().unwrap();
    assert!(shown(&format!("{} kB", one + 1.0)).contains("1 of 2 blocks"));
    let small = "method.k={ memory = \"1 kB\" }";
    let message = place.refused(&["run", "tiny.toml", "--set", "method.name=safl", "--set", small]);
    assert!(message.contains("method.k.memory: found 1.0 kB, expected at least"), "{message}");
}

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
        ("method.prune=0.0", "method.prune: found 0, expected above 0 and at most 1"),
        ("method.prune={ heads = 0.0 }", "method.prune: found 0, expected above 0 and at most 1"),
        ("wire.encoding={ heads = { share = 0.5, of = 2 } }", "wire.encoding: found heads 0.5"),
        ("method.prune=1.5", "method.prune: found 1.5, expected above 0 and at most 1"),
        ("method.explore=2", "method.explore: found 2 of 2 blocks, expected less than k"),
        ("method.profile_every=0", "method.profile_every: found 0, expected at least 1"),
        ("method.mask=both", "method.mask: found \"both\", expected consensus or per_client"),
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
fn a_setting_of_safl_that_does_nothing_is_named_once_and_not_refused() {
    let place = Place::new();
    let notes = |command: &[&str], sets: &[&str]| -> Vec<String> {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
        let output = place.fedra(&[command, &sets[..]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let lines = text(&output.stderr).lines().map(str::to_owned).collect::<Vec<_>>();
        lines.into_iter().filter(|line| line.contains("does nothing here")).collect()
    };
    let even = ["method.name=safl", "method.selector=even", "method.relevant=entities"];
    let run = ["run", "tiny.toml", "--out", "even", "--set", "federation.rounds=1"];
    for command in [&["plan", "tiny.toml"][..], &run] {
        assert_eq!(
            notes(command, &even),
            ["note: method.relevant does nothing here: this selector does not look at attention"]
        );
    }
    let plan = |sets: &[&str]| notes(&["plan", "tiny.toml"], sets);
    let base = "method.base={ name = \"safl\", k = 1, selector = \"last\", settle = 2 }";
    assert_eq!(
        plan(&["method.name=fedfrozen", "method.warmup=1", base]),
        ["note: method.base.settle does nothing here: with this selector clients measure nothing"]
    );
    let race = ["method.name=safl", "method.k=1", "method.selector=race", "method.trial=1"];
    assert!(plan(&[&race[..], &["method.profile_examples=8"]].concat()).is_empty());
    let attention = ["method.name=safl", "method.relevant=entities", "method.profile_every=2"];
    assert!(plan(&attention).is_empty());
    assert_eq!(plan(&[&attention[..], &["method.settle=1", "method.trial=2"]].concat()).len(), 2);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    let place = Place::new();
    let message = place.refused(&["run", "tiny.toml", "--set", "federation.ronuds=3"]);
    assert_eq!(
        message,
        "error: federation.ronuds: found an unknown key, expected a known one\n\
         hint: did you mean federation.rounds?\n"
    );
}

#[test]
fn bad_values_are_refused_before_anything_is_written() {
    let place = Place::new();
    for (set, expected) in [
        ("federation.rounds=0", "federation.rounds: found 0, expected at least 1"),
        ("federation.clients=-1", "federation.clients: found -1, expected a whole number"),
        ("work.batch=0", "work.batch: found 0, expected finite and above 0"),
        ("data.source=xml", "data.source: found \"xml\", expected synthetic-clinic, jsonl"),
        ("data.source=csv", "data.clinic: found a table, expected"),
        ("data.path=/nowhere/at/all", "data.path: found /nowhere/at/all, expected no path"),
        ("model.width=17", "model.width: found 17, expected a multiple of the 2 attention heads"),
        ("model.path=/nowhere/at/all", "model.preset: found \"tiny-encoder\", expected no preset"),
        ("method.name=fedavgg", "method.name: found \"fedavgg\", expected centralised"),
        ("method.k=3", "method.k: found an unknown key, expected"),
        ("wire.encoding=f31", "wire.encoding: found"),
        ("privacy.epsilon=1", "privacy: found a table, expected no such table"),
        ("name=../up", "name: found \"../up\", expected letters"),
        ("data.train=${NO_SUCH}/x", "the environment variable NO_SUCH to be set"),
        ("model.vocabulary=5", "model.vocabulary"),
        ("model.lora={ rank = 0 }", "model.lora: found"),
        ("model.lora={ roles = [\"head\"] }", "model.lora.roles[0]: found"),
    ] {
        let message = place.refused(&["run", "tiny.toml", "--set", set]);
        assert!(message.contains(expected), "{set}: {message}");
    }
    let message = place.refused(&["run", "nowhere.toml"]);
    assert!(message.contains("cannot read nowhere.toml"), "{message}");
    let message = place.refused(&["run", "--resume", "nowhere"]);
    assert!(message.contains("expected a run's folder"), "{message}");
}

#[test]
fn quiet_says_nothing() {
    let place = Place::new();
    let output = place.fedra(&["run", "tiny.toml", "--quiet", "--set", "federation.rounds=1"]);
    assert_eq!((text(&output.stdout), text(&output.stderr)), (String::new(), String::new()));
    assert!(place.path("runs/tiny/summary.json").is_file());
}

#[test]
fn data_shows_rows_labels_and_clients() {
    let shown = Place::new().succeed(&["data", "tiny.toml"]);
    assert_eq!(shown, include_str!("data.txt"));
}

#[test]
fn files_are_read_through_variables_and_capped() {
    let place = Place::new();
    let mut rows = String::new();
    for row in 0..30 {
        let (label, client) = (["heart", "lung"][row % 2], ["north", "south"][row % 3 / 2]);
        let note = format!("{label} {row}");
        let line = serde_json::json!({ "note": note, "label": label, "client": client });
        rows.extend([line.to_string().as_str(), "\n"]);
    }
    fs::write(place.path("rows.jsonl"), rows).unwrap();
    let experiment = "\
        [data]\nsource = 'jsonl'\ntask = 'classes'\npath = '${HERE}/rows.jsonl'\n\
        columns = { text = 'note' }\nmax_examples = 4\nmax_tokens = 8\n\
        [model]\npreset = 'tiny-encoder'\nblocks = 1\nwidth = 8\nheads = 2\n\
        [federation]\nrounds = 1\n";
    fs::write(place.path("files.toml"), experiment).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
    command.current_dir(place.folder.path()).env("HERE", place.folder.path());
    let output = command.args(["run", "files.toml"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary = place.summary("runs/files");
    assert_eq!((&summary["clients"], &summary["examples"]), (&2.into(), &8.into()));
    assert_eq!(summary["score"]["name"], "macro_f1");
}

#[test]
fn small_clients_are_merged_or_left_out_and_data_says_so() {
    let place = Place::new();
    let mut rows = String::new();
    for (client, count) in [("north", 6), ("south", 2), ("east", 1), ("west", 5)] {
        for row in 0..count {
            let label = ["heart", "lung"][row % 2];
            let line = serde_json::json!({ "text": "note", "label": label, "client": client });
            rows.extend([line.to_string().as_str(), "\n"]);
        }
    }
    fs::write(place.path("rows.jsonl"), rows).unwrap();
    let experiment = "\
        [data]\nsource = 'jsonl'\ntask = 'classes'\npath = 'rows.jsonl'\n\
        shares = { central = 0.0, validation = 0.0, test = 0.0 }\n\
        partition = { by = 'client', min_examples = 5 }\n[federation]\nrounds = 1\n";
    fs::write(place.path("small.toml"), experiment).unwrap();
    let merged = place.succeed(&["data", "small.toml"]);
    let said = "3 (2 with fewer than 5 training rows merged into \"others\")";
    assert!(merged.contains(said), "{merged}");
    assert!(merged.contains("others        ██████████                 3      0"), "{merged}");
    let dropped = place.succeed(&["data", "small.toml", "--set", "data.partition.small=drop"]);
    assert!(dropped.contains("2 (2 with fewer than 5 training rows left out)"), "{dropped}");
    assert!(dropped.contains("14 (3 left out)"), "{dropped}");
    let set = "data.partition.min_examples=50";
    let error =
        place.refused(&["data", "small.toml", "--set", set, "--set", "data.partition.small=drop"]);
    assert!(error.contains("data.partition.min_examples: found 50"), "{error}");
    let error = place.refused(&["data", "tiny.toml", "--set", "data.partition.small=drop"]);
    assert!(error.contains("data.partition.small"), "{error}");
}

/// A decoder from a folder, with its own tokenizer, on text without labels and with classes.
#[test]
fn a_llama_folder_learns_language_and_classes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models/stories260k");
    if !folder.exists() {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    }
    let place = Place::new();
    let mut rows = String::new();
    for row in 0..40 {
        let (label, who) = [("joy", "Lily was happy"), ("woe", "Tom was sad")][row % 2];
        let text = format!("Once upon a time, {who}. The end number {row}.");
        let client = format!("home-{}", row % 4);
        let line = serde_json::json!({ "text": text, "label": label, "client": client });
        rows.extend([line.to_string().as_str(), "\n"]);
    }
    fs::write(place.path("rows.jsonl"), rows).unwrap();
    let model = folder.display();
    let experiment = format!(
        "[data]\nsource = 'jsonl'\ntask = 'language'\npath = 'rows.jsonl'\nmax_tokens = 48\n\
         [model]\npath = '{model}'\n[federation]\nrounds = 3\n\
         [work]\nbatch = 4\noptimiser = {{ name = 'adamw', rate = 1e-3 }}\n"
    );
    fs::write(place.path("language.toml"), experiment).unwrap();
    place.succeed(&["run", "language.toml", "--quiet"]);
    let losses: Vec<f64> = rounds_without_times(&place.path("runs/language"))
        .iter()
        .map(|round| round["scores"][0]["loss"].as_f64().unwrap())
        .collect();
    assert!(losses[2] < losses[0] - 0.1, "{losses:?}");
    let saved = fs::read(place.path("runs/language/model/tokenizer.json")).unwrap();
    assert_eq!(saved, fs::read(folder.join("tokenizer.json")).unwrap());

    let sets = ["--set", "data.task=classes", "--set", "federation.rounds=6", "--out", "classes"];
    place.succeed(&[&["run", "language.toml", "--quiet"], &sets[..]].concat());
    let score = place.summary("classes")["score"]["value"].as_f64().unwrap();
    assert!(score > 0.9, "one word tells the classes apart: {score}");
}

#[test]
fn every_experiment_of_the_repository_is_understood() {
    let place = Place::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    // The laboratory's, which its own tests run.
    files.retain(|file| !file.ends_with("frozen_bridge.toml"));
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
        let nowhere = place.path("nowhere");
        command.env("FEDRA_DATA", &nowhere).env("FEDRA_MODELS", &nowhere).arg("data").arg(&file);
        let output = command.output().unwrap();
        // Real data are not here; that they are missing is the last thing to be found wrong.
        let missing = text(&output.stderr).contains("expected a file or folder that exists");
        assert!(output.status.success() || missing, "{file:?}: {}", text(&output.stderr));
    }
}

#[test]
fn completions_and_help_teach() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.succeed(&["completions", shell]).contains("quickstart"), "{shell}");
    }
    let help = place.succeed(&["run", "--help"]);
    assert!(help.contains("Examples:") && help.contains("--resume"), "{help}");
}
