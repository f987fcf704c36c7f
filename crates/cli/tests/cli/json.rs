//! What `--json` prints is JSON, whatever stands in the texts, and nothing that a terminal would obey.

use std::fs;

use fedra_plan::Round;
use fedra_privacy::{Delta, Event, Guarantee, Ledger, Relation, Release, Unit};
use serde_json::Value;

use crate::place::{Place, text};

/// Directions of text, a deleted letter, an escape, a nothing, a line separator, a quote and a backslash.
const ODD: &str = "\u{202e}\u{200f}\u{61c}\u{7f}\u{1b}[31m\u{0}\u{9b}2J\u{2028}\"\\";

/// Whether a terminal would obey it.
fn is_obeyed(character: char) -> bool {
    let turns = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let line = matches!(character, '\u{2028}' | '\u{2029}');
    (character.is_control() && character != '\n') || turns || line
}

/// One object, and nothing raw in it.
#[track_caller]
fn object(place: &Place, arguments: &[&str]) -> Value {
    let told = place.succeed(arguments);
    assert!(!told.contains(is_obeyed), "{arguments:?}: {told:?}");
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {told:?}"))
}

#[test]
fn a_generation_is_the_text_that_was_written() {
    let place = Place::new();
    let words: Vec<String> = (0..60).map(|number| format!("كلمة{number}")).collect();
    place.save_decoder(&words.join(" "));
    // No vocabulary that grows has such letters, but one that somebody brings may.
    let file = place.path("decoder/tokenizer.json");
    let vocabulary = fs::read_to_string(&file).unwrap();
    fs::write(&file, vocabulary.replace("كلمة", "كلمة\\u200f\\u007f\\u202e")).unwrap();
    let mut odd = 0;
    for seed in 1..6 {
        let seed = seed.to_string();
        let asked = [
            &["generate", "--model", "decoder", "--max-tokens", "40", "--prompt", "كلمة"][..],
            &["--temperature", "1.5", "--seed", &seed],
        ]
        .concat();
        let plain = place.succeed(&asked);
        let told = object(&place, &[&asked[..], &["--json"]].concat());
        assert_eq!(told["text"].as_str().unwrap(), plain.strip_suffix('\n').unwrap());
        odd += usize::from(plain.contains(is_obeyed));
    }
    assert!(odd > 0, "no generation had a letter that a terminal would obey");
}

#[test]
fn what_was_released_is_told_as_it_was_written_down() {
    let place = Place::new();
    let guarantee = Guarantee {
        unit: Unit::Example,
        relation: Relation::AddRemove,
        delta: Delta::new(1e-5).unwrap(),
        budget: None,
    };
    let mut ledger = Ledger::new(guarantee).unwrap();
    let release =
        Release::NonPrivate { what: format!("scores {ODD}"), why: "أسباب".to_owned() };
    let (round, mechanism) = (Round(0), "evaluation".to_owned());
    ledger.append(&[Event { round, mechanism, client: None, input: None, release }]).unwrap();
    fs::write(place.path("ledger.jsonl"), ledger.to_lines().unwrap()).unwrap();
    let told = object(&place, &["account", "ledger", "ledger.jsonl", "--json"]);
    let statement = told["statement"].as_str().unwrap();
    assert!(statement.contains(&format!("scores {ODD}")) && statement.contains("أسباب"));
    assert_eq!(told["pld"], Value::Null);
}

#[test]
fn labels_of_any_writing_are_scored_by_their_names() {
    let place = Place::new();
    let labels = ["حمى\u{200f}", "\u{202e}سعال\u{7f}", "ألم"];
    let rows: Vec<String> = (0..60)
        .map(|row| {
            let text = format!("patient {} has pain {}", row, row % 3);
            serde_json::json!({ "text": text, "label": labels[row % 3], "site": row % 2 })
                .to_string()
        })
        .collect();
    fs::write(place.path("rows.jsonl"), rows.join("\n")).unwrap();
    let experiment = r#"
seed = 3
[data]
source = "jsonl"
path = "rows.jsonl"
task = "classes"
columns = { text = "text", label = "label", client = "site" }
shares = { central = 0.3, validation = 0.0, test = 0.0 }
max_tokens = 16
[model]
preset = "tiny-encoder"
blocks = 1
width = 16
heads = 2
vocabulary = 100
[federation]
rounds = 1
[work]
batch = 8
optimiser = { name = "adamw", rate = 1e-3 }
"#;
    fs::write(place.path("own.toml"), experiment).unwrap();
    place.succeed(&["run", "own.toml", "--out", "out", "--quiet"]);
    let told = object(&place, &["evaluate", "--model", "out", "own.toml", "--json"]).to_string();
    for label in labels {
        let label = serde_json::to_string(label).unwrap();
        assert!(told.contains(&label), "{label}: {told}");
    }
}

#[test]
fn quick_commands_print_one_object() {
    let place = Place::new();
    for arguments in [
        &["account", "epsilon", "--q", "0.01", "--sigma", "1", "--steps", "10", "--delta", "1e-5"]
            [..],
        &["account", "table", "--sigma", "1,2", "--q", "0.01", "--steps", "10", "--delta", "1e-5"],
        &["bench", "fold", "--updates", "2", "--shape", "tiny"],
        &["bench", "step", "--shape", "tiny", "--batch", "1", "--seq", "8", "--steps", "1"],
    ] {
        let output = place.fedra(&[arguments, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(serde_json::from_str::<Value>(&told).is_ok_and(|told| told.is_object()), "{told}");
    }
}

#[test]
fn families_are_timed_at_one_shape_beside_those_they_are_measured_against() {
    let place = Place::new();
    let once = ["bench", "families", "--batch", "1", "--steps", "1", "--turns", "1", "--json"];
    let chosen = ["modernbert", "qwen3", "dinov2"].map(|name| ["--family", name]).concat();
    let told: Value = serde_json::from_str(&place.succeed(&[&once[..], &chosen].concat())).unwrap();
    let rows = told["families"].as_array().unwrap();
    let named = |name: &str| rows.iter().find(|row| row["family"] == name).unwrap();
    assert_eq!(rows.len(), 6);
    for (name, against) in [("modernbert", "bert"), ("qwen3", "llama"), ("dinov2", "vit")] {
        assert_eq!(named(name)["against"], against);
        assert_eq!(named(against)["ratio"], 1.0);
        let parameters = |name: &str| named(name)["parameters"].as_f64().unwrap();
        let share = parameters(name) / parameters(against);
        assert!((0.85..1.15).contains(&share), "{name}: {share}");
    }
}

#[test]
fn an_unknown_family_is_answered_with_those_that_are_known() {
    let place = Place::new();
    for command in ["check", "families"] {
        let unknown = place.fedra(&["bench", command, "--family", "bert", "--family", "lama"]);
        assert!(!unknown.status.success());
        let said = text(&unknown.stderr);
        assert!(said.contains("--family: found \"lama\", expected one of bert, "), "{said}");
        assert!(said.contains(", qwen3, "), "{said}");
    }
}
