//! `fedra compare` through the built binary: what it runs, does not run again, prints and refuses.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// A folder with the tiny experiment; one round and validation examples unless said otherwise.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self::with("")
    }

    /// The tiny experiment with more lines at its end.
    fn with(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("../../fedra/tests/tiny.toml")
            .replace("rounds = 3", "rounds = 1")
            .replace("validation = 0.0", "validation = 0.2");
        fs::write(folder.path().join("tiny.toml"), text + "\n" + more).unwrap();
        Self { folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
        command.current_dir(self.folder.path()).args(arguments).env_remove("COLUMNS");
        command
    }

    fn fedra(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> (String, String) {
        let output = self.fedra(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    }

    /// Status 2, a message, and nothing written.
    #[track_caller]
    fn refused(&self, arguments: &[&str], expected: &str) {
        let output = self.fedra(arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
        assert!(!self.path("runs").exists(), "{arguments:?} wrote something");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(name)).unwrap()).unwrap()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const TWO: [&str; 4] = ["compare", "tiny.toml", "--sweep", "method.name=fedavg,fedadam"];

#[test]
fn every_variant_runs_with_every_seed_and_the_tables_are_of_their_summaries() {
    let place = Place::new();
    let (table, _) = place.succeed(&[&TWO[..], &["--seeds", "3"]].concat());
    let out = "runs/compare-tiny";
    let result = place.json(&format!("{out}/compare.json"));
    assert_eq!(result["seeds"], serde_json::json!([3, 4, 5]));
    let page = fs::read_to_string(place.path(&format!("{out}/compare.md"))).unwrap();
    for (number, variant) in ["fedavg", "fedadam"].into_iter().enumerate() {
        let scores = ["3", "4", "5"].map(|seed| {
            let run = format!("{out}/{variant}/seed-{seed}");
            assert!(place.path(&run).join("model/model.safetensors").is_file());
            let summary = place.json(&format!("{run}/summary.json"));
            assert_eq!(summary["method"], variant);
            assert_eq!(summary["seed"].to_string(), seed);
            summary["score"]["value"].as_f64().unwrap()
        });
        let line = &result["variants"][number];
        assert_eq!(line["name"], variant);
        let mean = scores.iter().sum::<f64>() / 3.0;
        assert!((line["score"]["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
        let shown = format!("{mean:.3} ± {:.3}", line["score"]["margin"].as_f64().unwrap());
        assert!(table.contains(&shown) && page.contains(&shown), "{shown}: {table}\n{page}");
    }
    assert_eq!(result["variants"][1]["baseline"], "fedavg");
    let verdict = result["variants"][1]["verdict"].as_str().unwrap().replace('_', " ");
    assert!(table.contains(&verdict) && page.contains(&verdict), "{verdict}: {table}");

    // Two of the seeds are not enough to say anything.
    let (table, _) = place.succeed(&[&TWO[..], &["--seeds", "2"]].concat());
    let result = place.json(&format!("{out}/compare.json"));
    assert!(result["variants"][1]["verdict"].is_null(), "{result}");
    assert!(table.contains(" no verdict from 2 seeds"), "{table}");
    assert!(
        table.contains("note: two seeds decide nothing, so there are no verdicts; use --seeds 3"),
        "{table}"
    );
}

#[test]
fn the_status_of_a_comparison_lists_its_runs() {
    let place = Place::new();
    place.succeed(&[&TWO[..], &["--seeds", "1", "--quiet", "--out", "out"]].concat());
    let (told, _) = place.succeed(&["status", "out"]);
    let first = "a comparison, which has finished; 2 runs so far, of which 2 complete\n  fedadam/seed-3  has finished; ";
    assert!(
        told.starts_with(first) && told.contains("\n  fedavg/seed-3  has finished; "),
        "{told}"
    );
    let output = place.fedra(&["status", "out", "--format", "json"]);
    let said = text(&output.stderr);
    assert!(
        said.contains("out is a comparison; this format needs the folder of one run"),
        "{said}"
    );
    // The folders above and below it are no comparisons.
    for other in [".", "out/fedavg"] {
        let output = place.fedra(&["status", other]);
        assert_eq!(output.status.code(), Some(2), "{other}: {}", text(&output.stdout));
    }
}

#[test]
fn what_is_complete_is_not_run_again_and_what_changed_is() {
    let place = Place::new();
    let with = |seeds: &str, more: &[&str]| {
        place.succeed(&[&TWO[..], &["--seeds", seeds, "--jobs", "2"], more].concat())
    };
    let compare = |more: &[&str]| with("1", more);
    let (table, said) = compare(&[]);
    assert!(said.contains("run: 2 runs, 0 complete already"), "{said}");
    assert!(table.contains("one seed decides nothing") && !table.contains('±'), "{table}");
    let (again, said) = compare(&[]);
    assert!(said.contains("run: 2 runs, 2 complete already"), "{said}");
    assert_eq!(again, table);
    // More seeds run only what is new; threads make no other experiment.
    let (_, said) = with("2", &[]);
    assert!(said.contains("run: 4 runs, 2 complete already"), "{said}");
    let (_, said) = compare(&["--set", "threads=1"]);
    assert!(said.contains("run: 2 runs, 2 complete already"), "{said}");
    let (_, said) = compare(&["--set", "work.batch=4"]);
    assert!(
        said.contains("fedadam seed 3: the experiment has changed, so it runs again"),
        "{said}"
    );
}

#[test]
fn the_number_of_jobs_changes_no_score_and_no_byte() {
    let place = Place::new();
    for jobs in ["1", "3"] {
        place.succeed(&[&TWO[..], &["--seeds", "2", "--jobs", jobs, "--out", jobs]].concat());
    }
    for run in ["fedavg/seed-3", "fedavg/seed-4", "fedadam/seed-3", "fedadam/seed-4"] {
        let weights = |jobs| place.bytes(&format!("{jobs}/{run}/model/model.safetensors"));
        assert_eq!(weights("1"), weights("3"), "{run}");
    }
    let scores = |jobs| place.json(&format!("{jobs}/compare.json"))["variants"][1]["score"].clone();
    assert_eq!(scores("1"), scores("3"));
}

#[cfg(unix)]
#[test]
fn an_interrupted_comparison_leaves_no_process_behind_and_goes_on_to_the_same_bytes() {
    let place = Place::new();
    let many = ["--set", "federation.rounds=60", "--seeds", "1", "--jobs", "2", "--out"];
    let child = place.command(&[&TWO[..], &many[..], &["parts"]].concat());
    let mut child = { child }.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let logs = ["fedavg", "fedadam"].map(|v| place.path(&format!("parts/{v}/seed-3/rounds.jsonl")));
    let lines = |log: &Path| fs::read_to_string(log).unwrap_or_default().lines().count();
    while logs.iter().any(|log| lines(log) < 2) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be interrupted");
        std::thread::sleep(Duration::from_millis(2));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the same command resumes"), "{}", text(&output.stderr));
    let stopped = logs.each_ref().map(|log| lines(log));
    assert!(stopped.iter().any(|lines| *lines < 60), "nothing was left to stop: {stopped:?}");
    assert!(!place.path("parts/compare.json").exists());
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(logs.each_ref().map(|log| lines(log)), stopped, "a run went on by itself");

    place.succeed(&[&TWO[..], &many[..], &["parts"]].concat());
    for method in ["fedavg", "fedadam"] {
        let name = format!("method.name={method}");
        let set = ["--set", &name, "--set", "federation.rounds=60", "--out", method, "--quiet"];
        place.succeed(&[&["run", "tiny.toml"], &set[..]].concat());
        let resumed = place.bytes(&format!("parts/{method}/seed-3/model/model.safetensors"));
        assert_eq!(resumed, place.bytes(&format!("{method}/model/model.safetensors")));
    }
}

#[test]
fn runs_stop_by_themselves_when_nobody_holds_their_leash() {
    let place = Place::new();
    place.succeed(&["run", "tiny.toml", "--quiet", "--out", "alone"]);
    let more = fs::read_to_string(place.path("alone/experiment.toml")).unwrap();
    fs::write(place.path("alone/experiment.toml"), more.replace("rounds = 1", "rounds = 100000"))
        .unwrap();
    fs::remove_file(place.path("alone/summary.json")).unwrap();
    let mut command = place.command(&["run", "--leash", "1", "--resume", "alone"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
}

/// Two candidates whose summaries are then rewritten: what the second wave takes is what the
/// validation examples say, whatever the test sets say.
#[test]
fn tuning_follows_the_validation_examples_where_the_test_set_says_the_opposite() {
    let place = Place::new();
    let tune = ["compare", "tiny.toml", "--seeds", "1", "--tune", "work.optimiser.rate=1e-3,3e-3"];
    let (_, said) = place.succeed(&tune);
    assert!(said.contains("tune: 2 runs") && said.contains("run: 1 run, 1 complete"), "{said}");
    let out = "runs/compare-tiny";
    for (best, other) in [("0.001", "0.003"), ("0.003", "0.001")] {
        for (rate, validation) in [(best, 0.9), (other, 0.1)] {
            let file = format!("{out}/tiny/tune/rate={rate}/seed-3/summary.json");
            let mut summary = place.json(&file);
            let scores = summary["scores"].as_object_mut().unwrap();
            assert!(scores.contains_key("client_validation"), "{scores:?}");
            for (set, scores) in scores {
                let value = if set == "client_validation" { validation } else { 1.0 - validation };
                scores["span_f1"] = value.into();
            }
            summary["score"]["value"] = (1.0 - validation).into();
            fs::write(place.path(&file), summary.to_string()).unwrap();
        }
        let (table, _) = place.succeed(&tune);
        let result = place.json(&format!("{out}/compare.json"));
        assert_eq!(result["variants"][0]["tuned"], serde_json::json!([format!("rate={best}")]));
        let words: Vec<&str> = table.split_whitespace().collect();
        assert!(words.join(" ").contains("is at the edge of its grid"), "{table}");
        let run = fs::read_to_string(place.path(&format!("{out}/tiny/seed-3/experiment.toml")));
        assert!(run.unwrap().contains(&format!("rate = {best}")));
    }
}

const TABLE: &str = r#"
[compare]
seeds = 2
baseline = "avg"
variants = [
  { name = "prox", set = { method = { name = "fedprox", mu = 0.1 } } },
  { name = "avg" },
]
sweep."work.batch" = [8, 4]
"#;

#[test]
fn a_file_may_say_all_of_it_and_still_is_an_experiment() {
    let place = Place::with(TABLE);
    let (json, _) = place.succeed(&["compare", "tiny.toml", "--json", "--quiet"]);
    let result: Value = serde_json::from_str(&json).unwrap();
    let variants = result["variants"].as_array().unwrap();
    let pairs: Vec<(&str, Option<&str>)> = variants
        .iter()
        .map(|line| (line["name"].as_str().unwrap(), line["baseline"].as_str()))
        .collect();
    let expected = [
        ("prox_batch=8", Some("avg_batch=8")),
        ("prox_batch=4", Some("avg_batch=4")),
        ("avg_batch=8", None),
        ("avg_batch=4", None),
    ];
    assert_eq!(pairs, expected);
    let run = "runs/compare-tiny/prox_batch=4/seed-4/experiment.toml";
    let resolved = fs::read_to_string(place.path(run)).unwrap();
    assert!(resolved.contains("mu = 0.1") && !resolved.contains("compare"), "{resolved}");

    let (_, said) = place.succeed(&["run", "tiny.toml"]);
    assert!(said.contains("fedra compare tiny.toml"), "{said}");
    place.succeed(&["data", "tiny.toml"]);
    place.succeed(&["plan", "tiny.toml"]);
}

#[test]
fn a_bad_comparison_is_refused_before_anything_is_written() {
    let place = Place::with(TABLE);
    let compare = ["compare", "tiny.toml"];
    let refused =
        |more: &[&str], expected: &str| place.refused(&[&compare[..], more].concat(), expected);
    refused(&["--sweep", "work.epochs=1,0"], "variant prox_batch=8_epochs=0: work.epochs: found 0");
    refused(
        &["--sweep", "work.epoch=1,2"],
        "work.epoch: unknown key\n  --> work.epoch = 1, which the comparison \
         sets\nhint: did you mean work.epochs?",
    );
    refused(&["--baseline", "fedavg"], "--baseline: found \"fedavg\", expected one of prox");
    refused(&["--tune", "work.optimiser.rate=1e-3,-1.0"], "work.optimiser.rate: found -1");
    refused(
        &["--tune", "work.optimiser.rate=1e-3,1e-2", "--set", "data.shares.validation=0.0"],
        "variant prox_batch=8: data.shares.validation: found 0, expected examples to tune by",
    );
    refused(&["--seeds", "0"], "--seeds");
    refused(&["--set", "compare.tune_seeds=0"], "compare.tune_seeds: found 0, expected at least 1");
    refused(
        &["--set", "compare.seed=4"],
        "compare.seed: unknown key\n  --> --set compare.seed=4\n\
         hint: did you mean compare.seeds or seed?",
    );
    refused(&["--set", "compare.sweep.method.k=3"], "compare.sweep.method.k: found 3, expected a");
}

#[test]
fn twice_the_epochs_get_half_the_rounds_at_equal_compute() {
    let place = Place::new();
    let sweep = ["compare", "tiny.toml", "--sweep", "work.epochs=1,2", "--seeds", "1"];
    let (table, _) = place.succeed(&[&sweep[..], &["--set", "federation.rounds=2"]].concat());
    let result = place.json("runs/compare-tiny/compare.json");
    let work = |number: usize| result["variants"][number]["multiply_adds"].as_u64().unwrap();
    assert!(work(0) > 0);
    assert!(work(1).abs_diff(2 * work(0)) <= 1, "{} and {}", work(0), work(1));
    let equal = result["at_equal"].as_object().unwrap();
    assert_eq!(equal.keys().collect::<Vec<_>>(), ["compute"]);
    assert_eq!(equal["compute"][1]["set_by"], "epochs=1");
    let [first, second] = [0, 1].map(|number| &equal["compute"][number]);
    assert_eq!((&first["rounds"], &second["rounds"]), (&2.0.into(), &1.0.into()));
    // One round of two epochs: the score that the run's own log has there.
    let log = place.bytes("runs/compare-tiny/epochs=2/seed-3/rounds.jsonl");
    let round: Value = serde_json::from_str(text(&log).lines().next().unwrap()).unwrap();
    assert_eq!(second["score"]["mean"], round["scores"][0]["mean"]["span_f1"]);
    assert!(table.contains("at equal client compute"), "{table}");
}

#[test]
fn a_run_that_breaks_down_stops_no_other_and_is_reported() {
    let place = Place::new();
    let compare = [&TWO[..], &["--seeds", "2"]].concat();
    place.succeed(&compare);
    let broken = place.path("runs/compare-tiny/fedavg/seed-4");
    fs::remove_file(broken.join("summary.json")).unwrap();
    fs::write(broken.join("checkpoint.fedra"), "not a checkpoint").unwrap();
    fs::remove_dir_all(place.path("runs/compare-tiny/fedadam/seed-4")).unwrap();

    let output = place.fedra(&compare);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("error: fedavg seed 4: "), "{}", text(&output.stderr));
    assert!(place.path("runs/compare-tiny/fedadam/seed-4/summary.json").is_file());
    let result = place.json("runs/compare-tiny/compare.json");
    assert_eq!(result["variants"][0]["score"]["seeds"], 1);
    assert_eq!(result["variants"][1]["score"]["seeds"], 2);
    // Only the seed that both have is a pair.
    assert_eq!(result["variants"][1]["difference"]["seeds"], 1);
    assert!(result["notes"].to_string().contains("failed: fedavg seed 4: "), "{result}");
}

#[test]
fn a_comparison_waits_for_the_run_that_its_killed_predecessor_left_at_work() {
    let place = Place::new();
    let long = ["--seeds", "1", "--set", "work.epochs=150", "--set", "federation.rounds=2"];
    let compare = [&TWO[..], &long].concat();
    let mut first = place.command(&compare);
    let mut first = first.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let run = place.path("runs/compare-tiny/fedavg/seed-3");
    let wait_until = |there: bool, name: &str| {
        while run.join(name).exists() != there {
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    wait_until(true, "status.json");
    first.kill().unwrap();
    first.wait().unwrap();
    // Its run notices that and ends. This test takes its place: a run that takes longer to notice.
    wait_until(false, "fedra.lock");
    let mut lock = fs::File::create(run.join("fedra.lock")).unwrap();
    lock.try_lock().unwrap();
    writeln!(lock, "1234").unwrap();
    let mut second = place.command(&compare);
    let mut second = second.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(second.stderr.take().unwrap()).lines().map_while(Result::ok);
    let expected = "fedavg seed 3: waiting for process 1234, which is still running";
    assert!(lines.any(|line| line.starts_with(expected)), "it did not say for whom it waits");
    assert!(!run.join("summary.json").exists());
    drop(lock);
    let rest: Vec<String> = lines.collect();
    assert!(second.wait().unwrap().success(), "{rest:?}");
    assert!(run.join("summary.json").is_file());
}

#[test]
fn a_key_of_another_table_is_suggested_with_its_table() {
    let place = Place::new();
    let message = text(&place.fedra(&["run", "tiny.toml", "--set", "rounds=3"]).stderr);
    assert!(message.contains("hint: did you mean federation.rounds?"), "{message}");
}

#[test]
fn a_run_without_a_global_model_says_so() {
    let place = Place::new();
    let (table, _) = place.succeed(&["run", "tiny.toml", "--set", "method.name=local-only"]);
    assert!(table.contains("none saved: every client keeps its own"), "{table}");
    assert!(place.json("runs/tiny/summary.json")["model"].is_null());
    assert!(!place.path("runs/tiny/model").exists());
    let (table, _) = place.succeed(&["run", "tiny.toml", "--out", "shared"]);
    assert!(!table.contains("none saved"), "{table}");
    assert_eq!(place.json("shared/summary.json")["model"], "model");
}

#[test]
fn help_teaches() {
    let (help, _) = Place::new().succeed(&["compare", "--help"]);
    for word in ["Examples:", "[compare]", "--jobs", "validation"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}
