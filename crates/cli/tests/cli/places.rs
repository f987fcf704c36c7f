//! Errors of experiment files show where the key was written.

use std::fs;

use crate::place::Place;

/// Replaces a line of the tiny experiment and runs it.
#[track_caller]
fn check(from: &str, to: &str, expected: &str) {
    let place = Place::new();
    let tiny = fs::read_to_string(place.path("tiny.toml")).unwrap();
    assert!(tiny.contains(from), "{from}");
    fs::write(place.path("x.toml"), tiny.replacen(from, to, 1)).unwrap();
    let refused = place.refused(&["run", "x.toml"]);
    assert_eq!(refused, format!("error: {expected}\n"));
}

#[test]
fn values_keys_and_words_are_shown_with_their_line() {
    check(
        "batch = 8",
        "batch = 0",
        "work.batch: found 0, expected at least 1\n   --> x.toml:23:9\n   |\n23 | batch = 0\n   |         ^",
    );
    check(
        "clients = 3",
        "clents = 3",
        "federation.clents: unknown key\n   --> x.toml:20:1\n   |\n\
         20 | clents = 3\n   | ^^^^^^\nhint: did you mean federation.clients?",
    );
    check(
        "rate = 1e-3",
        "rate = \"fast\"",
        "work.optimiser.rate: found \"fast\", expected a number\n   --> x.toml:24:38\n   |\n\
         24 | optimiser = { name = \"adamw\", rate = \"fast\" }\n   |                                      ^^^^^^",
    );
    check(
        "rounds = 3\n",
        "",
        "federation.rounds is missing, expected at least 1\n   --> x.toml:18:2\n   |\n\
         18 | [federation]\n   |  ^^^^^^^^^^",
    );
}

#[test]
fn what_only_the_data_show_is_placed_too() {
    check(
        "clients = 3",
        "clients = 3\nnames = [\"a\", \"b\", \"c\"]",
        "federation.names cannot be combined with the synthetic clinic, which names its hospitals\n   \
         --> x.toml:21:9\n   |\n21 | names = [\"a\", \"b\", \"c\"]\n   |         ^^^^^^^^^^^^^^^",
    );
    let place = Place::new();
    fs::write(place.path("rows.csv"), "text,label,client\na,x,n\nb,y,s\nc,x,n\nd,y,s\n").unwrap();
    let text = "[data]\nsource = 'csv'\ntask = 'classes'\npath = 'rows.csv'\n[federation]\nrounds = 1\n\
                clients = 5\n";
    fs::write(place.path("own.toml"), text).unwrap();
    let refused = place.refused(&["data", "own.toml"]);
    assert!(
        refused.contains(" --> own.toml:7:11\n  |\n7 | clients = 5\n  |           ^"),
        "{refused}"
    );
}

#[test]
fn a_variant_of_a_comparison_is_shown_where_it_stands() {
    let place = Place::new();
    let tiny = fs::read_to_string(place.path("tiny.toml")).unwrap();
    let table = "[compare]\nvariants = [\n  { name = 'a' },\n  { name = 'b', set = { 'work.batch' = 0 } },\n]\n";
    fs::write(place.path("x.toml"), tiny + table).unwrap();
    let refused = place.refused(&["compare", "x.toml"]);
    assert!(refused.contains("work.batch: found 0, expected at least 1\n"), "{refused}");
    assert!(refused.contains(" --> x.toml:28:40\n"), "{refused}");
    let refused = place.refused(&["compare", "tiny.toml", "--sweep", "work.batch=4,0"]);
    assert!(refused.contains("--> work.batch = 0, which the comparison sets"), "{refused}");
}
