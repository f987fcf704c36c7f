//! The rounds for other programs: there when asked for, once each after a kill, and removed with the run.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::{Place, text};

const ALL: &str = "log=[\"tensorboard\", \"csv\", \"parquet\"]";

fn events(run: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(run.join("tensorboard")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// The column of rounds in a CSV file.
fn rounds(run: &Path) -> Vec<String> {
    let table = fs::read_to_string(run.join("rounds.csv")).unwrap();
    table.lines().skip(1).map(|line| line.split(',').next().unwrap().to_owned()).collect()
}

#[test]
fn logs_are_written_where_they_are_asked_for_and_go_with_the_run() {
    let place = Place::new();
    place.succeed(&["run", "tiny.toml", "--quiet", "--set", ALL, "--set", "evaluate.every=2"]);
    let run = place.path("runs/tiny");
    assert_eq!(rounds(&run), ["0", "1", "2"]);
    let table = fs::read_to_string(run.join("rounds.csv")).unwrap();
    let header: Vec<&str> = table.lines().next().unwrap().split(',').collect();
    for column in ["loss", "bytes.up", "seconds", "central_test.span_f1", "client_test.loss"] {
        assert!(header.contains(&column), "{column}: {header:?}");
    }
    let parquet = fs::read(run.join("rounds.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    assert_eq!(events(&run).len(), 1);
    // Somebody else's events stay when the run is replaced by one without logs.
    fs::write(run.join("tensorboard/events.out.tfevents.1.host"), "theirs").unwrap();
    place.succeed(&["run", "tiny.toml", "--quiet", "--force", "--set", "federation.rounds=1"]);
    assert_eq!(events(&run), ["events.out.tfevents.1.host"]);
    assert!(!run.join("rounds.csv").exists() && !run.join("rounds.parquet").exists());
    assert!(!fs::read_to_string(run.join("experiment.toml")).unwrap().contains("log ="));
}

#[test]
fn a_table_that_no_run_wrote_is_not_written_over() {
    let place = Place::new();
    for name in ["rounds.csv", "tensorboard/events.out.tfevents.1700000000.fedra"] {
        let file = place.path("mine").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "mine").unwrap();
        let refused =
            place.refused(&["run", "tiny.toml", "--out", "mine", "--force", "--set", ALL]);
        assert!(refused.contains("but no run that wrote it"), "{refused}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        fs::remove_dir_all(place.path("mine")).unwrap();
    }
}

#[test]
fn after_a_kill_every_round_is_in_the_logs_once() {
    let place = Place::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
    command.current_dir(place.folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    command.args(["run", "tiny.toml", "--out", "k", "--set", ALL, "--set", "federation.rounds=60"]);
    let mut child = command.spawn().unwrap();
    let run = place.path("k");
    let begun = Instant::now();
    let logged = || fs::read_to_string(run.join("rounds.csv")).map_or(0, |it| it.lines().count());
    while logged() < 6 && begun.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let before = events(&run);
    let resumed = place.fedra(&["run", "--resume", "k", "--quiet"]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let expected: Vec<String> = (0..60).map(|round| round.to_string()).collect();
    assert_eq!(rounds(&run), expected);
    let after = events(&run);
    assert_eq!(after.len(), 1, "{after:?}");
    // A reader that watches moves on to a file with a larger name.
    assert!(after > before, "{before:?} {after:?}");
    assert!(run.join("rounds.parquet").exists());
}
