//! `fedra plan`, held to what runs report.

use crate::place::Place;

/// What is set in runs whose bytes are foreseen.
const RUNS: [&[&str]; 34] = [
    &["method.name=fedavg"],
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
    &["model.lora={ rank = 2, dora = true }", "method.name=safl", "method.k=1"],
    &[
        "model.lora={ rank = 4, mean = \"exact\" }",
        "federation.ranks={ default = 4, \"hospital-1\" = 1, \"hospital-3\" = 2 }",
        "federation.sample={ uniform = 2 }",
    ],
    &[
        "model.lora={ rank = 4, mean = \"exact\", dora = true }",
        "federation.ranks={ \"hospital-2\" = 1 }",
        "method.name=fedfrozen",
        "method.warmup=1",
        "wire.encoding=f16",
    ],
    &[
        "model.lora={ rank = 2, mean = \"exact\" }",
        "federation.ranks={ \"hospital-2\" = 1 }",
        "method.name=safl",
        "method.k=1",
        "federation.depths={ \"hospital-2\" = 1 }",
        "method.selector=cyclic",
    ],
    &[
        "method.name=fedfrozen",
        "method.warmup=1",
        "method.base={ name = \"safl\", k = 1, base = { name = \"fedadam\" } }",
    ],
    &["split={ first = 0, last = 1 }"],
    &["split={ first = 1, last = 0, mode = \"batched\", encoding = \"int8\" }"],
    &["split={ first = 0, last = 0, encoding = \"bf16\" }", "work.clip=1.0"],
    &[
        "split={ first = 1, last = 0, mode = \"replicated\" }",
        "work.batch=3",
        "work.accumulate=2",
        "work.clip=1.0",
        "work.schedule=cosine",
        "work.warmup=0.2",
        "work.dropout=0.1",
    ],
    // Something of the server's blocks learns, whichever are chosen.
    &["split={ first = 0, last = 0 }", "method.name=safl", "method.k=1"],
    &[
        "split={ first = 0, last = 0 }",
        "method.name=safl",
        "method.k=1",
        "method.selector=gradient_norm",
        "federation.sample={ uniform = 2 }",
    ],
];

