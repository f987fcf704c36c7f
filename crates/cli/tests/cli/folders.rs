//! Which folders a run takes, and what it leaves alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::place::{Place, text};

/// Every file below a folder with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            all.insert(path, bytes);
        }
    }
    all
}

fn one_round(place: &Place, more: &[&str]) -> std::process::Output {
    let start = ["run", "tiny.toml", "--quiet", "--set", "federation.rounds=1"];
    place.fedra(&[&start[..], more].concat())
}

#[test]
fn a_complete_run_is_replaced_only_by_force_and_other_peoples_files_stay() {
    let place = Place::new();
    assert!(one_round(&place, &[]).status.success());
    let run = place.path("runs/tiny");
    for name in ["notes.txt", "model/notes.txt"] {
        fs::write(run.join(name), "mine").unwrap();
    }
    let before = files(&run);

    let refused = one_round(&place, &["--seed", "9"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(
        text(&refused.stderr),
        "error: found a complete run in runs/tiny, expected a free folder\n\
         hint: --out runs/tiny-2 keeps both, --force replaces it\n"
    );
    let again = text(&one_round(&place, &[]).stderr);
    assert!(again.contains("a complete run of this very experiment in runs/tiny"), "{again}");
    assert_eq!(files(&run), before);

    assert!(one_round(&place, &["--seed", "9", "--force"]).status.success());
    assert_eq!(place.summary("runs/tiny")["seed"], 9);
    for name in ["notes.txt", "model/notes.txt"] {
        assert_eq!(fs::read_to_string(run.join(name)).unwrap(), "mine");
    }
}

#[test]
fn resuming_a_complete_run_shows_it_and_changes_no_byte() {
    let place = Place::new();
    assert!(one_round(&place, &["--out", "done"]).status.success());
    let before = files(&place.path("done"));
    let output = place.fedra(&["run", "--resume", "done"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the run in done is complete"));
    assert!(text(&output.stdout).contains("score"), "{}", text(&output.stdout));
    assert_eq!(files(&place.path("done")), before);
    assert_eq!(text(&place.fedra(&["run", "--resume", "done", "--quiet"]).stdout), "");
}

#[test]
fn what_no_run_wrote_is_refused_whatever_is_said() {
    let place = Place::new();
    for (name, within) in [("model", "model/weights"), ("summary.json", "summary.json")] {
        let folder = place.path("mine");
        fs::create_dir_all(folder.join("model")).unwrap();
        fs::write(folder.join(within), "mine").unwrap();
        let before = files(&folder);
        for flags in [&["--out", "mine"][..], &["--out", "mine", "--force"]] {
            let output = one_round(&place, flags);
            assert_eq!(output.status.code(), Some(2));
            let message = text(&output.stderr);
            let expected = format!("found {name} in mine but no run that wrote it");
            assert!(message.contains(&expected), "{message}");
        }
        assert_eq!(files(&folder), before);
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn files_of_no_run_are_written_among_only_by_force() {
    let place = Place::new();
    let folder = place.path("other");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("keep.txt"), "mine").unwrap();
    let refused = one_round(&place, &["--out", "other"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(
        text(&refused.stderr),
        "error: found keep.txt and no run in other, expected a free folder\n\
         hint: --out other-2 is free; --force writes into other and leaves its other files as they are\n"
    );
    for command in ["compare", "quickstart"] {
        let arguments = if command == "compare" { &["tiny.toml"][..] } else { &[] };
        let output = place.fedra(&[&[command], arguments, &["--out", "other"]].concat());
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output.stderr);
        assert!(message.contains("--out: other contains keep.txt and no run"), "{message}");
    }
    assert_eq!(files(&folder).len(), 1);
    assert!(one_round(&place, &["--out", "other", "--force"]).status.success());
    assert_eq!(fs::read_to_string(folder.join("keep.txt")).unwrap(), "mine");
    // What a process that was killed leaves is nobody's own.
    fs::create_dir_all(place.path("killed")).unwrap();
    for name in ["fedra.lock", "clients.fedra.scratch", ".gitkeep"] {
        fs::write(place.path("killed").join(name), "").unwrap();
    }
    assert!(one_round(&place, &["--out", "killed"]).status.success());
}

#[test]
fn names_alone_make_no_run_that_force_may_replace() {
    let place = Place::new();
    let ours = include_str!("../../../fedra/tests/tiny.toml");
    for (experiment, name, content) in [
        ("title = \"somebody's own\"\n", "summary.json", "{}"),
        (ours, "summary.json", "{}"),
        (ours, "rounds.jsonl", "{\"epoch\": 1}\n"),
        (ours, "rounds.jsonl", ""),
        (ours, "checkpoint.fedra", "PK"),
        (ours, "checkpoint.fedra", "somebody's own"),
    ] {
        let folder = place.path("mine");
        fs::create_dir_all(folder.join("model")).unwrap();
        fs::write(folder.join("experiment.toml"), experiment).unwrap();
        fs::write(folder.join(name), content).unwrap();
        fs::write(folder.join("model/model.safetensors"), "mine").unwrap();
        let before = files(&folder);
        let output = one_round(&place, &["--out", "mine", "--force"]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name} {content:?}: {message}");
        let why = if experiment == ours {
            "but no run that wrote it"
        } else {
            "keys that no experiment has"
        };
        assert!(message.contains(why), "{message}");
        assert_eq!(files(&folder), before);
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn any_one_file_of_a_run_proves_it() {
    let place = Place::new();
    let all = ["summary.json", "rounds.jsonl", "checkpoint.fedra"];
    for kept in all {
        assert!(one_round(&place, &["--out", "run"]).status.success());
        for other in all.iter().filter(|name| **name != kept) {
            fs::remove_file(place.path("run").join(other)).unwrap();
        }
        let refused = text(&one_round(&place, &["--out", "run", "--seed", "9"]).stderr);
        assert!(refused.contains("--force replaces it"), "{kept}: {refused}");
        let replaced = one_round(&place, &["--out", "run", "--seed", "9", "--force"]);
        assert!(replaced.status.success(), "{kept}: {}", text(&replaced.stderr));
        assert_eq!(place.summary("run")["seed"], 9);
        fs::remove_dir_all(place.path("run")).unwrap();
    }
    // Begun, and nothing to lose.
    assert!(one_round(&place, &["--out", "run"]).status.success());
    for gone in ["summary.json", "checkpoint.fedra"] {
        fs::remove_file(place.path("run").join(gone)).unwrap();
    }
    fs::remove_dir_all(place.path("run/model")).unwrap();
    fs::write(place.path("run/rounds.jsonl"), "").unwrap();
    assert!(one_round(&place, &["--out", "run", "--seed", "9", "--force"]).status.success());
}

#[cfg(unix)]
#[test]
fn a_model_behind_a_link_is_not_touched() {
    let place = Place::new();
    assert!(one_round(&place, &["--out", "run"]).status.success());
    fs::rename(place.path("run/model"), place.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(place.path("elsewhere"), place.path("run/model")).unwrap();
    let before = (files(&place.path("elsewhere")), files(&place.path("run")));
    for flags in [&["--out", "run"][..], &["--out", "run", "--force"]] {
        let output = one_round(&place, flags);
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output.stderr);
        assert!(message.contains("run/model: this is a link"), "{message}");
        assert_eq!((files(&place.path("elsewhere")), files(&place.path("run"))), before);
    }
}

#[test]
fn a_run_that_goes_on_has_no_summary_until_it_is_complete() {
    let place = Place::new();
    assert!(one_round(&place, &["--out", "longer"]).status.success());
    let file = place.path("longer/experiment.toml");
    let experiment = fs::read_to_string(&file).unwrap();
    assert!(experiment.contains("rounds = 1\n"), "{experiment}");
    fs::write(&file, experiment.replace("rounds = 1\n", "rounds = 100000\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
    command.current_dir(place.folder.path()).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut run = command.args(["run", "--leash", "1", "--resume", "longer"]).spawn().unwrap();
    let summary = place.path("longer/summary.json");
    while summary.exists() && run.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Nobody holds its leash any more, so it stops.
    drop(run.stdin.take());
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(!place.path("longer/summary.json").exists());
}

#[test]
fn a_run_without_a_complete_round_begins_again() {
    let place = Place::new();
    assert!(one_round(&place, &[]).status.success());
    let run = place.path("runs/tiny");
    fs::remove_dir_all(run.join("model")).unwrap();
    for name in ["summary.json", "checkpoint.fedra"] {
        fs::remove_file(run.join(name)).unwrap();
    }
    assert!(one_round(&place, &[]).status.success());
    assert_eq!(place.summary("runs/tiny")["rounds"], 1);
}

#[test]
fn quickstart_replaces_its_own_runs_and_nobody_elses() {
    let place = Place::new();
    assert!(one_round(&place, &["--out", "mine/fedavg"]).status.success());
    let before = files(&place.path("mine"));
    let output = place.fedra(&["quickstart", "--out", "mine"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("mine/fedavg contains a run of another experiment"), "{message}");
    // Not even the methods before it began.
    assert_eq!(files(&place.path("mine")), before);
}

#[test]
fn the_quickstart_tells_the_whole_story_in_a_table_a_picture_and_a_page() {
    let place = Place::new();
    let small = ["data.clinic.notes=160", "federation.rounds=2", "federation.clients=3"];
    let mut arguments = vec!["quickstart", "--out", "quick"];
    arguments.extend(small.iter().flat_map(|one| ["--set", one]));
    let output = place.fedra(&arguments);
    let (table, words) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{words}");
    let rows = [
        "word majority",
        "public model",
        "centralised",
        "local-only",
        "fedavg",
        "safl",
        "fedfrozen",
        "cut",
        "private",
    ];
    let page = fs::read_to_string(place.path("quick/report.html")).unwrap();
    for row in rows {
        let line = table
            .lines()
            .find(|line| line.starts_with(row))
            .unwrap_or_else(|| panic!("{row}: {table}"));
        let bar = words.lines().find(|line| line.starts_with(row) && line.contains('█'));
        assert!(bar.is_some() || line.contains("0.0"), "{row}: {words}");
        assert!(page.contains(row), "{row}");
    }
    assert!(table.contains("client memory") && table.contains("epsilon 8.0"), "{table}");
    // Nothing is said that a newcomer cannot act on.
    assert!(!words.contains("warning") && !words.contains("note:"), "{words}");
    // What it proposes to try next works on what it left.
    place.succeed(&[
        "predict",
        "--model",
        "quick/fedavg",
        "--text",
        "Chest x-ray shows pneumonia.",
    ]);
    place.succeed(&["report", "quick/private"]);
    // A run's own folder is not the place for several.
    for command in [
        &["quickstart", "--out", "quick/fedavg"][..],
        &["compare", "tiny.toml", "--out", "quick/fedavg"],
    ] {
        let output = place.fedra(command);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("--out: quick/fedavg contains a run"), "{command:?}");
    }
    // A second time replaces the first.
    assert!(place.fedra(&arguments).status.success());
}

#[test]
fn a_run_of_the_same_file_with_other_rows_is_no_run_of_this_very_experiment() {
    let place = Place::new();
    let rows = |word: &str| {
        let row = |label: &str, client: &str| {
            format!(
                "{{\"text\": \"{word} {label}\", \"label\": \"{label}\", \"client\": \"{client}\"}}\n"
            )
        };
        [row("a", "n"), row("b", "n"), row("a", "s"), row("b", "s")].concat().repeat(4)
    };
    let experiment = "[data]\nsource = 'jsonl'\ntask = 'classes'\npath = 'rows.jsonl'\nmax_tokens = 8\n\
                      [model]\npreset = 'tiny-encoder'\nblocks = 1\nwidth = 8\nheads = 2\n\
                      [federation]\nrounds = 1\n";
    fs::write(place.path("rows.toml"), experiment).unwrap();
    fs::write(place.path("rows.jsonl"), rows("old")).unwrap();
    place.succeed(&["run", "rows.toml", "--quiet"]);
    let again = text(&place.fedra(&["run", "rows.toml"]).stderr);
    assert!(again.contains("a complete run of this very experiment in runs/rows"), "{again}");
    fs::write(place.path("rows.jsonl"), rows("new")).unwrap();
    let again = text(&place.fedra(&["run", "rows.toml"]).stderr);
    assert!(
        again.contains("a complete run of the same file with other rows in runs/rows"),
        "{again}"
    );
    assert!(!again.contains("very experiment"), "{again}");
    place.succeed(&["run", "rows.toml", "--quiet", "--force"]);
    let again = text(&place.fedra(&["run", "rows.toml"]).stderr);
    assert!(again.contains("a complete run of this very experiment in runs/rows"), "{again}");
}
