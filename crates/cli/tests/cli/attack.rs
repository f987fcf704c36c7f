//! `fedra attack split`: refusals with status 2, and a real decoder read to the last token.

use std::fs;

use serde_json::Value;

use crate::place::{Place, shared};

#[test]
fn an_attack_that_makes_no_sense_is_refused() {
    let place = Place::new();
    fs::write(place.path("lines.txt"), "a line of text\n").unwrap();
    let cases: [(&[&str], &str); 8] = [
        (&[], "--model"),
        (&["--model", "m"], "--text"),
        (&["--model", "m", "--text", "no.txt"], "--text: cannot open no.txt"),
        (&["--model", "m", "--text", "lines.txt"], "--model"),
        (&["--model", "m", "--text", "lines.txt", "--gamma", "loud"], "invalid value 'loud'"),
        (&["--model", "m", "--text", "lines.txt", "--noise", "clipped"], "--norm: found nothing"),
        (&["--model", "m", "--text", "lines.txt", "--norm", "3"], "--norm: found a number"),
        (&["--model", "m", "--text", "lines.txt", "--rare", "2"], "--rare: found 2"),
    ];
    for (arguments, expected) in cases {
        let error = place.refused(&[&["attack", "split"], arguments].concat());
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn a_trained_decoder_is_read_without_noise_and_its_page_says_so() {
    let (place, model) = (Place::new(), shared("models/stories260k").display().to_string());
    let names = ["Lily", "Tom", "Anna", "Ben", "the cat", "a big dog"];
    let line = |row: usize| {
        let (name, other) = (names[row % 6], names[(row / 6 + 1) % 6]);
        let toy = ["ball", "box", "tree"][row % 3];
        format!("Once upon a time, {name} saw {other} near a {toy}.\n")
    };
    let lines = (0..60).map(line).collect::<Vec<String>>().concat();
    fs::write(place.path("lines.txt"), lines).unwrap();
    let common = ["attack", "split", "--model", &model, "--text", "lines.txt"];
    let run = |more: &[&'static str]| [&common[..], more].concat();
    let told = place.succeed(&run(&[
        "--lines",
        "2",
        "--gamma",
        "0,50",
        "--tokens",
        "16",
        "--tune-steps",
        "2",
        "--json",
        "--out",
        "attack",
    ]));
    let findings: Vec<Value> =
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let accuracy = |attack: &str, knowledge: &str, gamma: f64| {
        let is = |one: &&Value| {
            one["attack"] == attack
                && one["knowledge"] == knowledge
                && one["setting"]["noise"]["kind"]["relative"]["gamma"] == gamma
        };
        findings.iter().find(is).unwrap()["accuracy"].as_f64().unwrap()
    };
    assert_eq!(accuracy("search", "exact", 0.0), 1.0);
    assert!(accuracy("search", "exact", 50.0) < 0.2);
    assert!(accuracy("inverter", "pretrained", 0.0) > accuracy("shifted_inverter", "exact", 0.0));
    let page = fs::read_to_string(place.path("attack/index.html")).unwrap();
    assert!(page.contains("recovery-by-loss.svg") && page.contains("averaging.svg"));

    let refused = [
        (&["--first", "5"][..], "first: found 5, expected less than 5"),
        (&["--tokens", "4"], "--tokens: found 4, expected at least 9"),
        (&["--tokens", "600"], "--tokens: found 600, expected at most 512"),
        (&["--gamma=-1"], "noise gamma: found -1, expected finite and at least 0"),
        (&["--lines", "70"], "the private text: found 60 lines"),
        (&["--lines", "30"], "the public text: found no line"),
    ];
    for (more, expected) in refused {
        let error = place.refused(&run(more));
        assert!(error.contains(expected), "{more:?}: {error}");
    }
}
