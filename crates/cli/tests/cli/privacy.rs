//! Private runs: the plan's epsilon is the ledger's, what no guarantee covers is refused, and a run that was
//! stopped continues with the ledger that it left.

use std::fs;

use serde_json::Value;

use crate::place::{Place, rounds_without_times};

fn with<'a>(command: &[&'a str], sets: &[&'a str]) -> Vec<&'a str> {
    command.iter().copied().chain(sets.iter().flat_map(|set| ["--set", *set])).collect()
}

/// The number after a word in a line.
fn after(text: &str, word: &str) -> f64 {
    let mut words = text.split_whitespace().skip_while(|found| *found != word).skip(1);
    words.next().unwrap().parse().unwrap()
}

#[test]
fn the_plan_tells_the_epsilon_at_which_the_run_ends() {
    let place = Place::new();
    for (number, sets) in [
        &["privacy.epsilon=8"][..],
        &["privacy.noise=1.5", "work.epochs=2", "federation.sample={ poisson = 0.7 }"],
        &["privacy.epsilon=3", "privacy.relation=replace", "privacy.clipping=adaptive"],
        &["privacy.noise=2", "privacy.cap=1.5", "work.batch=4", "privacy.clipping=per_block"],
        &["privacy.epsilon=4", "method.name=safl", "method.k=1"],
        &[
            "privacy.noise=2",
            "privacy.selection={ gaussian = { noise = 5.0 } }",
            "method.name=safl",
            "method.k=1",
            "method.profile_every=2",
        ],
        &["privacy.epsilon=4", "privacy.selection=public", "method.name=safl", "method.k=1"],
        &["privacy.noise=1", "method.name=centralised"],
        &["privacy.noise=1", "method.name=scaffold", "wire.encoding=int8"],
        &["privacy.noise=1", "method.name=fedfrozen", "method.warmup=1"],
        &["privacy.unit=client", "privacy.epsilon=8", "privacy.delta=1e-3"],
        &["privacy.unit=client", "privacy.noise=2", "federation.sample={ poisson = 0.5 }"],
        &["privacy.unit=client", "privacy.noise=2", "method.name=fedfrozen", "method.warmup=1"],
        &[
            "privacy.unit=client",
            "privacy.noise=2",
            "privacy.selection={ gaussian = { noise = 5.0 } }",
            "method.name=safl",
            "method.k=1",
            "method.profile_every=2",
            "federation.sample={ poisson = 0.2 }",
        ],
        &[
            "privacy.unit=client",
            "privacy.noise=2",
            "privacy.selection={ gaussian = { noise = 5.0 } }",
            "method.name=safl",
            "method.k=1",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        let out = format!("out-{number}");
        let plan = place.succeed(&with(&["plan", "tiny.toml"], sets));
        place.succeed(&with(&["run", "tiny.toml", "--quiet", "--out", &out], sets));
        let line = plan.lines().find(|line| line.starts_with("privacy ")).unwrap();
        let found = place.summary(&out)["privacy"]["epsilon"].as_f64().unwrap();
        let planned = after(line, "epsilon");
        assert!((0.0..=1.001e-3).contains(&(planned - found)), "{sets:?}: {line}, found {found}");
        let bytes = &place.summary(&out)["bytes"]["up"];
        let line = plan.lines().find(|found| found.starts_with("bytes up ")).unwrap();
        let foreseen = line.split_whitespace().nth(2).unwrap().replace(',', "");
        assert_eq!(foreseen, bytes.to_string(), "{sets:?}: {line}");
    }
}

#[test]
fn a_private_run_says_what_it_spent_and_nothing_that_clients_examples_say() {
    let place = Place::new();
    let sets = ["privacy.epsilon=8", "evaluate.every=1"];
    let heard = place.succeed_and_hear(&with(&["run", "tiny.toml", "--out", "out"], &sets));
    assert!(heard.contains("epsilon") && heard.contains("example-level"), "{heard}");
    assert!(!heard.contains("loss"), "{heard}");
    let summary = place.summary("out");
    assert!(summary["scores"].get("client_test").is_none(), "{}", summary["scores"]);
    assert!(summary.get("baseline").is_none());
    let rounds = rounds_without_times(&place.path("out"));
    for round in &rounds {
        assert_eq!(round["loss"], Value::Null);
        let layers = round["privacy"]["layers"].as_array().unwrap();
        assert_eq!(layers.len(), 4, "embedding, two blocks, head");
    }
    let told = place.succeed(&["account", "ledger", "out"]);
    for expected in
        ["example gradients", "signal-to-noise ratio", "block.1", "Not covered: which clients take"]
    {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert!(told.contains("This was a simulation"), "{told}");
    let json: Value =
        serde_json::from_str(&place.succeed(&["account", "ledger", "out", "--json"])).unwrap();
    assert_eq!(json["pld"], summary["privacy"]["epsilon"]);
    assert_eq!(json["events"], 9);

    // With scores of clients they are there, and the statement has always said that they are not covered.
    let sets = ["privacy.epsilon=8", "privacy.client_scores=true"];
    place.succeed(&with(&["run", "tiny.toml", "--quiet", "--out", "scored"], &sets));
    assert!(place.summary("scored")["scores"].get("client_test").is_some());
    let of_clients = ["privacy.unit=client", "privacy.noise=1", "privacy.client_scores=true"];
    place.succeed(&with(&["run", "tiny.toml", "--quiet", "--out", "open"], &of_clients));
    assert_eq!(place.summary("open")["privacy"]["epsilon"], Value::Null);
}

#[test]
fn what_no_guarantee_covers_is_refused_with_the_reason() {
    let place = Place::new();
    for (sets, expected) in [
        ("privacy.clip=1", "privacy.epsilon is missing, expected a budget such as 8.0"),
        ("privacy.epsilon=0", "privacy.epsilon: found 0, expected"),
        ("privacy.epsilon=-1", "privacy.epsilon: found -1, expected"),
        ("privacy.noise=0", "privacy.noise: found 0, expected"),
        ("privacy.noise=1\nprivacy.delta=0", "privacy.delta: found 0, expected"),
        ("privacy.noise=1\nprivacy.delta=0.5", "privacy.delta: found 0.5, expected below one of"),
        (
            "privacy.noise=1\nprivacy.delta=0.4\nprivacy.rows=10",
            "privacy.delta: found 0.4, expected below one of the 30 examples that privacy.rows declares",
        ),
        (
            "privacy.noise=1\nprivacy.rows=0",
            "privacy.rows: found 0, expected a whole number from 1",
        ),
        ("privacy.noise=1\nprivacy.delta=1e-308", "privacy.delta: found 1e-308, expected a"),
        (
            "privacy.noise=1\nprivacy.unit=client\nprivacy.delta=0.4",
            "privacy.delta: found 0.4, expected below one of the 3 clients",
        ),
        ("privacy.noise=1\nprivacy.clip=0", "privacy.clip: found 0, expected a norm from 1e-6"),
        ("privacy.noise=1\nprivacy.clip=1e-320", "privacy.clip: found 1e-320, expected a norm"),
        (
            "privacy.unit=client\nprivacy.noise=1\nprivacy.clip=1e30",
            "privacy.clip: found 1e30, expected a norm from 1e-6 to 1e6",
        ),
        (
            "privacy.unit=client\nprivacy.noise=1\nconditions.close_with=2",
            "conditions.close_with: found 2 with privacy.unit = \"client\", expected no such key",
        ),
        (
            "privacy.unit=client\nprivacy.noise=1\nfederation.min_arrivals=2",
            "federation.min_arrivals: found 2, expected 0",
        ),
        (
            "privacy.unit=client\nprivacy.noise=1\nmethod.name=fedfrozen\nmethod.warmup=adaptive",
            "method.warmup: found [privacy] with fedfrozen, where the round of freezing",
        ),
        (
            "privacy.unit=client\nprivacy.noise=1\nmethod.name=safl\n\
             method.base={ name = \"scaffold\" }",
            "method.base.name: found [privacy] with safl, where a second sum of clients",
        ),
        ("privacy.noise=1\nprivacy.cap=0.5", "privacy.cap: found 0.5, expected at least 1"),
        ("privacy.noise=1\nprivacy.unit=patient", "privacy.unit"),
        ("privacy.noise=1\nprivacy.sigma=1", "privacy.sigma"),
        ("privacy.noise=1\nevaluate.attention=true", "evaluate.attention reveals"),
        (
            "privacy.noise=1\nevaluate.best=true",
            "evaluate.best applies only with privacy.client_scores",
        ),
        ("privacy.noise=1\nprivacy.public=\"rows.jsonl\"", "privacy.public applies only with"),
        (
            "privacy.noise=1\nmethod.name=safl\nmethod.prune={ heads = 0.5 }",
            "the choice of heads depends on what clients measured",
        ),
        (
            "privacy.noise=1\nmethod.name=safl\nmethod.mask=per_client",
            "method.mask: found \"per_client\" with [privacy], expected \"consensus\"",
        ),
        (
            "privacy.noise=1\nmethod.name=safl\nmethod.selector=disagreement",
            "method.selector: found a ranking other than",
        ),
        (
            "privacy.noise=1\nmethod.name=safl\nmethod.selector=gradient_norm\n\
             privacy.selection={ gaussian = { noise = 5.0 } }",
            "method.selector: found a norm of gradients with [privacy]",
        ),
        (
            "privacy.epsilon=1\nmethod.name=safl\nprivacy.selection=private_unaccounted",
            "privacy.selection: found \"private_unaccounted\" with privacy.epsilon",
        ),
        (
            "privacy.epsilon=1\nprivacy.unit=client\nprivacy.client_scores=true",
            "privacy.client_scores: found true with privacy.epsilon",
        ),
        ("privacy.unit=client\nprivacy.noise=1\nmethod.name=scaffold", "control variate"),
        ("privacy.unit=client\nprivacy.noise=1\nmethod.name=fednova", "after they are clipped"),
        (
            "privacy.unit=client\nprivacy.noise=1\nfederation.sample={ uniform = 2 }",
            "federation.sample: found { uniform = 2 } with [privacy]",
        ),
        ("privacy.unit=client\nprivacy.noise=1\nevaluate.drift=true", "evaluate.drift reveals"),
    ] {
        let sets: Vec<&str> = sets.lines().map(str::trim).collect();
        let output = place.fedra(&with(&["run", "tiny.toml", "--out", "never"], &sets));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(expected), "{sets:?}: {said}");
    }
    let sets = ["privacy.noise=1", "method.name=fedfrozen"];
    let refused = place.refused(&with(&["advise", "tiny.toml"], &sets));
    assert!(refused.contains("every pilot is a separate run"), "{refused}");
}

/// A run that stops because its budget is spent, and continues with no other ledger than its own.
#[test]
fn a_run_stops_before_the_round_that_its_budget_does_not_bear() {
    let place = Place::new();
    let sets = ["privacy.noise=1", "privacy.epsilon=100"];
    place.succeed(&with(&["run", "tiny.toml", "--quiet", "--out", "whole"], &sets));
    let rounds = rounds_without_times(&place.path("whole"));
    let epsilon = |round: usize| rounds[round]["privacy"]["epsilon"].as_f64().unwrap();
    let budget = format!("privacy.epsilon={}", f64::midpoint(epsilon(1), epsilon(2)));
    let sets = ["privacy.noise=1", &budget];
    let heard = place.succeed_and_hear(&with(&["run", "tiny.toml", "--out", "short"], &sets));
    assert!(heard.contains("warning: all rounds would bring epsilon to"), "{heard}");
    let why = "the next round would exceed privacy.epsilon";
    let said = |line: &str| line.starts_with("stopped early ") && line.ends_with(why);
    assert!(heard.lines().any(said), "{heard}");
    assert_eq!(rounds_without_times(&place.path("short")).len(), 2);
    assert_eq!(place.summary("short")["stopped"], "budget");
    assert_eq!(place.summary("short")["rounds"], 2);
    assert!(!place.weights("short").is_empty());

    // Whoever replaces it is told what stays spent.
    let over = with(&["run", "tiny.toml", "--out", "whole", "--force"], &["privacy.noise=2"]);
    let heard = place.succeed_and_hear(&over);
    let spent = fedra_privacy::shown::up(epsilon(rounds.len() - 1), 3);
    let told = format!("the epsilon of {spent} that it spent");
    assert!(heard.contains(&told), "{told}: {heard}");

    // Nobody continues with a ledger that somebody shortened.
    let summary = fs::read(place.path("short").join("summary.json")).unwrap();
    fs::remove_file(place.path("short").join("summary.json")).unwrap();
    let ledger = place.path("short").join("ledger.jsonl");
    let good = fs::read_to_string(&ledger).unwrap();
    let lines: Vec<&str> = good.lines().collect();
    fs::write(&ledger, lines[..3].join("\n")).unwrap();
    let output = place.fedra(&["run", "--resume", "short"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("shortened"), "{said}");
    // Nor does it pass for the whole where it is only looked at.
    let looked = place.fedra(&["account", "ledger", "short"]);
    let said = String::from_utf8(looked.stderr).unwrap();
    assert!(!looked.status.success() && said.contains("shortened"), "{said}");
    // Without its end it is held against the checkpoint; without that, against the summary.
    let folder = place.path("short");
    fs::remove_file(folder.join("ledger.end")).unwrap();
    place.refused(&["account", "ledger", "short"]);
    place.refused(&["run", "--resume", "short"]);
    fs::write(folder.join("summary.json"), &summary).unwrap();
    place.refused(&["run", "--resume", "short"]);
    fs::remove_file(folder.join("checkpoint.fedra")).unwrap();
    let said = place.refused(&["account", "ledger", "short"]);
    assert!(said.contains("2 rounds in summary.json: the ledger was shortened"), "{said}");
    place.refused(&["run", "--resume", "short"]);
    fs::write(&ledger, &good).unwrap();
    place.succeed(&["run", "--resume", "short"]);
    let told = place.succeed_and_hear(&["account", "ledger", "short"]);
    assert!(told.contains("the removal of entries after the last complete round"), "{told}");
    fs::write(&ledger, good.replacen("\"noise\":1", "\"noise\":2", 1)).unwrap();
    assert!(!place.fedra(&["account", "ledger", "short"]).status.success());
}

#[test]
fn who_clips_at_far_too_large_a_norm_is_told_what_helps() {
    let place = Place::new();
    let sets = ["privacy.unit=client", "privacy.noise=1", "privacy.clip=1e6"];
    let output = place.fedra(&with(&["run", "tiny.toml", "--quiet", "--out", "far"], &sets));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("a lower privacy.clip"), "{said}");
}
