//! A run's folder tells the truth: the log belongs to the checkpoint, the data and the weights to the
//! run, and the folder to one process.

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use crate::place::{Place, rounds_without_times, text};

/// A run of two rounds whose experiment now asks for four.
fn half(place: &Place, out: &str) {
    let two = ["--set", "federation.rounds=2", "--out", out, "--quiet"];
    place.succeed(&[&["run", "tiny.toml"], &two[..]].concat());
    let file = place.path(out).join("experiment.toml");
    let experiment = fs::read_to_string(&file).unwrap();
    fs::write(&file, experiment.replace("rounds = 2\n", "rounds = 4\n")).unwrap();
    fs::remove_file(place.path(out).join("summary.json")).unwrap();
}

#[track_caller]
fn refused(output: &Output, expected: &str) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_log_that_is_not_the_checkpoints_never_becomes_a_summary() {
    let place = Place::new();
    let four = ["run", "tiny.toml", "--quiet", "--out", "whole", "--set", "federation.rounds=4"];
    place.succeed(&four);
    half(&place, "parts");
    let log = place.path("parts/rounds.jsonl");
    let right = fs::read_to_string(&log).unwrap();
    let first = right.lines().next().unwrap();
    for (wrong, expected) in [
        (Some(String::new()), "found 0 whole lines, expected the log of the 2 rounds"),
        (Some(format!("{first}\n")), "found 1 whole line, expected the log of the 2 rounds"),
        (Some(right[..right.len() - 9].to_owned()), "found 1 whole line"),
        (Some(right.replacen("\"cohort\":[0,", "\"cohort\":[1,", 1)), "lines were changed"),
        (Some(format!("{first}\n{first}\n")), "lines were changed"),
        (None, "found no log, expected the log of the 2 rounds"),
    ] {
        match &wrong {
            Some(wrong) => fs::write(&log, wrong).unwrap(),
            None => fs::remove_file(&log).unwrap(),
        }
        refused(&place.fedra(&["run", "--resume", "parts"]), expected);
        assert!(!place.path("parts/summary.json").exists());
        assert_eq!(fs::read_to_string(&log).ok(), wrong, "it was not touched");
    }
    // Rounds that no checkpoint holds are run again.
    fs::write(&log, format!("{right}{first}\n{{\"round\"")).unwrap();
    place.succeed(&["run", "--resume", "parts", "--quiet"]);
    let rounds = |run: &str| rounds_without_times(&place.path(run));
    assert_eq!(rounds("parts"), rounds("whole"));
    assert_eq!(place.weights("parts"), place.weights("whole"));
    for key in ["score", "scores", "bytes", "rounds", "inputs", "log"] {
        assert_eq!(place.summary("parts")[key], place.summary("whole")[key], "{key}");
    }
}

#[test]
fn a_log_of_several_rounds_without_their_checkpoint_is_not_begun_anew() {
    let place = Place::new();
    half(&place, "parts");
    fs::remove_file(place.path("parts/checkpoint.fedra")).unwrap();
    let log = place.path("parts/rounds.jsonl");
    let before = fs::read(&log).unwrap();
    let found = "the log has more than one round, but the checkpoint is missing";
    refused(&place.fedra(&["run", "--resume", "parts"]), found);
    assert_eq!(fs::read(&log).unwrap(), before, "it was not touched");
    // A run that was killed before its first checkpoint has one line at most, and begins again.
    let first = before.split_inclusive(|byte| *byte == b'\n').next().unwrap();
    fs::write(&log, first).unwrap();
    place.succeed(&["run", "--resume", "parts", "--quiet"]);
    assert!(place.path("parts/summary.json").exists());
}

