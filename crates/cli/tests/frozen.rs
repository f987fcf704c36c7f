//! `FedFrozen` from the command line: refusals, advice, adapters, and a run that was interrupted.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn fedra(folder: &Path, arguments: &[&str], sets: &[&str]) -> Output {
    fs::write(folder.join("tiny.toml"), include_str!("tiny.toml")).unwrap();
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
        (&["method.warmup=soon"], "method.warmup: found \"soon\""),
        (&["method.stage2=tight"], "method.stage2: found \"tight\""),
        (&["method.qk_rate=2"], "method.qk_rate: found 2"),
        (&["method.freeze=head"], "method.freeze: found \"head\""),
        (&["method.warm=3"], "method.warm: found an unknown key"),
        (&["method.base={ name = \"local-only\" }"], "method.base: found \"local-only\""),
        (&["method.base={ name = \"fedprox\", nu = 1 }"], "method.base.nu: found an unknown key"),
        (&["method.base={ name = \"fedprox\", mu = -1.0 }"], "method.base.mu: found -1"),
        (&["method.patience=3"], "method.patience: found 3"),
        (&["model.lora={ roles = [\"value\"] }"], "`method.freeze` is a part of which nothing"),
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

#[test]
fn advice_looks_at_validation_examples_and_proposes_a_number_of_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let advise = ["plan", "tiny.toml", "--advise"];
    let refused = fedra(folder.path(), &advise, &[]);
    let message = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("data.shares.validation: found no validation"), "{message}");

    let shares = "data.shares={ central = 0.2, validation = 0.3, test = 0.0 }";
    let rows = |sets: &[&str]| {
        let told = succeed(folder.path(), &advise, sets);
        let line = told.lines().find(|line| line.starts_with("proposed warm-up")).unwrap();
        let warmup: u32 = line.split_whitespace().nth(2).unwrap().parse().unwrap();
        assert!(warmup <= 4, "{told}");
        assert!(told.contains(&format!("--set method.warmup={warmup}")), "{told}");
        told
    };
    let told = rows(&[shares, "federation.rounds=8"]);
    // The pilot takes half of the rounds; a row for each warm-up from 0 to 4.
    assert_eq!(told.lines().take_while(|line| !line.is_empty()).count(), 6);
    // It is about the method beneath, whether the file says so or not.
    assert_eq!(told, rows(&[shares, "federation.rounds=8", "method.name=fedfrozen"]));
    assert!(!folder.path().join("runs").exists());
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
