//! `FedFrozen` from the command line: refusals, advice, adapters, and a run that was interrupted.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn fedra(folder: &Path, arguments: &[&str], sets: &[&str]) -> Output {
    fs::write(folder.join("tiny.toml"), include_str!("../../fedra/tests/tiny.toml")).unwrap();
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
    command.current_dir(folder).args(arguments).args(sets).output().unwrap()
}

#[track_caller]
fn succeed(folder: &Path, arguments: &[&str], sets: &[&str]) -> String {
    let output = fedra(folder, arguments, sets);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?} {sets:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn weights(folder: &Path, run: &str) -> Vec<u8> {
    fs::read(folder.join(run).join("model/model.safetensors")).unwrap()
}

fn rounds(folder: &Path, run: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.join(run).join("rounds.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn bad_settings_are_refused_by_key_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    for (sets, expected) in [
        (&["method.warmup=1.5"][..], "method.warmup: found 1.5, expected a number of rounds"),
        (&["method.warmup=soon"], "method.warmup: found \"soon\", expected"),
        (&["method.stage2=tight"], "method.stage2: found \"tight\""),
        (&["method.qk_rate=2"], "method.qk_rate: found 2"),
        (&["method.freeze=head"], "method.freeze: found \"head\""),
        (&["method.warm=3"], "method.warm: unknown key"),
        (&["method.base={ name = \"local-only\" }"], "method.base: found \"local-only\""),
        (&["method.base={ name = \"fedprox\", nu = 1 }"], "method.base.nu: unknown key"),
        (&["method.base={ name = \"fedprox\", mu = -1.0 }"], "method.base.mu: found -1"),
        (&["method.patience=3"], "method.patience: found 3"),
        (&["model.lora={ roles = [\"value\"] }"], "`method.freeze` is a part without learning"),
    ] {
        let sets: Vec<&str> = ["method.name=fedfrozen"].iter().chain(sets).copied().collect();
        let output = fedra(folder.path(), &["run", "tiny.toml"], &sets);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{sets:?}: {message}");
        assert!(message.contains(expected), "{sets:?}: {message}");
        assert!(!folder.path().join("runs").exists(), "{sets:?} wrote something");
    }
}

#[test]
fn a_warm_up_of_all_rounds_is_fedavg_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let run = |out: &str, sets: &[&str]| {
        succeed(folder.path(), &["run", "tiny.toml", "--quiet", "--out", out], sets);
        weights(folder.path(), out)
    };
    let frozen = run("frozen", &["method.name=fedfrozen", "method.warmup=3"]);
    assert_eq!(frozen, run("plain", &["method.name=fedavg"]));
    assert_ne!(frozen, run("early", &["method.name=fedfrozen", "method.warmup=1"]));
}

#[test]
fn over_safl_a_warm_up_of_all_rounds_is_safl_to_the_byte_and_none_leaves_the_kernel_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let run = |out: &str, sets: &[&str]| {
        succeed(path, &["run", "tiny.toml", "--quiet", "--out", out], sets);
        weights(path, out)
    };
    let safl = run("safl", &["method={ name = \"safl\", k = 1, embeddings = \"learn\" }"]);
    let over = |warmup: u32| {
        let base = "{ name = \"safl\", k = 1, embeddings = \"learn\" }";
        format!("method={{ name = \"fedfrozen\", warmup = {warmup}, base = {base} }}")
    };
    for warmup in [3, 50] {
        let out = format!("frozen-{warmup}");
        assert_eq!(run(&out, &[&over(warmup)]), safl);
        let told = |run: &str| -> Vec<Value> {
            let part = |report: Value| serde_json::json!([report["bytes"], report["selection"]]);
            rounds(path, run).into_iter().map(part).collect()
        };
        assert_eq!(told(&out), told("safl"));
    }
    // The plan has a row for each site in each of the two stages.
    let plan = succeed(path, &["plan", "tiny.toml"], &[&over(1)]);
    let heads: Vec<&str> = plan.lines().filter(|line| line.starts_with("all ")).collect();
    assert_eq!(heads.len(), 2, "{plan}");
    assert!(heads[0].trim_end().ends_with(" 1") && heads[1].trim_end().ends_with(" 2"), "{plan}");
    let still = ["federation.rounds=1", "work.optimiser={ name = \"sgd\", rate = 0.0 }"];
    let first = run("first", &still);
    let changed = differing(&run("at-once", &[&over(0)]), &first);
    assert!(changed.iter().any(|name| name.contains("value")), "{changed:?}");
    assert!(!changed.iter().any(|name| name.contains("query") || name.contains("key")));
    assert!(differing(&safl, &first).iter().any(|name| name.contains("query")));
}