#[test]
fn a_refused_resume_leaves_the_summary_of_fewer_rounds() {
    let place = Place::new();
    half(&place, "parts");
    fs::write(place.path("parts/summary.json"), "{}").unwrap();
    let file = place.path("parts/rounds.jsonl");
    fs::remove_file(&file).unwrap();
    let output = place.fedra(&["run", "--resume", "parts"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(place.path("parts/summary.json").exists());
}

#[test]
fn resuming_another_experiment_names_the_key_that_differs() {
    let place = Place::new();
    half(&place, "parts");
    let file = place.path("parts/experiment.toml");
    let right = fs::read_to_string(&file).unwrap();
    for (from, to, expected) in [
        ("batch = 8", "batch = 4", "`work.batch` is 8 there and 4 in the experiment"),
        ("sample = \"all\"", "sample = { uniform = 2 }", "`federation.sample` is \"all\" there"),
        ("name = \"fedavg\"", "name = \"fednova\"", "`method.name` is \"fedavg\" there and"),
        ("encoding = \"f32\"", "encoding = \"f16\"", "`wire.encoding` is"),
        ("every = 1", "every = 2", "`evaluate.every` is 1 there and 2 in the experiment"),
        ("rate = 0.001", "rate = 0.002", "`work.optimiser.rate` is 0.001 there and 0.002"),
        ("blocks = 2", "blocks = 1", "the checkpoint is for another model"),
    ] {
        assert!(right.contains(from), "{from}: {right}");
        fs::write(&file, right.replacen(from, to, 1)).unwrap();
        refused(&place.fedra(&["run", "--resume", "parts"]), expected);
    }
    // Another seed draws other notes.
    fs::write(&file, right.replacen("seed = 3", "seed = 4", 1)).unwrap();
    refused(&place.fedra(&["run", "--resume", "parts"]), "parts: found other rows (found ");
}

/// Twenty rows of two classes at two clients, and an experiment on them.
fn table(place: &Place, label: &dyn Fn(usize) -> &'static str) {
    let row = |number: usize| {
        let text = format!("note {number} of a patient who is {}", ["well", "ill"][number % 2]);
        let (label, client) = (label(number), format!("home-{}", number % 2));
        format!("{}\n", serde_json::json!({ "text": text, "label": label, "client": client }))
    };
    fs::write(place.path("rows.jsonl"), (0..20).map(row).collect::<String>()).unwrap();
    let experiment = include_str!("../../../fedra/tests/tiny.toml");
    let (_, rest) = experiment.split_once("[model]").unwrap();
    let data = "seed = 3\n[data]\nsource = 'jsonl'\ntask = 'classes'\npath = 'rows.jsonl'\n\
                max_tokens = 16\nshares = { central = 0.2, validation = 0.0, test = 0.2 }\n[model]";
    let rest = rest.replace("clients = 3", "clients = 2");
    fs::write(place.path("table.toml"), format!("{data}{rest}")).unwrap();
}

fn right(number: usize) -> &'static str {
    ["healthy", "sick"][number % 2]
}

fn wrong(number: usize) -> &'static str {
    ["sick", "healthy"][number % 2]
}

#[test]
fn changed_labels_end_a_run_and_a_moved_file_does_not() {
    let place = Place::new();
    table(&place, &right);
    let two = ["run", "table.toml", "--quiet", "--set", "federation.rounds=2", "--out", "run"];
    place.succeed(&two);
    let inputs = place.summary("run")["inputs"].clone();
    let written: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(place.path("run/inputs.json")).unwrap()).unwrap();
    assert_eq!(inputs, written);
    assert_eq!(inputs["labels"].as_str().unwrap().len(), 64);
    assert!(inputs["weights"].is_null());

    let file = place.path("run/experiment.toml");
    let experiment = fs::read_to_string(&file).unwrap().replace("rounds = 2\n", "rounds = 3\n");
    fs::write(&file, &experiment).unwrap();
    table(&place, &wrong);
    let output = place.fedra(&["run", "--resume", "run"]);
    refused(&output, ": found other labels (found ");
    let message = text(&output.stderr);
    let before = &inputs["labels"].as_str().unwrap()[..16];
    assert!(message.contains(&format!("expected {before}) than the run began")), "{message}");
    assert!(!message.contains("other rows") && message.contains("hint: "), "{message}");
    assert!(place.path("run/summary.json").exists());

    table(&place, &right);
    fs::rename(place.path("rows.jsonl"), place.path("moved.jsonl")).unwrap();
    fs::write(&file, experiment.replace("rows.jsonl", "moved.jsonl")).unwrap();
    place.succeed(&["run", "--resume", "run", "--quiet"]);
    assert_eq!(place.summary("run")["rounds"], 3);
}

