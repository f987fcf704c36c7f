//! `[privacy]` beside `[split]`: what the plan says is what the run's ledger says, and what is not
//! covered is refused under its key.

use std::fs;

use fedra::{Experiment, Output, Overrides, Silent};

/// A guarantee kept by the rows of a cut, with these tables.
fn file(split: &str, privacy: &str) -> String {
    let tiny = include_str!("../tiny.toml").replace("blocks = 2", "blocks = 3");
    format!("{tiny}\n[split]\n{split}\n[privacy]\ndelta = 1e-3\n{privacy}\n")
}

const NOISE: &str =
    "noise = { kind = \"clipped\", norm = 8.0, gradient_norm = 0.01, sigma = 16.0 }";

fn open(split: &str, privacy: &str) -> Result<Experiment, String> {
    let text = file(split, privacy);
    Experiment::from_toml(&text, &Overrides::default()).map_err(|error| error.to_string())
}

/// What is refused at the latest once model and data are there.
fn refused(split: &str, privacy: &str) -> String {
    match open(split, privacy) {
        Err(error) => error,
        Ok(experiment) => {
            fedra::prepare(&experiment).map(drop).expect_err("it is not covered").to_string()
        }
    }
}

#[test]
fn the_ledger_of_a_run_agrees_with_its_plan() {
    let place = tempfile::tempdir().unwrap();
    for (ends, relation) in
        [("frozen", "add_remove"), ("frozen", "replace"), ("personal", "add_remove")]
    {
        let split = format!("ends = \"{ends}\"\n{NOISE}");
        let experiment = open(&split, &format!("relation = \"{relation}\"")).unwrap();
        let run = fedra::prepare(&experiment).unwrap();
        let planned = run.privacy().unwrap().unwrap();
        let folder = place.path().join(format!("{ends}-{relation}"));
        let summary = fedra::run(&experiment, &Output::new(&folder), &Silent).unwrap();
        let summary = summary.complete().unwrap();
        let spent = summary.privacy.unwrap();
        let (found, expected) = (spent.epsilon.unwrap(), planned.epsilon.unwrap());
        assert!((found / expected - 1.0).abs() < 1e-12, "{ends}: {found}, planned {expected}");
        // Three rounds of at most 32 tokens, at both cuts.
        if (ends, relation) == ("frozen", "add_remove") {
            let mu = (3.0 * 2.0 * 32.0_f64).sqrt() / 16.0;
            let exact = fedra_privacy::gaussian::epsilon(mu, 1e-3);
            assert!((found / exact - 1.0).abs() < 1e-9, "{found}, expected {exact}");
        }
        assert_eq!((spent.noise, spent.clip), (16.0, 8.0));
        assert!(spent.statement.contains("are visible and not covered"), "{}", spent.statement);
        let ledger = fs::read_to_string(folder.join("ledger.jsonl")).unwrap();
        assert_eq!(ledger.lines().count(), 1 + 3 * 3 * 2, "{ends}: a guarantee and its events");
        // Ends that learned on exact examples are not scored.
        assert_eq!(summary.score.is_some(), ends == "frozen");
        assert!(summary.noise.unwrap().contains("in the ledger"));
    }
}

#[test]
fn a_large_epsilon_is_called_no_protection() {
    let noise = NOISE.replace("sigma = 16.0", "sigma = 0.5");
    let experiment = open(&format!("ends = \"frozen\"\n{noise}"), "").unwrap();
    let planned = fedra::prepare(&experiment).unwrap().privacy().unwrap().unwrap();
    assert!(planned.epsilon.unwrap() > 100.0);
    assert!(planned.in_words().ends_with(" (this is no protection)"), "{}", planned.in_words());
    // A wish finds no noise here: it only ends the run in time.
    let experiment = open(&format!("ends = \"frozen\"\n{noise}"), "epsilon = 3.0").unwrap();
    let wished = fedra::prepare(&experiment).unwrap().privacy().unwrap().unwrap();
    assert_eq!((wished.epsilon, wished.noise), (planned.epsilon, 0.5));
    let place = tempfile::tempdir().unwrap();
    let output = Output::new(place.path().join("run"));
    let error = fedra::run(&experiment, &output, &Silent).unwrap_err().to_string();
    assert!(error.contains("hidden states at the cut"), "{error}");
}

#[test]
fn what_is_not_covered_is_refused_under_its_key() {
    let frozen = format!("ends = \"frozen\"\n{NOISE}");
    for (split, privacy, words) in [
        (NOISE, "", "split.ends"),
        ("ends = \"frozen\"", "", "split.noise"),
        ("ends = \"frozen\"\nnoise = { gamma = 1.0 }", "", "split.noise.kind"),
        (&frozen, "noise = 1.0", "privacy.noise"),
        (&frozen, "noise = 1.0\nunit = \"client\"", "split"),
        (&frozen, "cap = 2.0", "privacy"),
        (&format!("{frozen}\nmoves = [{{ round = 2, first = 0, last = 1 }}]"), "", "split.ends"),
        (&frozen.replace("sigma", "draw = \"cached\", sigma"), "", "split.noise.draw"),
    ] {
        let text = refused(split, privacy);
        assert_eq!(text.split([':', ' ']).next(), Some(words), "{text}");
    }
}

#[test]
fn frozen_ends_stay_as_they_began() {
    let place = tempfile::tempdir().unwrap();
    let tiny = include_str!("../tiny.toml").replace("blocks = 2", "blocks = 3");
    let text = format!("{tiny}\n[split]\nends = \"frozen\"\n");
    let experiment = Experiment::from_toml(&text, &Overrides::default()).unwrap();
    let output = Output::new(place.path().join("run"));
    let summary = fedra::run(&experiment, &output, &Silent).unwrap().complete().unwrap();
    let rows = summary.bytes.crossing.up();
    assert!(rows.0 > 0);
    // An update has no numbers: a header a client and round.
    assert!(summary.bytes.up.0 - rows.0 < 3 * 3 * 200, "{} {rows}", summary.bytes.up);
}