#[test]
fn an_adaptive_switch_is_reported_and_survives_a_resume() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let sets = [
        "method.name=fedfrozen",
        "method.warmup=adaptive",
        "method.plateau=1.0",
        "method.patience=1",
        "federation.rounds=5",
    ];
    succeed(path, &["run", "tiny.toml", "--quiet", "--out", "whole"], &sets);
    // The norm has changed by less than itself after the second round: the third is frozen.
    let stage = |report: &Value| report["stage"]["since"].clone();
    let expected = [Value::Null, 2.into(), 2.into(), 2.into(), 2.into()];
    let whole = rounds(path, "whole");
    assert_eq!(whole.iter().map(stage).collect::<Vec<_>>(), expected);
    let measured = |report: &Value| report["drift"]["roles"]["query_key"].is_object();
    let expected = [true, true, false, false, false];
    assert_eq!(whole.iter().map(measured).collect::<Vec<_>>(), expected);

    for stop in ["1", "2", "3"] {
        let rounds = format!("federation.rounds={stop}");
        let short: Vec<&str> = sets[..4].iter().copied().chain([rounds.as_str()]).collect();
        succeed(path, &["run", "tiny.toml", "--quiet", "--out", stop], &short);
        let file = fs::read_to_string(path.join("whole/experiment.toml")).unwrap();
        fs::write(path.join(stop).join("experiment.toml"), file).unwrap();
        fs::remove_file(path.join(stop).join("summary.json")).unwrap();
        succeed(path, &["run", "--resume", stop, "--quiet"], &[]);
        assert_eq!(weights(path, stop), weights(path, "whole"), "stopped after {stop}");
    }
}

const VALIDATING: &str = "data.shares={ central = 0.2, validation = 0.3, test = 0.0 }";

#[test]
fn advice_needs_validation_examples_and_sensible_flags() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |flags: &[&str], sets: &[&str], expected: &str| {
        let arguments: Vec<&str> = ["advise", "tiny.toml"].iter().chain(flags).copied().collect();
        let output = fedra(folder.path(), &arguments, sets);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {message}");
        assert!(message.contains(expected), "{flags:?}: {message}");
    };
    refused(&[], &[], "data.shares.validation: found no validation");
    refused(&["--rounds", "4"], &[VALIDATING], "--rounds: found 4, expected from 2 to the 3");
    refused(&["--warmups", "1,3"], &[VALIDATING], "--warmups: found 3, expected below 3");
    refused(&["--tolerance=-1"], &[VALIDATING], "--tolerance: found -1");
    refused(&[], &[VALIDATING, "method.name=centralised"], "method.base: found \"centralised\"");
}