#[test]
fn a_comparison_repeats_what_was_learned_from_other_data_and_says_so() {
    let place = Place::new();
    table(&place, &right);
    let compare = ["compare", "table.toml", "--seeds", "1", "--set", "federation.rounds=1"];
    let said = |arguments: &[&str]| {
        let output = place.fedra(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    said(&compare);
    assert!(said(&compare).contains("run: 1 run, 1 complete already"));
    table(&place, &wrong);
    let again = said(&compare);
    assert!(again.contains("table seed 3: its labels changed, so it runs again"), "{again}");
    assert!(again.contains("run: 1 run, 0 complete already"), "{again}");
    assert!(said(&compare).contains("run: 1 run, 1 complete already"));
    // A log that was changed would be a wrong curve.
    let log = place.path("runs/compare-table/table/seed-3/rounds.jsonl");
    fs::write(&log, "").unwrap();
    let again = said(&compare);
    assert!(again.contains("its round log was changed, so it runs again"), "{again}");
    assert!(fs::metadata(&log).unwrap().len() > 0);
}

/// Starts a long run and waits for its first round.
#[cfg(unix)]
fn begin(place: &Place, arguments: &[&str], log: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
    command.current_dir(place.folder.path()).args(arguments);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let log = place.path(log);
    while fs::metadata(&log).map_or(0, |log| log.len()) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its first round");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child
}

#[cfg(unix)]
fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[cfg(unix)]
#[test]
fn a_second_process_is_refused_at_once_and_told_who_is_there() {
    let place = Place::new();
    let long = ["run", "tiny.toml", "--quiet", "--set", "federation.rounds=100000", "--out", "run"];
    let mut child = begin(&place, &long, "run/rounds.jsonl");
    let holder = format!("process {} is using run", child.id());
    for second in [
        &["run", "tiny.toml", "--out", "run"][..],
        &["run", "tiny.toml", "--out", "run", "--force"],
        &["run", "--resume", "run"],
        &["compare", "tiny.toml", "--out", "run"],
    ] {
        refused(&place.fedra(second), &holder);
    }
    let quickstart = place.fedra(&["quickstart", "--out", "run"]);
    refused(&quickstart, "run contains a run; name a folder for the quickstart");
    kill(&mut child);
    // The lock went with the process, and its file holds nobody up.
    assert!(place.path("run/fedra.lock").exists());
    refused(&place.fedra(&["run", "tiny.toml", "--out", "run"]), "found an unfinished run");
    place.succeed(&["run", "tiny.toml", "--out", "run", "--force", "--quiet"]);
    assert!(!place.path("run/fedra.lock").exists());
}

#[cfg(unix)]
#[test]
fn two_comparisons_in_one_folder_are_one_too_many() {
    let place = Place::new();
    let many = ["--set", "federation.rounds=100000", "--seeds", "1"];
    let compare = [&["compare", "tiny.toml"], &many[..]].concat();
    let log = "runs/compare-tiny/tiny/seed-3/rounds.jsonl";
    let mut child = begin(&place, &compare, log);
    let expected = format!("process {} is using runs/compare-tiny", child.id());
    refused(&place.fedra(&compare), &expected);
    // A run of it is locked too, by a process of its own.
    let run = place.fedra(&["run", "--resume", "runs/compare-tiny/tiny/seed-3"]);
    refused(&run, "is using runs/compare-tiny/tiny/seed-3");
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!place.path("runs/compare-tiny/fedra.lock").exists());
    assert!(!place.path("runs/compare-tiny/tiny/seed-3/fedra.lock").exists());
}

/// Weights and tokenizer of a pretrained model are inputs like any other.
#[test]
fn other_weights_end_a_run() {
    let place = Place::new();
    table(&place, &right);
    place.save_decoder("fever cough pain");
    let experiment = fs::read_to_string(place.path("table.toml")).unwrap();
    let (before, after) = experiment.split_once("[model]").unwrap();
    let (_, after) = after.split_once("[federation]").unwrap();
    let model = "[model]\npath = 'decoder'\n[federation]";
    fs::write(place.path("table.toml"), format!("{before}{model}{after}")).unwrap();
    let one = ["run", "table.toml", "--quiet", "--set", "federation.rounds=1", "--out", "run"];
    place.succeed(&one);
    assert!(place.summary("run")["inputs"]["weights"].is_string());
    let file = place.path("run/experiment.toml");
    let experiment = fs::read_to_string(&file).unwrap();
    fs::write(&file, experiment.replace("rounds = 1\n", "rounds = 2\n")).unwrap();

    let weights = place.path("decoder/model.safetensors");
    let right = fs::read(&weights).unwrap();
    let mut wrong = right.clone();
    *wrong.last_mut().unwrap() ^= 1;
    fs::write(&weights, wrong).unwrap();
    refused(&place.fedra(&["run", "--resume", "run"]), "run: found other weights (found ");
    fs::write(&weights, right).unwrap();
    let tokenizer = place.path("decoder/tokenizer.json");
    let right = fs::read_to_string(&tokenizer).unwrap();
    fs::write(&tokenizer, format!("{right} ")).unwrap();
    refused(&place.fedra(&["run", "--resume", "run"]), "run: found other tokenizer (found ");
    fs::write(&tokenizer, right).unwrap();
    place.succeed(&["run", "--resume", "run", "--quiet"]);
}
