//! The best model on validation examples, and runs that stop early.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::place::{Place, rounds_without_times, text};

/// A rate at which scores go up and down.
const ROUGH: [&str; 7] = [
    "data.shares={ central = 0.2, validation = 0.2, test = 0.2 }",
    "work.optimiser.rate=0.05",
    "work.optimiser.weight_decay=0.0",
    "federation.rounds=12",
    "data.task=diagnosis",
    "work.epochs=2",
    "model.blocks=1",
];

fn sets<'s>(all: &[&'s str]) -> Vec<&'s str> {
    all.iter().flat_map(|set| ["--set", *set]).collect()
}

fn run(place: &Place, out: &str, more: &[&str]) {
    let rough = sets(&ROUGH);
    place.succeed(&[&["run", "tiny.toml", "--quiet", "--out", out], &rough[..], more].concat());
}

/// Score and loss on the validation examples in each round of a log.
fn validation(place: &Place, out: &str) -> Vec<(f64, f64)> {
    let score = |round: Value| {
        let sets = round["scores"].as_array().unwrap();
        let set = sets.iter().find(|set| set["on"] == "client_validation").unwrap();
        (set["mean"]["micro_f1"].as_f64().unwrap(), set["loss"].as_f64().unwrap())
    };
    rounds_without_times(&place.path(out)).into_iter().map(score).collect()
}

/// The first of the highest scores with the lowest loss.
fn first_best(scores: &[(f64, f64)]) -> usize {
    let best = |a: &&(f64, f64), b: &&(f64, f64)| b.0.total_cmp(&a.0).then(a.1.total_cmp(&b.1));
    let best = scores.iter().min_by(best).unwrap();
    scores.iter().position(|score| score == best).unwrap()
}

#[test]
fn the_model_of_the_best_round_is_kept_beside_the_last() {
    let place = Place::new();
    run(&place, "run", &[]);
    let scores = validation(&place, "run");
    let round = first_best(&scores);
    assert!(round + 1 < scores.len(), "the last round is the best: {scores:?}");
    let best = &place.summary("run")["best"];
    assert_eq!((&best["round"], &best["score"]), (&round.into(), &scores[round].0.into()));
    assert_eq!((&best["on"], &best["name"]), (&"client_validation".into(), &"micro_f1".into()));
    assert_eq!(best["model"], "model-best");
    // It is the model of a run that ends there.
    let rounds = format!("federation.rounds={}", round + 1);
    run(&place, "short", &["--set", &rounds]);
    let kept = fs::read(place.path("run/model-best/model.safetensors")).unwrap();
    assert_eq!(kept, place.weights("short"));
    assert_ne!(kept, place.weights("run"));
    for name in ["config.json", "tokenizer.json"] {
        assert!(place.path("run/model-best").join(name).is_file(), "{name}");
    }
}

#[test]
fn without_validation_examples_or_without_being_asked_nothing_is_kept() {
    let place = Place::new();
    place.succeed(&["run", "tiny.toml", "--quiet", "--out", "none"]);
    assert!(place.summary("none")["best"].is_null() && !place.path("none/model-best").exists());
    run(&place, "off", &["--set", "evaluate.best=false"]);
    assert!(place.summary("off")["best"].is_null() && !place.path("off/model-best").exists());
    // Following it changes no bit of the model, and the last score is the same.
    run(&place, "on", &[]);
    assert_eq!(place.weights("on"), place.weights("off"));
    assert_eq!(place.summary("on")["scores"], place.summary("off")["scores"]);
    // Where every client keeps all of its model, there is a best round and no model of it.
    run(&place, "alone", &["--set", "method.name=local-only"]);
    let best = &place.summary("alone")["best"];
    assert!(best["score"].is_f64() && best["model"].is_null(), "{best}");
    assert!(!place.path("alone/model-best").exists());
}

#[test]
fn a_run_that_gets_no_better_stops_and_resumes_to_the_same_end() {
    let place = Place::new();
    let patient = ["--set", "evaluate.patience=2", "--set", "federation.rounds=40"];
    run(&place, "whole", &patient);
    let (scores, summary) = (validation(&place, "whole"), place.summary("whole"));
    let round = first_best(&scores);
    assert!(scores.len() < 40, "it never stopped: {scores:?}");
    assert_eq!((scores.len(), &summary["rounds"]), (round + 3, &(round + 3).into()));
    assert_eq!(summary["stopped"]["patience"], 2);
    assert_eq!(summary["best"]["round"], round);
    let output = place.fedra(&["run", "--resume", "whole"]);
    assert!(text(&output.stderr).contains("the run in whole is complete"));
    assert!(text(&output.stdout).contains("stopped early"), "{}", text(&output.stdout));

    // Round by round, each time in another process.
    let rough = sets(&ROUGH);
    let start = ["run", "tiny.toml", "--quiet", "--out", "parts"];
    place.succeed(&[&start[..], &rough, &patient, &["--set", "federation.rounds=1"]].concat());
    fs::copy(place.path("whole/experiment.toml"), place.path("parts/experiment.toml")).unwrap();
    fs::remove_file(place.path("parts/summary.json")).unwrap();
    for _ in 0..scores.len() {
        if place.path("parts/summary.json").exists() {
            break;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
        command.current_dir(place.folder.path()).stdin(Stdio::null());
        let output = command.args(["run", "--leash", "1", "--resume", "parts"]).output().unwrap();
        let status = output.status.code();
        assert!([Some(0), Some(130)].contains(&status), "{}", text(&output.stderr));
    }
    place.succeed(&["run", "--resume", "parts", "--quiet"]);
    let again = place.summary("parts");
    for key in ["best", "stopped", "rounds", "scores", "bytes"] {
        assert_eq!(again[key], summary[key], "{key}");
    }
    assert_eq!(place.weights("parts"), place.weights("whole"));
    let best = |run: &str| fs::read(place.path(run).join("model-best/model.safetensors")).unwrap();
    assert_eq!(best("parts"), best("whole"));
}

#[test]
fn a_best_model_that_was_taken_away_is_missed_aloud() {
    let place = Place::new();
    run(&place, "run", &[]);
    let round = first_best(&validation(&place, "run"));
    fs::write(place.path("run/model-best/model.safetensors"), "edited").unwrap();
    fs::remove_file(place.path("run/summary.json")).unwrap();
    let output = place.fedra(&["run", "--resume", "run"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let expected = format!("warning: the model of round {}, the best on validation", round + 1);
    assert!(said.contains(&expected), "{said}");
    assert!(place.summary("run")["best"]["model"].is_null());
}