#[test]
fn a_branch_of_the_advisor_scores_as_the_run_with_that_warm_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let sets = [VALIDATING, "federation.rounds=4", "work.optimiser.rate=0.01"];
    let advise = ["advise", "tiny.toml", "--quiet", "--json", "--warmups", "0,2"];
    let told: Value = serde_json::from_str(&succeed(path, &advise, &sets)).unwrap();
    assert!(!path.join("runs").exists(), "advice writes nothing");
    let run = |warmup: &str| {
        let warmup = format!("method.warmup={warmup}");
        let own: Vec<&str> =
            sets.iter().copied().chain(["method.name=fedfrozen", warmup.as_str()]).collect();
        succeed(path, &["run", "tiny.toml", "--quiet", "--out", &warmup], &own);
        let text = fs::read_to_string(path.join(&warmup).join("summary.json")).unwrap();
        let summary: Value = serde_json::from_str(&text).unwrap();
        let bytes = ["up", "down"].map(|way| summary["bytes"][way].as_u64().unwrap());
        let score = summary["scores"]["client_validation"]["span_f1"].as_f64().unwrap();
        (score, bytes.iter().sum::<u64>())
    };
    let near = |found: &Value, expected: f64| {
        assert!((found.as_f64().unwrap() - expected).abs() < 1e-12, "{found} {expected}\n{told}");
    };
    let (never, everything) = run("4");
    near(&told["never"]["scores"]["4"], never);
    assert_eq!(told["never"]["bytes"], everything);
    for (place, warmup) in ["0", "2"].into_iter().enumerate() {
        let candidate = &told["candidates"][place];
        let (score, bytes) = run(warmup);
        assert_eq!(candidate["bytes_saved"], everything - bytes);
        // One that was given up half-way has no last score.
        if candidate["end"] == "horizon" {
            near(&candidate["scores"]["4"], score);
        }
    }
    // From no round, and from the second: at most four and two rounds beside the trunk's four.
    assert!(told["trained"].as_u64().unwrap() <= 10);
    assert_eq!(told["kernels"].as_array().unwrap().len(), 5);
}

#[test]
fn advice_is_about_the_method_beneath_and_says_how_to_follow_it() {
    let folder = tempfile::tempdir().unwrap();
    let advise = |sets: &[&str]| {
        let sets: Vec<&str> =
            [VALIDATING, "federation.rounds=4"].iter().chain(sets).copied().collect();
        succeed(folder.path(), &["advise", "tiny.toml", "--rounds", "2"], &sets)
    };
    let line = |told: &str, start: &str| {
        told.lines().find(|line| line.starts_with(start)).unwrap().to_owned()
    };
    let plain = advise(&[]);
    let frozen = advise(&["method.name=fedfrozen", "method.warmup=adaptive", "method.plateau=0.2"]);
    let tables = |told: &str| told.split("use it with").next().unwrap().to_owned();
    assert_eq!(tables(&plain), tables(&frozen));
    assert!(plain.starts_with("span_f1 on the clients' validation examples after 2 of 4 rounds"));
    // Three small hospitals cannot tell such models apart; then nothing is to be frozen.
    assert!(line(&plain, "proposed warm-up").contains("never"), "{plain}");
    assert!(line(&plain, "use it with").contains("the file as it is"), "{plain}");
    assert!(line(&frozen, "use it with").contains("--set method.warmup=4"), "{frozen}");
}

#[test]
fn where_the_trunk_gained_nothing_no_kernel_has_a_share_of_it() {
    let folder = tempfile::tempdir().unwrap();
    // Steps that only do harm, and other kernels that do more or less of it.
    let sets = [VALIDATING, "work.optimiser.rate=3.0"];
    let told = succeed(folder.path(), &["advise", "tiny.toml", "--quiet"], &sets);
    let (_, kernels) = told.split_once("query and key on the trunk").unwrap();
    let rows: Vec<Vec<&str>> =
        kernels.lines().skip(2).take(4).map(|row| row.split_whitespace().collect()).collect();
    let place = kernels.lines().nth(1).unwrap().split_whitespace().position(|name| name == "bias");
    let bias: Vec<&str> = rows.iter().map(|row| row[place.unwrap()]).collect();
    assert_eq!(bias, ["-"; 4], "{told}");
}

