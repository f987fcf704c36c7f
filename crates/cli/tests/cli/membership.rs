//! `fedra attack membership`: halves by coins, what is found, going on, refusals.

use std::fs;

use serde_json::Value;

use crate::place::Place;

/// Few rows, learnt by heart.
const BY_HEART: [&str; 6] =
    ["--set", "work.epochs=12", "--set", "work.optimiser.rate=0.003", "--shadows", "15"];

fn attack<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["attack", "membership", "tiny.toml", "--out", "found"], &BY_HEART[..], more].concat()
}

fn findings(told: &str) -> Vec<Value> {
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_model_that_learns_rows_by_heart_tells_which_and_the_same_command_trains_nothing_again() {
    let place = Place::new();
    let told = place.succeed(&attack(&["--json"]));
    let found = findings(&told);
    assert_eq!(found.len(), 2);
    for one in &found {
        assert_eq!(one["models"], 16);
        assert_eq!(
            one["members"].as_u64().unwrap()
                + one["others"].as_u64().unwrap()
                + one["left_out"].as_u64().unwrap(),
            16 * one["rows"].as_u64().unwrap()
        );
        assert!(one["loss_members"].as_f64() < one["loss_others"].as_f64(), "{one}");
        let auc = one["auc"]["value"].as_f64().unwrap();
        assert!(auc > 0.6 && one["auc"]["low"].as_f64().unwrap() > 0.5, "{one}");
    }
    for file in ["index.html", "results.jsonl", "tiny.csv", "roc-lira.svg", "tiny/model-15.json"] {
        assert!(place.path("found").join(file).exists(), "{file}");
    }
    assert!(!place.path("found/tiny/model-0.run").exists());

    let file = place.path("found/tiny/model-3.json");
    let written = fs::metadata(&file).unwrap().modified().unwrap();
    let again = place.succeed_and_hear(&attack(&["--json"]));
    assert!(again.ends_with(&told) && !again.contains("model 4 of 16"), "{again}");
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), written);

    // A file that is torn, or another half's, is trained again to the same bytes.
    let whole = fs::read(&file).unwrap();
    fs::copy(place.path("found/tiny/model-2.json"), &file).unwrap();
    fs::write(place.path("found/tiny/model-4.json"), &whole[..whole.len() / 2]).unwrap();
    assert_eq!(place.succeed(&attack(&["--json"])), told);
    assert_eq!(fs::read(&file).unwrap(), whole);
}

#[test]
fn a_model_is_given_away_at_the_score_that_is_asked_for() {
    let place = Place::new();
    let at = |out, score| {
        let common = ["attack", "membership", "tiny.toml", "--json", "--shadows", "7"];
        findings(&place.succeed(&[&common[..], &["--out", out, "--at-score", score]].concat()))
    };
    let (at_once, never) = (at("soon", "-1"), at("late", "2"));
    assert_eq!((&at_once[0]["mean_rounds"], &at_once[0]["reached"]), (&1.0.into(), &8.into()));
    assert_eq!((&never[0]["mean_rounds"], &never[0]["reached"]), (&3.0.into(), &0.into()));
}

#[test]
fn what_cannot_be_attacked_is_refused_before_anything_is_written() {
    let place = Place::new();
    let cases: [(&[&str], &str); 6] = [
        (&["--shadows", "3"], "expected a whole number from 7 to 10000"),
        (&["--only", "fedprox"], "--only: found \"fedprox\", expected some of tiny"),
        (&["--at-score", "NaN"], "--at-score"),
        (&["--set", "method.name=local-only"], "parameters that stay with each client"),
        (&["--set", "compare.tune.'work.epochs'=[1,2]"], "compare"),
        (
            &[
                "--at-score",
                "0.5",
                "--set",
                "data.shares={ central = 0.0, validation = 0.0, test = 0.0 }",
            ],
            "a model at a score needs test examples",
        ),
    ];
    for (arguments, expected) in cases {
        let error = place.refused(&[&["attack", "membership", "tiny.toml"], arguments].concat());
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
