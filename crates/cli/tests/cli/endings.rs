//! How the program ends when the machine will not go along: nothing panics, nothing aborts, and the
//! status and one sentence tell what happened.
#![cfg(unix)]

use std::fs::{self, File};
use std::process::{Command, Output, Stdio};

use crate::place::{Place, rounds_without_times, text};

const FEDRA: &str = env!("CARGO_BIN_EXE_fedra");

/// Runs the program behind some shell commands.
fn shell(place: &Place, before: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("{before}; exec \"$0\" \"$@\"")).arg(FEDRA).args(arguments);
    command.current_dir(place.folder.path()).output().unwrap()
}

fn no_panic(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    assert!(output.status.code().is_some_and(|code| code <= 2), "{}: {said}", output.status);
}

#[test]
fn a_full_stdout_or_stderr_is_no_panic() {
    let place = Place::new();
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["completions", "bash"],
        &["data", "tiny.toml"],
        &["plan", "tiny.toml"],
        &["run", "tiny.toml", "--force"],
        &["compare", "tiny.toml", "--seeds", "1", "--set", "federation.rounds=1"],
    ] {
        let mut command = Command::new(FEDRA);
        command.current_dir(place.folder.path()).args(arguments);
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full()).stderr(Stdio::piped()).output().unwrap();
        no_panic(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains("error: cannot write to stdout: No space left"), "{said}");

        let mut command = Command::new(FEDRA);
        command.current_dir(place.folder.path()).args(arguments);
        let output = command.stderr(full()).stdout(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty(), "{arguments:?}");
    }
    // What is refused is refused with a full stderr too.
    let output = shell(&place, "exec 2>/dev/full", &["run", "tiny.toml", "--set", "seed=-1"]);
    assert_eq!(output.status.code(), Some(2));
    let output = shell(&place, "exec 2>/dev/full", &["run", "--nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    let output = shell(&place, "exec >&- 2>&-", &["run", "tiny.toml", "--out", "closed"]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_full_disk_ends_a_run_with_a_sentence_and_it_goes_on_to_the_same_bytes() {
    let place = Place::new();
    let many = ["run", "tiny.toml", "--set", "federation.rounds=150", "--quiet", "--out"];
    place.succeed(&[&many[..], &["whole"]].concat());
    let size = |name: &str| fs::metadata(place.path(name)).unwrap().len();
    let (log, checkpoint) = (size("whole/rounds.jsonl"), size("whole/checkpoint.fedra"));
    assert!(log > 2 * checkpoint, "the log has to be what does not fit: {log}, {checkpoint}");
    // A limit on the length of files: the log grows into it, as it would into a full disk.
    let limit = format!("trap '' XFSZ; ulimit -f {}", u64::midpoint(checkpoint, log) / 1024);
    let output = shell(&place, &limit, &[&many[..], &["parts"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = "error: a round report could not be written: parts/rounds.jsonl: File too large";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.contains(" of 150 rounds are kept in parts; once this is fixed, "), "{said}");
    assert!(said.contains("fedra run --resume parts resumes the run"), "{said}");
    assert!(!place.path("parts/summary.json").exists());

    place.succeed(&["run", "--resume", "parts", "--quiet"]);
    assert_eq!(place.weights("parts"), place.weights("whole"));
    let rounds = |run: &str| rounds_without_times(&place.path(run));
    assert_eq!(rounds("parts"), rounds("whole"));

    // Where not even a checkpoint fits, nothing is kept, and nothing half is left.
    let output = shell(&place, "trap '' XFSZ; ulimit -f 8", &[&many[..], &["none"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("0 of 150 rounds are kept"), "{said}");
    assert!(!place.path("none/checkpoint.fedra.part").exists());
}

#[test]
fn too_many_threads_are_refused_and_those_that_cannot_be_had_are_an_error() {
    let place = Place::new();
    let message = place.refused(&["run", "tiny.toml", "--set", "threads=20000"]);
    assert_eq!(
        message,
        "error: threads: found 20000, expected at most 1024\n  --> --set threads=20000\n"
    );
    let bench = place.fedra(&["bench", "step", "--threads", "20000", "--steps", "1"]);
    no_panic(&bench);
    assert!(text(&bench.stderr).contains("--threads: found 20000, expected 1 to 1024"));
    let many = ["run", "tiny.toml", "--set", "threads=900"];
    let output = shell(&place, "ulimit -v 1000000", &many);
    let said = text(&output.stderr);
    // What is refused first depends on who is faster: the next thread, a number that one which has begun asks for, or
    // the stack on which the standard library would tell of an overflow, or what the C library notes about a thread:
    // without either of these two they abort.
    let outcomes = [
        ("error: threads: cannot start 900 of them: ", Some(2)),
        ("error: out of memory: ", Some(1)),
        ("failed to allocate an alternative stack", None),
        ("failed to register TLS destructor: out of memory", None),
    ];
    let outcome = outcomes.iter().find(|(sentence, _)| said.contains(sentence));
    assert_eq!(outcome.map(|(_, code)| *code), Some(output.status.code()), "{said}");
    assert!(!place.path("runs/tiny/summary.json").exists());
    place.succeed(&["run", "tiny.toml", "--set", "threads=300", "--quiet", "--out", "many"]);
    place.succeed(&["run", "tiny.toml", "--set", "threads=1", "--quiet", "--out", "one"]);
    assert_eq!(place.weights("many"), place.weights("one"));
}

#[test]
fn too_little_memory_is_a_sentence_and_a_status() {
    let place = Place::new();
    let large = ["model.width=512", "model.heads=8", "model.blocks=12", "threads=1"];
    let large: Vec<&str> = large.iter().flat_map(|set| ["--set", *set]).collect();
    let output = shell(
        &place,
        "ulimit -v 300000",
        &[&["run", "tiny.toml", "--out", "large"], &large[..]].concat(),
    );
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: out of memory: "), "{said}");
    assert!(said.contains("hint: fewer threads, a smaller batch"), "{said}");

    // Where preparing fits and running does not, that is said before the first round.
    let output = shell(
        &place,
        "ulimit -v 700000",
        &[&["run", "tiny.toml", "--out", "larger"], &large[..]].concat(),
    );
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("warning: the run needs about "), "{said}");
}

#[test]
fn a_file_that_may_not_grow_is_a_sentence_and_a_status() {
    let place = Place::new();
    let output = shell(&place, "ulimit -f 8", &["run", "tiny.toml", "--out", "short"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: writing short/") && said.contains("File too large"), "{said}");
    assert!(said.contains("once this is fixed, fedra run --resume short resumes"), "{said}");
}

#[test]
fn a_sigterm_ends_after_a_round_and_the_resumed_run_ends_with_the_same_bytes() {
    let place = Place::new();
    let many = ["run", "tiny.toml", "--set", "federation.rounds=150", "--out"];
    place.succeed(&[&many[..], &["whole", "--quiet"]].concat());
    let mut command = Command::new(FEDRA);
    command.current_dir(place.folder.path()).args(many).arg("parts");
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let log = place.path("parts/rounds.jsonl");
    while fs::read_to_string(&log).unwrap_or_default().lines().count() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("resume with: fedra run --resume parts"), "{said}");
    // Lines of a run that nobody watches tell whose they are and how long it will take.
    let line = said.lines().find(|line| line.contains("round 1/150")).unwrap();
    assert!(line.starts_with("fedavg round 1/150  loss ") && line.ends_with(" left"), "{line}");
    place.succeed(&["run", "--resume", "parts", "--quiet"]);
    assert_eq!(place.weights("parts"), place.weights("whole"));
}

#[test]
fn a_sigint_ends_a_long_round_at_once_and_the_resumed_run_ends_with_the_same_bytes() {
    let place = Place::new();
    let long = ["run", "tiny.toml", "--set", "work.epochs=120", "--out"];
    place.succeed(&[&long[..], &["whole", "--quiet"]].concat());
    let mut command = Command::new(FEDRA);
    command.current_dir(place.folder.path()).args(long).arg("parts");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let log = place.path("parts/rounds.jsonl");
    while fs::read_to_string(&log).unwrap_or_default().lines().count() < 1 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    // The round is on, and so the folder can be asked about it.
    let mut told = String::new();
    while !told.starts_with("round 2 of 3 is running; 1 complete; ") {
        assert!(child.try_wait().unwrap().is_none(), "{told}");
        told = place.succeed(&["status", "parts"]);
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    // Whether it first says that it will stop is a race: a step is short.
    assert!(said.contains("stopped after 1 of 3 rounds; resume with: fedra run --res"), "{said}");
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 1);
    let told = place.succeed(&["status", "parts"]);
    assert!(told.starts_with("stopped in round 2 of 3: no process is running here"), "{told}");
    place.succeed(&["run", "--resume", "parts", "--quiet"]);
    assert_eq!(place.weights("parts"), place.weights("whole"));
    assert!(place.succeed(&["status", "parts"]).starts_with("has finished; 3 complete"));
}

#[test]
fn whatever_is_refused_leaves_nothing_behind() {
    let place = Place::new();
    fs::write(place.path("bad.toml"), "[data\n").unwrap();
    fs::write(place.path("lab.toml"), include_str!("../../../fedra/tests/tiny.toml")).unwrap();
    fs::write(place.path("empty.jsonl"), "").unwrap();
    fs::write(place.path("broken.jsonl"), "{\"text\": 1}\n").unwrap();
    fs::create_dir(place.path("emptymodel")).unwrap();
    let list = || {
        let names = fs::read_dir(place.folder.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = list();
    let jsonl = ["--set", "data.source=jsonl", "--set", "data.task=classes"];
    for (arguments, more) in [
        (&["run", "absent.toml"][..], &[][..]),
        (&["run", "bad.toml"], &[]),
        (&["run", "--resume", "absent"], &[]),
        (&["run", "tiny.toml", "--set", "federation.rounds=0"], &[]),
        (&["run", "tiny.toml", "--set", "no.such=1"], &[]),
        (&["run", "tiny.toml", "--set", "threads=20000"], &[]),
        (&["run", "tiny.toml", "--set", "federation.clients=4000"], &[]),
        (&["run", "tiny.toml", "--set", "model.path=emptymodel"], &[]),
        (&["run", "tiny.toml", "--set", "evaluate.best=true"], &[]),
        (&["run", "tiny.toml", "--set", "evaluate.patience=3"], &[]),
        (&["run", "tiny.toml", "--set", "evaluate.patience=0"], &[]),
        (&["run", "tiny.toml", "--set", "method.name=safl", "--set", "method.k=9"], &[]),
        (&["run", "tiny.toml", "--out", "tiny.toml/run"], &[]),
        (&["run", "tiny.toml", "--out", "tiny.toml"], &[]),
        (&["run", "tiny.toml", "--set", "data.path=empty.jsonl"], &jsonl),
        (&["run", "tiny.toml", "--set", "data.path=broken.jsonl"], &jsonl),
        (&["compare", "tiny.toml", "--sweep", "work.batch=8,0"], &[]),
        (&["compare", "tiny.toml", "--out", "tiny.toml"], &[]),
        (&["compare", "tiny.toml", "--tune", "work.batch=4,8"], &[]),
        (&["plan", "bad.toml"], &[]),
        (&["data", "absent.toml"], &[]),
        (&["advise", "tiny.toml", "--scratch", "absent"], &[]),
        (&["quickstart", "--out", "tiny.toml"], &[]),
    ] {
        let output = place.fedra(&[arguments, more].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.lines().any(|line| line.starts_with("error: ")), "{arguments:?}: {said}");
        assert_eq!(list(), before, "{arguments:?}");
    }
}

#[test]
fn a_run_whose_numbers_run_away_is_not_told_to_go_on() {
    let place = Place::new();
    let rate = "work.optimiser={ name = \"sgd\", rate = 1e30 }";
    let output = place.fedra(&["run", "tiny.toml", "--quiet", "--set", rate]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("lower work.optimiser.rate and start a new run"), "{said}");
    assert!(!said.contains("--resume") && !said.contains("retries"), "{said}");
}

#[test]
fn answers_that_cannot_be_written_are_a_failure_and_not_a_refusal() {
    let place = Place::new();
    let model = format!("{}/tests/fixtures/predict/sequence_one", env!("CARGO_MANIFEST_DIR"));
    for format in ["jsonl", "csv", "parquet"] {
        let arguments = ["predict", "--model", &model, "--text", "x", "--output", "/dev/full"];
        let output = place.fedra(&[&arguments[..], &["--format", format]].concat());
        no_panic(&output);
        assert_eq!(output.status.code(), Some(1), "{format}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("No space left"), "{}", text(&output.stderr));
    }
    fs::write(place.path("rows.csv"), "text,label\nx,stable\n").unwrap();
    let arguments = ["evaluate", "--model", &model, "rows.csv", "--predictions", "/dev/full"];
    assert_eq!(place.fedra(&arguments).status.code(), Some(1));
}
