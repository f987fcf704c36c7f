//! What people read fits 80 columns: tables, notes and errors, of every command that takes no minutes.

use std::fs;
use std::process::Command;

use crate::place::{Place, text};

const WIDE: usize = 80;

/// Runs a command as a person with 80 columns sees it; stderr, then stdout.
#[track_caller]
fn seen(place: &Place, (status, arguments): (i32, &[&str])) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
    command.current_dir(place.folder.path()).args(arguments).env("COLUMNS", WIDE.to_string());
    let output = command.output().unwrap();
    let shown = text(&output.stderr) + &text(&output.stdout);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {shown}");
    shown
}

/// Lines may be longer only where they are one word, such as a path, or a command to be copied.
#[track_caller]
fn assert_fits(shown: &str, about: &[&str]) {
    assert!(!shown.trim().is_empty(), "{about:?} said nothing");
    for line in shown.lines().filter(|line| line.chars().count() > WIDE) {
        let is_whole = !line.trim().contains(' ') || line.starts_with("  pip install ");
        assert!(is_whole, "{about:?}: {} columns: {line}", line.chars().count());
    }
}

/// Rows of clients and labels whose names are long.
fn rows(place: &Place) {
    let row = |number: usize| {
        let (label, client) = (number % 9, number % 4);
        let split = if number.is_multiple_of(5) { "test" } else { "train" };
        format!(
            "word{label} seen {number} times,a-rather-long-name-of-a-label-{label},\
             St. Elisabeth Hospital and Hospice of Ward {client},{split}\n"
        )
    };
    let lines: String = (0..120).map(row).collect();
    let lines = format!("text,label,client,split\n{lines}");
    fs::write(place.path("rows.csv"), lines).unwrap();
    let experiment = "\
        seed = 3\n[data]\nsource = 'csv'\npath = 'rows.csv'\ntask = 'classes'\nmax_tokens = 16\n\
        partition = { by = 'client' }\n\
        columns = { text = 'text', label = 'label', client = 'client', split = 'split' }\n\
        [model]\npreset = 'tiny-encoder'\nblocks = 2\nwidth = 16\nheads = 2\nvocabulary = 200\n\
        [federation]\nrounds = 1\n[work]\nbatch = 8\noptimiser = { name = 'adamw', rate = 1e-3 }\n";
    fs::write(place.path("rows.toml"), experiment).unwrap();
}

#[test]
fn tables_and_notes_fit_80_columns() {
    let place = Place::new();
    rows(&place);
    let phase = "q=0.01,sigma=1.1,steps=100";
    // What is refused has an error that fits as well.
    let commands: &[(i32, &[&str])] = &[
        (0, &["data", "rows.toml"]),
        (0, &["data", "tiny.toml"]),
        (0, &["init", "rows.csv", "--yes", "--out", "proposed.toml"]),
        (2, &["init", "rows.csv", "--out", "other.toml"]),
        (0, &["plan", "rows.toml"]),
        (0, &["plan", "tiny.toml", "--set", "split.first=1", "--set", "split.last=0"]),
        (0, &["plan", "tiny.toml", "--set", "method.name=safl", "--set", "method.k=1"]),
        (0, &["run", "rows.toml", "--out", "run"]),
        (2, &["run", "rows.toml", "--out", "run"]),
        (2, &["run", "tiny.toml", "--set", "work.bathc=3"]),
        (0, &["evaluate", "--model", "run", "rows.toml"]),
        (0, &["evaluate", "--model", "run", "rows.csv", "--columns", "client=client"]),
        (0, &["account", "epsilon", "--phase", phase, "--delta", "1e-5"]),
    ];
    for (status, arguments) in commands {
        assert_fits(&seen(&place, (*status, arguments)), arguments);
    }
}

#[test]
fn what_evaluate_and_compare_print_fits_80_columns_in_a_pipe_too() {
    let place = Place::new();
    rows(&place);
    let sweep = "method.name=fedavg,local-only,fedadam";
    let arguments = ["compare", "rows.toml", "--sweep", sweep, "--seeds", "1", "--out", "both"];
    let told = place.succeed(&arguments);
    assert_fits(&told, &arguments);
    // Nothing is lost: what does not fit beside the rest is below it.
    for heading in ["score", "difference", "up", "down", "of full", "compute", "rounds", "time"] {
        assert!(told.contains(heading), "{heading}: {told}");
    }
    let arguments = ["evaluate", "--model", "both/fedavg/seed-3", "rows.toml"];
    let told = place.succeed(&arguments);
    assert_fits(&told, &arguments);
    assert!(told.contains("true \\ answered") && told.contains("Ward 3"), "{told}");
}