#[test]
fn the_plan_predicts_the_bytes_of_the_run_to_the_last_one() {
    let place = Place::new();
    for (number, sets) in RUNS.into_iter().enumerate() {
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
    for (out, set) in
        [("own", "method.mask=per_client"), ("ragged", "federation.depths={ \"hospital-3\" = 1 }")]
    {
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
fn a_memory_budget_becomes_the_most_blocks_that_fit() {
    let place = Place::new();
    let shown = |budget: &str| {
        let k = format!("method.k={{ memory = \"{budget}\" }}");
        place.succeed(&["plan", "tiny.toml", "--set", "method.name=safl", "--set", &k])
    };
    assert!(shown("100 MB").contains("2 of 2 blocks"));
    let small = "method.k={ memory = \"1 kB\" }";
    let message = place.refused(&["run", "tiny.toml", "--set", "method.name=safl", "--set", small]);
    let found = "method.k.memory: found 1.0 kB, expected at least ";
    let least = message.split(found).nth(1).unwrap();
    assert!(least.contains("for one block and the longest rows"), "{message}");
    // What one block takes, as that says, is too little for two; rows that are shorter take less.
    let least: f64 = least.split_whitespace().next().unwrap().parse().unwrap();
    let one = shown(&format!("{} kB", least + 1.0));
    assert!(one.contains("1 of 2 blocks"));
    let line = one.lines().find(|line| line.starts_with("client memory")).unwrap();
    let takes: f64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(line.contains(" kB at most") && takes <= least, "{line}, {least}");
}

#[test]
fn the_plan_counts_what_clients_keep_between_rounds() {
    let place = Place::new();
    let line = |sets: &[&str], name: &str| {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
        let plan = place.succeed(&[&["plan", "tiny.toml"], &sets[..]].concat());
        plan.lines().find(|line| line.starts_with(name)).map(str::to_owned)
    };
    // 10,455 parameters of four bytes at three clients.
    for (sets, expected) in [
        (
            &["method.name=scaffold"][..],
            "41.8 kB each between rounds, a control variate: 125.5 kB for all 3",
        ),
        (&["method.name=feddyn"], "41.8 kB each between rounds, a linear term: 125.5 kB for all 3"),
        (
            &["method.name=fedper"],
            "476 B each between rounds, personal parameters: 1.4 kB for all 3",
        ),
        (
            &["wire.encoding={ int8 = { feedback = true } }"],
            "41.8 kB each between rounds, residuals of its encoding: 125.5 kB for all 3",
        ),
        // Two patterns of 8 examples, 2 heads of 2 blocks, 32 tokens by 32.
        (
            &["evaluate.attention=true"],
            "262.1 kB each between rounds, attention statistics: 786.4 kB for all 3",
        ),
        (
            &["evaluate.attention=true", "method.name=centralised"],
            "262.1 kB each between rounds, attention statistics: 262.1 kB for the only client",
        ),
    ] {
        let kept = line(sets, "client state").unwrap();
        assert!(kept.ends_with(expected), "{sets:?}: {kept}");
    }
    for sets in
        [&["method.name=fedavg"][..], &["method.name=fedadam"], &["method.name=centralised"]]
    {
        assert_eq!(line(sets, "client state"), None, "{sets:?}");
    }
    // Of twenty clients, SCAFFOLD keeps twenty variates and those of the two that are at work or
    // wait: in the line of the run's memory that tells what is client state.
    let kept = |method: &str| {
        let sets = ["federation.clients=20", "data.clinic.notes=400", "threads=1", method];
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
        let plan = place.succeed(&[&["plan", "tiny.toml"], &sets[..]].concat());
        let line = plan.lines().find(|line| line.contains("models in transit")).unwrap();
        let (_, told) = line.rsplit_once("; ").unwrap();
        let words: Vec<&str> = told.split_whitespace().collect();
        let unit = if words[1] == "MB" { 1e6 } else { 1e3 };
        words[0].parse::<f64>().unwrap() * unit
    };
    let added = kept("method.name=scaffold") - kept("method.name=fedavg");
    assert!((0.9..1.1).contains(&(added / (22.0 * 41_820.0))), "{added}");
}

/// A block has 3,280 parameters and the head 119.
#[test]
fn of_blocks_that_never_change_only_those_are_kept() {
    let place = Place::new();
    let feedback = "wire.encoding={ int8 = { feedback = true } }";
    let sets = |selector: &str, encoding: &str| {
        let selector = format!("method.selector={selector}");
        ["method.name=safl", "method.k=1", &selector, encoding]
            .iter()
            .flat_map(|set| ["--set".to_owned(), (*set).to_owned()])
            .collect::<Vec<String>>()
    };
    let kept = |selector: &str, more: &[&str]| {
        let sets = sets(selector, feedback);
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let plan = place.succeed(&[&["plan", "tiny.toml"], &sets[..], more].concat());
        let line = plan.lines().find(|line| line.starts_with("client state")).unwrap();
        line.split_whitespace().nth(2).unwrap().to_owned()
    };
    for selector in ["even", "first", "random_fixed", "{ blocks = [1] }"] {
        assert_eq!(kept(selector, &[]), "13.6", "{selector}");
    }
    for selector in ["attention", "random", "cyclic"] {
        assert_eq!(kept(selector, &[]), "26.7", "{selector}");
    }
    let explored = ["--set", "method.k=2", "--set", "method.explore=1"];
    assert_eq!(kept("even", &explored), "26.7");

    // As in a run: a checkpoint holds the same, and a little to tell whose it is.
    let checkpoint = |encoding: &str, out: &str| {
        let sets = sets("even", encoding);
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        place.succeed(&[&["run", "tiny.toml", "--quiet", "--out", out], &sets[..]].concat());
        std::fs::metadata(place.path(out).join("checkpoint.fedra")).unwrap().len() as f64
    };
    let added = checkpoint(feedback, "with") - checkpoint("wire.encoding=int8", "without");
    assert!((1.0..1.1).contains(&(added / (3.0 * 4.0 * 3_399.0))), "{added}");
}

#[test]
fn plan_and_run_tell_the_same_shares_of_a_cut_that_starts_shared() {
    let place = Place::new();
    let sets = [
        "split={ first = 0, last = 1 }",
        "federation.start=shared",
        "federation.rounds=1",
        "model.lora={ rank = 2 }",
    ];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
    let line = |text: &str, start: &str| {
        let found = text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
        found[start.len()..].trim().to_owned()
    };
    let plan = place.succeed(&[&["plan", "tiny.toml"], &sets[..]].concat());
    let run = place.succeed(&[&["run", "tiny.toml", "--out", "far"], &sets[..]].concat());
    for start in ["bytes up", "bytes down"] {
        let told = line(&run, start);
        assert!(told.contains(" across the cut, "), "{told}");
        assert!(line(&plan, start).ends_with(&format!("in all ({told})")), "{start}: {told}");
    }
    assert!(line(&plan, "client saves").contains(" % of the "), "{plan}");
}
