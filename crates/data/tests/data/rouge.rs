//! ROUGE is that of the `rouge-score` package (`tools/rouge_fixtures.py`), on pairs of our own and
//! on real dialogues with their notes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use fedra_data::Rouge;
use serde_json::Value;

/// Both add a handful of fractions; the fixture of real pairs has twelve digits.
const CLOSE: f64 = 1e-11;

fn fixture() -> Value {
    serde_json::from_str(include_str!("../fixtures/rouge.json")).unwrap()
}

fn check(reference: &str, text: &str, expected: &[Value]) {
    let Rouge { one, two, longest } = Rouge::of(reference, text);
    let scores = [one, two, longest];
    assert_eq!(expected.len(), scores.len());
    for (found, expected) in scores.iter().zip(expected) {
        let expected = expected.as_f64().unwrap();
        assert!((found - expected).abs() < CLOSE, "{scores:?} {expected} {reference:?} {text:?}");
    }
}

#[test]
fn scores_are_those_of_the_reference() {
    let fixture = fixture();
    let pairs = fixture["pairs"].as_array().unwrap();
    assert!(pairs.len() > 200);
    for pair in pairs {
        let [reference, text, expected @ ..] = pair.as_array().unwrap().as_slice() else {
            panic!()
        };
        check(reference.as_str().unwrap(), text.as_str().unwrap(), expected);
    }
}

#[test]
#[ignore = "needs ../shared/data/mts-dialog: tools/test-shared"]
fn scores_of_real_notes_are_those_of_the_reference() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/mts-dialog/test1.jsonl");
    let rows = std::fs::read_to_string(file).unwrap();
    let fixture = fixture();
    let real = fixture["real"].as_array().unwrap();
    assert_eq!(real.len(), 200);
    for (row, expected) in rows.lines().zip(real) {
        let row: Value = serde_json::from_str(row).unwrap();
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        check(&text("note"), &text("dialogue"), expected.as_array().unwrap());
    }
}
