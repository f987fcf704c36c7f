//! Runs to which too few clients come back.

use std::fs;

use crate::place::{Place, rounds_without_times, text};

/// Three clients that fail in a third of all cases, and rounds that want them all.
const STRICT: [&str; 8] = [
    "--set",
    "conditions.fail=0.35",
    "--set",
    "federation.min_arrivals=1.0",
    "--set",
    "federation.rounds=4",
    "--set",
    "method.name=scaffold",
];

#[test]
fn a_run_in_which_everybody_fails_is_no_success() {
    let place = Place::new();
    for least in ["1", "0"] {
        let set = format!("federation.min_arrivals={least}");
        let run = ["run", "tiny.toml", "--set", "conditions.fail=1.0", "--set", &set];
        let output = place.fedra(&[&run[..], &["--out", least]].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        let expected = match least {
            "1" => {
                "error: round 1 was given up after 4 attempts: at most 0 of 3 clients sent an update \
                 (hospital-1: failed (simulated)), expected at least 1 (federation.min_arrivals); the \
                 attempts sent 0 B up and "
            }
            _ => "error: no client's update arrived in any of the 3 rounds",
        };
        assert!(message.contains(expected), "{message}");
        assert_eq!(message.contains("\nhint: the rounds before it are kept"), least == "1");
        assert!(!place.path(least).join("summary.json").exists());
        assert!(!place.path(least).join("model").exists());
        // It does not become one by being asked for again.
        let again = place.fedra(&["run", "--resume", least]);
        assert_eq!(again.status.code(), Some(1), "{}", text(&again.stderr));
    }
    // Nor by being stopped early.
    let sets = ["conditions.fail=1.0", "federation.min_arrivals=0", "evaluate.patience=1"];
    let shares = "data.shares={ validation = 0.3, test = 0.2 }";
    let sets: Vec<&str> = sets
        .iter()
        .chain(&[shares, "federation.rounds=9"])
        .flat_map(|set| ["--set", *set])
        .collect();
    let output = place.fedra(&[&["run", "tiny.toml", "--out", "patient"], &sets[..]].concat());
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("error: no client's update arrived in any of the 2 rounds"),
        "{message}"
    );
    assert!(!place.path("patient/summary.json").exists());
}

#[test]
fn a_run_that_stopped_for_want_of_clients_goes_on_with_more_retries_to_the_same_bytes() {
    let place = Place::new();
    let run = |out: &str, retries: &str| {
        let retries = format!("federation.retries={retries}");
        let start = ["run", "tiny.toml", "--quiet", "--out", out, "--set", &retries];
        place.fedra(&[&start[..], &STRICT].concat())
    };
    let whole = run("whole", "60");
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    let rounds = rounds_without_times(&place.path("whole"));
    let attempts = |round: &serde_json::Value| {
        round.get("failed_attempts").map_or(0, |failed| failed.as_array().unwrap().len())
    };
    let most = rounds.iter().map(attempts).max().unwrap();
    assert!(most > 0 && attempts(&rounds[0]) < most, "the first round is not the worst");

    let stopped = run("stopped", &attempts(&rounds[0]).to_string());
    let message = text(&stopped.stderr);
    assert_eq!(stopped.status.code(), Some(1), "{message}");
    assert!(message.contains("of 3 clients sent an update"), "{message}");
    assert!(!place.path("stopped/summary.json").exists());
    let file = place.path("stopped/experiment.toml");
    let written = fs::read_to_string(&file).unwrap();
    let few = format!("retries = {}\n", attempts(&rounds[0]));
    assert!(written.contains(&few), "{written}");
    fs::write(&file, written.replace(&few, "retries = 60\n")).unwrap();
    place.succeed(&["run", "--resume", "stopped", "--quiet"]);
    assert_eq!(place.weights("stopped"), place.weights("whole"));
    assert_eq!(rounds_without_times(&place.path("stopped")), rounds);
    assert_eq!(place.summary("stopped")["bytes"], place.summary("whole")["bytes"]);

    // What failed attempts sent is in the bytes of their round.
    for round in &rounds {
        let failed = round.get("failed_attempts").and_then(|failed| failed.as_array());
        let up = |of: &serde_json::Value| of["bytes"]["up"].as_u64().unwrap();
        let lost: u64 = failed.into_iter().flatten().map(up).sum();
        assert!(up(round) > lost, "{round}");
        assert_eq!(round["arrived"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn the_plan_draws_cohorts_that_are_too_small_again_as_the_run_does() {
    let place = Place::new();
    let sets = [
        "--set",
        "federation.sample={ poisson = 0.3 }",
        "--set",
        "federation.min_arrivals=2",
        "--set",
        "federation.retries=100",
        "--set",
        "federation.rounds=6",
    ];
    let plan = place.succeed(&[&["plan", "tiny.toml"], &sets[..]].concat());
    place.succeed(&[&["run", "tiny.toml", "--quiet", "--out", "run"], &sets[..]].concat());
    let rounds = rounds_without_times(&place.path("run"));
    assert!(rounds.iter().any(|round| round.get("failed_attempts").is_some()));
    for (line, key) in [("bytes up ", "up"), ("bytes down ", "down")] {
        let line = plan.lines().find(|found| found.starts_with(line)).unwrap();
        let predicted = line.split_whitespace().nth(2).unwrap().replace(',', "");
        assert_eq!(predicted, place.summary("run")["bytes"][key].to_string(), "{line}");
    }
}

#[test]
fn a_run_whose_cohorts_are_all_too_small_is_foretold_and_stops_there() {
    let place = Place::new();
    let sets = ["--set", "federation.sample={ poisson = 0.001 }", "--set", "federation.retries=0"];
    let plan = place.succeed(&[&["plan", "tiny.toml"], &sets[..]].concat());
    let note = "every attempt at round 1 selects too few clients: the run stops";
    assert!(plan.contains(note), "{plan}");
    let output = place.fedra(&[&["run", "tiny.toml", "--out", "run"], &sets[..]].concat());
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    let expected = "error: round 1 was given up after 1 attempt: at most 0 of 0 clients sent an update, \
                    expected at least 1";
    assert!(message.contains(expected), "{message}");
    // Empty rounds are what was asked for here, and nothing stops.
    let empty =
        ["--set", "federation.min_arrivals=0", "--set", "federation.sample={ poisson = 0.2 }"];
    let plan = place.succeed(&[&["plan", "tiny.toml"], &empty[..]].concat());
    assert!(!plan.contains("the run stops"), "{plan}");
}