#[test]
fn advice_is_the_same_whatever_the_test_labels_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let row = |number: usize, label: usize| {
        let words = ["fever and cough", "broken left arm", "sore throat"];
        let text = format!("{} seen on day {}", words[number % 3], number % 7);
        format!(
            "{{\"text\":\"{text}\",\"label\":\"kind-{label}\",\"client\":\"c{}\"}}\n",
            number % 4
        )
    };
    let rows = |count: usize, shift: usize| -> String {
        (0..count).map(|number| row(number, (number + shift) % 3)).collect()
    };
    fs::write(path.join("train.jsonl"), rows(96, 0)).unwrap();
    let experiment = "seed = 5\n[data]\nsource = \"jsonl\"\ntask = \"classes\"\n\
        path = \"train.jsonl\"\nTEST\nshares = { central = 0.0, validation = 0.3, test = 0.0 }\n\
        [model]\npreset = \"tiny-encoder\"\nblocks = 2\nwidth = 16\nheads = 2\n\
        [federation]\nrounds = 4\n[work]\nbatch = 8\n";
    let mut told = Vec::new();
    for (key, labels) in [("test = \"test.jsonl\"", 0), ("test = \"test.jsonl\"", 1), ("", 0)] {
        fs::write(path.join("test.jsonl"), rows(30, labels)).unwrap();
        fs::write(path.join("kinds.toml"), experiment.replace("TEST", key)).unwrap();
        told.push(succeed(path, &["advise", "kinds.toml", "--quiet", "--json"], &[]));
    }
    assert_eq!(told[0], told[1], "other labels");
    assert_eq!(told[0], told[2], "no test set");
    let advice: Value = serde_json::from_str(&told[0]).unwrap();
    assert_eq!(advice["score"], "macro_f1");
}

#[test]
fn adapters_learn_travel_and_are_merged_into_the_saved_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let lora = "model.lora={ rank = 2, alpha = 4.0, roles = [\"query\", \"key\", \"value\"] }";
    let plan = succeed(path, &["plan", "tiny.toml"], &[lora]);
    let row = |site: &str| {
        let line = plan.lines().find(|line| line.starts_with(site)).unwrap();
        line.split_whitespace().map(|cell| cell.replace(',', "")).collect::<Vec<_>>()
    };
    // Three adapters of rank 2 on squares of width 16 in each of two blocks.
    assert_eq!((row("embedding")[2].as_str(), row("block.0")[2].as_str()), ("0", "192"));
    assert_eq!(row("head")[2], row("head")[1]);

    succeed(path, &["run", "tiny.toml", "--quiet", "--out", "lora"], &[lora]);
    let none = ["federation.rounds=1", "work.optimiser={ name = \"sgd\", rate = 0.0 }"];
    succeed(path, &["run", "tiny.toml", "--quiet", "--out", "first"], &none);
    // The saved folder is an ordinary model: as long as one without adapters, and another.
    let (adapted, first) = (weights(path, "lora"), weights(path, "first"));
    assert_eq!(adapted.len(), first.len());
    assert_ne!(adapted, first);
    // With query and key frozen from the start, their adapters stay zero: only value differs.
    let frozen = [lora, "method.name=fedfrozen", "method.warmup=0"];
    succeed(path, &["run", "tiny.toml", "--quiet", "--out", "frozen"], &frozen);
    let changed = |left: &[u8], right: &[u8]| differing(left, right);
    let (all, value) = (changed(&adapted, &first), changed(&weights(path, "frozen"), &first));
    assert!(all.iter().any(|name| name.contains("query")), "{all:?}");
    assert!(value.iter().any(|name| name.contains("value")), "{value:?}");
    assert!(!value.iter().any(|name| name.contains("query") || name.contains("key")), "{value:?}");
}

/// The names of the tensors that differ between two safetensors files of one shape.
fn differing(left: &[u8], right: &[u8]) -> Vec<String> {
    let (head, start) = header(left);
    let (_, other) = header(right);
    let mut names = Vec::new();
    for (name, entry) in head.as_object().unwrap() {
        let Some(span) = entry["data_offsets"].as_array() else { continue };
        let [from, to] = [0, 1].map(|at| usize::try_from(span[at].as_u64().unwrap()).unwrap());
        if left[start + from..start + to] != right[other + from..other + to] {
            names.push(name.clone());
        }
    }
    names
}

fn header(bytes: &[u8]) -> (Value, usize) {
    let length = u64::from_le_bytes(*bytes.first_chunk().unwrap());
    let end = 8 + usize::try_from(length).unwrap();
    (serde_json::from_slice(&bytes[8..end]).unwrap(), end)
}
