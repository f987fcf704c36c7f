//! Multiple choice in the columns of the usual sets, and win rates of judgements.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use crate::place::{Place, text};

const WORDS: &str =
    "no chest pain but a cough and some fever since three days which one is it Answer A. B. C. D.";
const OPTIONS: [&str; 4] = ["chest pain", "cough", "fever", "three days"];
/// Each set with the options and the number of the first as `fedra init` writes them.
const SETS: [(&str, &str); 6] = [
    ("medmcqa", "options = [\"opa\", \"opb\", \"opc\", \"opd\"], by = \"letter\""),
    ("from-one", "options = [\"opa\", \"opb\", \"opc\", \"opd\"], by = \"letter\", first = 1"),
    ("medqa", "options = \"options\", by = \"letter\""),
    ("mmlu", "options = \"choices\", by = \"letter\""),
    ("mmlu-pro", "options = \"options\", by = \"letter\""),
    ("arc", "options = \"choices\", by = \"letter\""),
];

/// The same questions as a set has them.
fn row(set: &str, n: usize) -> Value {
    let right = (n * 7 + n / 3) % 4;
    let letter = ["A", "B", "C", "D"][right];
    let question = format!("which one is it since {n} days");
    let [a, b, c, d] = OPTIONS;
    match set {
        "medmcqa" => {
            json!({"question": question, "opa": a, "opb": b, "opc": c, "opd": d, "cop": right})
        }
        "from-one" => {
            json!({"question": question, "opa": a, "opb": b, "opc": c, "opd": d, "cop": right + 1})
        }
        "medqa" => json!({"question": question, "answer": OPTIONS[right], "answer_idx": letter,
            "options": {"A": a, "B": b, "C": c, "D": d}}),
        "mmlu" => {
            json!({"question": question, "choices": OPTIONS, "answer": right, "subject": "x"})
        }
        "mmlu-pro" => json!({"question": question, "options": OPTIONS, "answer": letter}),
        _ => json!({"question": question, "answerKey": (right + 1).to_string(),
            "choices": {"text": OPTIONS, "label": ["1", "2", "3", "4"]}}),
    }
}

#[test]
fn the_usual_sets_are_proposed_shown_and_scored_alike_by_letter_and_by_text() {
    let place = Place::new();
    place.save_decoder_of(WORDS, 256);
    let mut scores: Vec<Value> = Vec::new();
    for (set, answers) in SETS {
        let rows: Vec<String> = (0..40).map(|n| row(set, n).to_string()).collect();
        let (file, experiment) = (format!("{set}.jsonl"), format!("{set}.toml"));
        fs::write(place.path(&file), rows.join("\n")).unwrap();
        place.succeed(&["init", &file, "--yes", "--model", "decoder", "--clients", "2"]);
        let written = fs::read_to_string(place.path(&experiment)).unwrap();
        assert!(written.contains("task = \"choice\""), "{set}: {written}");
        assert!(written.contains(answers), "{set}: {answers} in {written}");
        assert!(
            written.contains("prompt = \"{question}\\n{options}\\nAnswer:\""),
            "{set}: {written}"
        );
        let shown = place.succeed(&["data", &experiment]);
        assert!(shown.contains("A. chest pain\n") && shown.contains("D. three days\n"), "{shown}");
        let evaluate = |more: &[&str]| -> Value {
            let all = ["evaluate", "--model", "decoder", &experiment, "--json"];
            let central = ["--set", "data.shares={ central = 0.9, validation = 0.0, test = 0.0 }"];
            let report = place.succeed(&[&all[..], &central, more].concat());
            let report: Value = serde_json::from_str(&report).unwrap();
            report["sets"]["central_test"].clone()
        };
        let by_letter = evaluate(&[]);
        assert!(by_letter["examples"].as_u64().unwrap() > 20, "{by_letter}");
        let table = answers.replace("letter", "text");
        let by_text = evaluate(&[
            "--set",
            &format!("data.answers={{ {table} }}"),
            "--set",
            "data.length_norm=tokens",
        ]);
        assert_ne!(by_letter["scores"]["loss"], by_text["scores"]["loss"]);
        scores.push(json!([by_letter["scores"], by_text["scores"]]));
    }
    // The same questions, options and answers, so the same rows, split and scores.
    for (score, (set, _)) in scores.iter().zip(SETS) {
        assert_eq!(score, &scores[0], "{set}");
    }
}

