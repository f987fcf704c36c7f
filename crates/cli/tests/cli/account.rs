//! `fedra account`: numbers, several phases, and what is refused.

use std::fs;

use serde_json::Value;

use crate::place::Place;

fn json(arguments: &str) -> Value {
    let words: Vec<&str> = ["account"].into_iter().chain(arguments.split_whitespace()).collect();
    let text = Place::new().succeed(&[&words[..], &["--json"]].concat());
    serde_json::from_str(&text).unwrap()
}

#[track_caller]
fn near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap();
    assert!((found / expected - 1.0).abs() < 1e-3, "found {found}, expected {expected}");
}

#[test]
fn epsilon_is_that_of_the_reference_under_both_relations() {
    let run = "epsilon --q 0.01 --sigma 1.0 --steps 1000 --delta 1e-5";
    let found = json(run);
    near(&found["pld"], 1.828_244);
    near(&found["rdp"], 2.101_365);
    assert_eq!(found["relation"], "add-remove");
    near(&json(&format!("{run} --relation replace"))["pld"], 2.843_446);
    near(&json(&format!("{run} --examples 10000 --cap 150"))["pld"], 1.830_466);
    let clients =
        "epsilon --unit client --clients 1000 --q 0.05 --sigma 1 --steps 100 --delta 1e-4";
    near(&json(clients)["pld"], 2.869_587);
    assert_eq!(json(clients)["unit"], "client");
}

#[test]
fn phases_add_up() {
    let phases =
        "epsilon --delta 1e-5 --phase q=0.01,sigma=1,steps=500 --phase q=0.02,sigma=0.8,steps=200";
    near(&json(phases)["pld"], 3.465_936);
    let mixed =
        "epsilon --delta 1e-5 --q 0.01 --sigma 1 --steps 500 --phase q=0.02,sigma=0.8,steps=200";
    assert_eq!(json(mixed)["pld"], json(phases)["pld"]);
}

#[test]
fn noise_and_steps_for_a_wished_epsilon_keep_it() {
    let found = json("sigma --epsilon 8 --q 0.01 --steps 1000 --delta 1e-5");
    near(&found["sigma"], 0.586_268);
    assert!(found["pld"].as_f64().unwrap() <= 8.0);
    assert!(found["sigma_rdp"].as_f64().unwrap() > found["sigma"].as_f64().unwrap());
    let found = json("steps --epsilon 1.829 --sigma 1 --q 0.01 --delta 1e-5");
    assert!((997..=1003).contains(&found["steps"].as_u64().unwrap()), "{found}");
    assert_eq!(found["at_least"], false);
    // A delta for which a search by pld would take half a minute.
    let found = json("sigma --epsilon 3 --q 0.01 --steps 1000 --delta 1e-300");
    assert_eq!(found["sigma"], found["sigma_rdp"]);
    assert!(found["pld"].as_f64().unwrap() <= 3.0, "{found}");
    // Where counting ends.
    let run = "account steps --epsilon 3 --sigma 1e9 --q 0.01 --delta 1e-5";
    let words: Vec<&str> = run.split(' ').collect();
    let text = Place::new().succeed(&words);
    assert!(text.starts_with("steps  at least 1,099,511,627,776"), "{text}");
}

#[test]
fn a_table_has_a_row_for_each_noise() {
    let run = "account table --sigma 0.5,1,2 --q 0.01 --steps 1000 --delta 1e-5";
    let words: Vec<&str> = run.split(' ').collect();
    let text = Place::new().succeed(&words);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("add-remove  1.0000         1.82"), "{text}");
}

#[test]
fn guarantees_that_mean_nothing_are_refused_with_a_reason() {
    let place = Place::new();
    let run = "epsilon --q 0.01 --sigma 1 --steps 10 --delta 1e-5";
    for (arguments, expected) in [
        (run.replace("--q 0.01", "--q 1.5"), "--q: found 1.5, expected a probability"),
        (run.replace("--q 0.01", "--q 0"), "--q: found 0"),
        (run.replace("--q 0.01", "--q -0.5"), "--q: found -0.5"),
        (run.replace("--q 0.01", "--q NaN"), "--q: found NaN"),
        (run.replace("--sigma 1", "--sigma 0"), "--sigma: found 0"),
        (run.replace("--sigma 1", "--sigma NaN"), "--sigma: found NaN"),
        (run.replace("--steps 10", "--steps 0"), "--steps: found 0, expected at least 1"),
        (run.replace("1e-5", "0"), "delta: found 0, expected a probability"),
        (run.replace("1e-5", "1"), "delta: found 1,"),
        (format!("{run} --examples 100000"), "delta: found 1e-5 for 100000 units"),
        (format!("{run} --cap 5"), "--examples"),
        (run.replace("--steps 10", ""), "needs --q, --sigma and --steps together"),
        (format!("{run} --phase q=0.1,noise=2"), "--phase: found \"noise=2\""),
        (format!("{run} --phase q=0.1,sigma=2"), "steps is missing"),
        ("sigma --epsilon 0 --q 0.01 --steps 10 --delta 1e-5".into(), "epsilon: found 0, expected"),
        ("sigma --epsilon NaN --q 0.01 --steps 10 --delta 1e-5".into(), "epsilon: found NaN"),
        (
            "sigma --epsilon 1 --q 0.01 --steps 10 --delta 1e-5 --phase sigma=1,steps=5".into(),
            "expected more than the",
        ),
    ] {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        let message = place.refused(&[&["account"], &words[..]].concat());
        assert!(message.contains(expected), "{arguments}: {message}");
    }
}

#[test]
fn a_ledger_is_asked_for_only_where_a_run_should_have_left_one() {
    let place = Place::new();
    let one = ["run", "tiny.toml", "--quiet", "--set", "federation.rounds=1", "--out", "public"];
    place.succeed(&one);
    fs::create_dir(place.path("empty")).unwrap();
    for (folder, expected) in [
        ("public", "error: the run in public has no [privacy]: it kept no account"),
        ("empty", "error: found no ledger.jsonl in empty, expected the folder of a private run"),
        ("absent", "error: there is no file or folder absent"),
    ] {
        let told = place.refused(&["account", "ledger", folder]);
        assert!(told.starts_with(expected), "{told}");
    }
    let experiment = fs::read_to_string(place.path("public/experiment.toml")).unwrap();
    let private = format!("{experiment}\n[privacy]\nepsilon = 8.0\n");
    fs::write(place.path("public/experiment.toml"), private).unwrap();
    let told = place.refused(&["account", "ledger", "public"]);
    assert!(told.contains("found no ledger of this private run"), "{told}");
}
