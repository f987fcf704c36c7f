//! `fedra run`: files, resuming, repeating, and the experiments of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::{Place, rounds_without_times, text};

#[test]
fn a_run_leaves_the_documented_files() {
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

#[test]
fn moments_and_dropout_of_a_resumed_run_go_on_where_they_were() {
    let place = Place::new();
    let sets = ["work.moments=kept", "work.dropout=0.1", "work.batch=4", "work.accumulate=2"];
    let sets: Vec<&str> = sets.into_iter().flat_map(|set| ["--set", set]).collect();
    let run = |out, more: &[&str]| {
        place.succeed(&[&["run", "tiny.toml", "--quiet", "--out", out], &sets[..], more].concat());
    };
    run("whole", &[]);
    run("parts", &["--set", "federation.rounds=1"]);
    let whole = fs::read_to_string(place.path("whole/experiment.toml")).unwrap();
    fs::write(place.path("parts/experiment.toml"), whole).unwrap();
    fs::remove_file(place.path("parts/summary.json")).unwrap();
    place.succeed(&["run", "--resume", "parts", "--quiet"]);
    assert_eq!(place.weights("parts"), place.weights("whole"));
    run("fresh", &["--set", "work.moments=fresh"]);
    assert_ne!(place.weights("fresh"), place.weights("whole"));
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
    assert!(text(&output.stderr).contains("resume with: fedra run --resume parts"));
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
fn quiet_says_nothing() {
    let place = Place::new();
    let output = place.fedra(&["run", "tiny.toml", "--quiet", "--set", "federation.rounds=1"]);
    assert_eq!((text(&output.stdout), text(&output.stderr)), (String::new(), String::new()));
    assert!(place.path("runs/tiny/summary.json").is_file());
}

/// A decoder from a folder, with its own tokenizer, on text without labels and with classes.
#[test]
fn a_llama_folder_learns_language_and_classes() {
    let place = Place::new();
    place.save_decoder("Once upon a time, Lily was happy. Tom was sad. The end number 0.");
    let mut rows = String::new();
    for row in 0..40 {
        let (label, who) = [("joy", "Lily was happy"), ("woe", "Tom was sad")][row % 2];
        let text = format!("Once upon a time, {who}. The end number {row}.");
        let client = format!("home-{}", row % 4);
        let line = serde_json::json!({ "text": text, "label": label, "client": client });
        rows.extend([line.to_string().as_str(), "\n"]);
    }
    fs::write(place.path("rows.jsonl"), rows).unwrap();
    let experiment = "[data]\nsource = 'jsonl'\ntask = 'language'\npath = 'rows.jsonl'\nmax_tokens = 48\n\
         [model]\npath = 'decoder'\n[federation]\nrounds = 3\n\
         [work]\nbatch = 4\noptimiser = { name = 'adamw', rate = 1e-2 }\n";
    fs::write(place.path("language.toml"), experiment).unwrap();
    place.succeed(&["run", "language.toml", "--quiet"]);
    let losses: Vec<f64> = rounds_without_times(&place.path("runs/language"))
        .iter()
        .map(|round| round["scores"][0]["loss"].as_f64().unwrap())
        .collect();
    assert!(losses[2] < losses[0] - 0.1, "{losses:?}");
    let saved = fs::read(place.path("runs/language/model/tokenizer.json")).unwrap();
    assert_eq!(saved, fs::read(place.path("decoder/tokenizer.json")).unwrap());

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
        let written = fs::read_to_string(&file).unwrap();
        if written.contains("synthetic-clinic") {
            // Fewer notes are read sooner.
            let notes = if written.contains("clients = 1000") { 1200 } else { 200 };
            command.arg("--set").arg(format!("data.clinic.notes={notes}"));
        }
        let output = command.output().unwrap();
        // Real data are not here; that they are missing is the last thing to be found wrong.
        let missing = text(&output.stderr).contains("there is no file or folder");
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