#[test]
fn a_run_learns_which_letter_is_right_and_secret_answers_are_left_out_on_request() {
    let place = Place::new();
    place.save_decoder_of(WORDS, 256);
    // The right option is always the same word, at another letter each time.
    let rotated = |n: usize| {
        let mut options = OPTIONS.to_vec();
        options.rotate_left(n % 4);
        let right = options.iter().position(|option| *option == "fever").unwrap();
        json!({"question": "which one is it", "choices": options, "answer": right, "id": n})
    };
    let mut rows: Vec<String> = (0..60).map(|n| rotated(n).to_string()).collect();
    rows.push(json!({"question": "which one is it", "choices": OPTIONS, "answer": -1}).to_string());
    fs::write(place.path("ask.jsonl"), rows.join("\n")).unwrap();
    fs::write(
        place.path("ask.toml"),
        r#"
[data]
source = "jsonl"
task = "choice"
path = "ask.jsonl"
prompt = "{question}\n{options}\nAnswer:"
answers = { options = "choices" }
columns = { label = "answer" }
max_tokens = 64
partition = { by = "iid" }
shares = { central = 0.3, validation = 0.0, test = 0.0 }
[model]
path = "decoder"
[federation]
clients = 2
rounds = 6
[work]
batch = 4
epochs = 2
optimiser = { name = "adamw", rate = 1e-2 }
"#,
    )
    .unwrap();
    let told = place.refused(&["run", "ask.toml"]);
    assert!(told.contains("ask.jsonl:61: found the right answer \"-1\""), "{told}");
    place.succeed(&["run", "ask.toml", "--out", "asked", "--set", "data.missing=drop"]);
    let summary = place.summary("asked");
    assert_eq!(summary["score"]["name"], "macro_f1", "{}", summary["score"]);
    // A model without attention to the options would be right in a quarter of all cases.
    assert!(summary["score"]["value"].as_f64().unwrap() > 0.1, "{}", summary["score"]);
}

#[test]
fn judgements_become_a_win_rate_with_its_interval_and_what_the_place_does() {
    let place = Place::new();
    let mut rows = String::from("id,winner,judge,position,category\n");
    for n in 0..60 {
        let category = if n < 30 { "qa" } else { "notes" };
        for first in ["a", "b"] {
            let winner = if n % 3 == 0 { first } else { "a" };
            writeln!(rows, "{n},{winner},ann,{first},{category}").unwrap();
        }
    }
    fs::write(place.path("verdicts.csv"), rows).unwrap();
    let shown = place.succeed(&["judgements", "verdicts.csv"]);
    for part in [
        "win rate of a: 83.3 % of 60 examples, 95 % interval ",
        "120 judgements: 100 won by a, 20 by b, 0 ties",
        "the first answer wins: 66.7 % of 60 examples",
        "the judges prefer the first answer",
        "judged in both orders: 60 pairs, of which 40 have the same winner",
        "notes",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
    let report = |seed: &str| -> Value {
        let report = place.succeed(&["judgements", "verdicts.csv", "--json", "--seed", seed]);
        serde_json::from_str(&report).unwrap()
    };
    assert_eq!(report("1"), report("1"));
    assert!(["2", "3", "4", "5"].iter().any(|seed| report(seed) != report("1")));
    assert_eq!(report("1")["position"]["swapped"], 60);
    fs::write(place.path("wrong.jsonl"), "{\"id\": 1, \"winner\": \"c\"}\n").unwrap();
    let output = place.fedra(&["judgements", "wrong.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("wrong.jsonl:1: winner: found \"c\""));
}
