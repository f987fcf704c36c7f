//! Client-level privacy from the file to the folder: what an experiment may ask for, and what a run leaves.

use fedra::{Experiment, Output, Overrides, Silent};

/// The tiny experiment under client-level privacy, with these lines before it and after it.
fn experiment(method: &str, more: &str) -> Result<Experiment, fedra::Error> {
    let text = include_str!("../tiny.toml");
    let text = format!(
        "method = {method}\n{text}\n{more}\n[privacy]\nunit = \"client\"\nnoise = 1.0\ndelta = 1e-3\n"
    );
    Experiment::from_toml(&text, &Overrides::default())
}

#[test]
fn fedfrozen_with_a_fixed_warm_up_runs_for_whole_clients() {
    let place = tempfile::tempdir().unwrap();
    for (number, method) in [
        r#"{ name = "fedfrozen", warmup = 1 }"#,
        r#"{ name = "fedfrozen", warmup = 0.5, stage2 = "strict", base = "fedadam" }"#,
        r#"{ name = "fedfrozen", warmup = 1, base = { name = "safl", k = 1 } }"#,
        r#""fedfrozen""#,
    ]
    .into_iter()
    .enumerate()
    {
        let experiment = experiment(method, "").expect(method);
        assert!(!experiment.recipe.evaluation.drift, "{method}");
        let out = place.path().join(number.to_string());
        let summary = fedra::run(&experiment, &Output::new(&out), &Silent).expect(method);
        let summary = summary.complete().expect("it runs to its end");
        assert!(summary.privacy.is_some_and(|privacy| privacy.epsilon.is_some()), "{method}");
    }
    // What clients measured decides nothing, and nobody is told how far they drift apart.
    for (method, more, key) in [
        (r#"{ name = "fedfrozen", warmup = "adaptive" }"#, "", "method.warmup"),
        (r#"{ name = "fedfrozen", warmup = "per_block" }"#, "", "method.warmup"),
        (r#"{ name = "fedfrozen", warmup = 1 }"#, "[evaluate]\ndrift = true", "evaluate.drift"),
    ] {
        let refused = experiment(method, more).expect_err(method).to_string();
        assert!(refused.contains(key), "{refused}");
    }
}

#[test]
fn a_run_to_which_nobody_came_ends_with_a_model_and_a_card_that_do_not_tell() {
    let place = tempfile::tempdir().unwrap();
    let run = |out: &str, more: &str| {
        let out = place.path().join(out);
        let experiment = experiment(r#"{ name = "safl", k = 1 }"#, more).expect("legal");
        let ending = fedra::run(&experiment, &Output::new(&out), &Silent).expect("it ends well");
        let summary = ending.complete().expect("it runs to its end");
        assert!(out.join("model/model.safetensors").is_file());
        let card = std::fs::read_to_string(out.join("model/README.md")).expect("a card");
        (summary, card)
    };
    let (everybody, told) = run("everybody", "");
    let (nobody, untold) = run("nobody", "[conditions]\nfail = 1.0");
    assert!(everybody.bytes.up.0 > 0 && nobody.bytes.up.0 == 0);
    assert_eq!(nobody.rounds, everybody.rounds);
    // Neither a number of rows nor a digest of them, against which candidates could be tried.
    assert!(!told.contains("partition over clients"), "{told}");
    assert!(told.contains("that did not share their training examples."), "{told}");
    // The scores are of another model; all else is the same.
    let facts = |card: &str| {
        let from = card.find("## How it was trained").expect("a table");
        card[from..].to_owned()
    };
    assert_eq!(facts(&told), facts(&untold));
}
