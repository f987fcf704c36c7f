//! Pairs of answers: proposed, shown, learned under methods and privacy, scored, and refused.

use std::fs;

use serde_json::{Value, json};

use crate::place::{Place, text};

const EXPERIMENT: &str = r#"
[data]
source = "jsonl"
task = "preference"
path = "pairs.jsonl"
columns = { client = "clinic" }
max_tokens = 32
shares = { central = 0.2, validation = 0.0, test = 0.0 }
[model]
preset = "tiny-decoder"
vocabulary = 200
lora = { rank = 2, head = "frozen" }
[federation]
rounds = 2
[work]
batch = 4
preference = { beta = 0.5 }
optimiser = { name = "adamw", rate = 1e-2 }
"#;

fn rows() -> Vec<[String; 4]> {
    let row = |number: usize| {
        let (ill, helps) = [("head", "rest"), ("back", "walk"), ("foot", "sit")][number % 3];
        let clinic = ["north", "south"][number % 2];
        [
            format!("my {ill} hurts {number}"),
            format!("then {helps} well"),
            "no idea".into(),
            clinic.into(),
        ]
    };
    (0..40).map(row).collect()
}

fn write_pairs(place: &Place) {
    let line = |[prompt, chosen, rejected, clinic]: [String; 4]| json!({"prompt": prompt, "chosen": chosen, "rejected": rejected, "clinic": clinic});
    let lines: Vec<String> = rows().into_iter().map(|row| line(row).to_string()).collect();
    fs::write(place.path("pairs.jsonl"), lines.join("\n")).unwrap();
    fs::write(place.path("pairs.toml"), EXPERIMENT).unwrap();
}

#[test]
fn pairs_are_proposed_shown_and_read_alike_in_every_layout() {
    let place = Place::new();
    write_pairs(&place);
    let written = place.succeed(&["init", "pairs.jsonl", "--yes", "--out", "-"]);
    for part in ["task = \"preference\"", "head = \"frozen\"", "preset = \"tiny-decoder\""] {
        assert!(written.contains(part), "{part} in {written}");
    }
    let shown = text(&place.fedra(&["data", "pairs.toml"]).stdout);
    for part in [
        "which of two answers is preferred",
        "  | user: my head",
        "  | chosen: then",
        "  | rejected: no idea",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
    let run = |out: &str, columns: &str| {
        let columns = format!("data.columns={columns}");
        place.succeed(&["run", "pairs.toml", "--quiet", "--out", out, "--set", &columns]);
        place.weights(out)
    };
    let once = run("texts", "{ client = \"clinic\" }");
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    let whole = |[prompt, chosen, rejected, clinic]: [String; 4]| {
        let asked = message("user", &prompt);
        let with = |answer: &str| json!([asked, message("assistant", answer)]);
        json!({"chosen": with(&chosen), "rejected": with(&rejected), "clinic": clinic})
    };
    let lines: Vec<String> = rows().into_iter().map(|row| whole(row).to_string()).collect();
    fs::write(place.path("pairs.jsonl"), lines.join("\n")).unwrap();
    assert!(run("whole", "{ client = \"clinic\" }") == once);
    let named = |[prompt, chosen, rejected, clinic]: [String; 4]| json!({"q": [message("user", &prompt)], "good": chosen, "bad": rejected, "clinic": clinic});
    let lines: Vec<String> = rows().into_iter().map(|row| named(row).to_string()).collect();
    fs::write(place.path("pairs.jsonl"), lines.join("\n")).unwrap();
    let columns = "{ client = \"clinic\", prompt = \"q\", chosen = \"good\", rejected = \"bad\" }";
    assert!(run("named", columns) == once);
}

#[test]
fn pairs_are_learned_under_methods_and_privacy_and_scored() {
    let place = Place::new();
    write_pairs(&place);
    place.succeed(&["plan", "pairs.toml"]);
    let run = |out: &str, sets: &[&str]| {
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        let run = ["run", "pairs.toml", "--quiet", "--out", out];
        place.succeed(&run.into_iter().chain(sets).collect::<Vec<_>>());
        place.weights(out)
    };
    let whole = run("whole", &["federation.rounds=6"]);
    let summary = place.summary("whole");
    assert_eq!(summary["score"]["name"], "preference_accuracy");
    // Answers that never change are soon told apart.
    let scores = &summary["scores"]["central_test"];
    assert!(scores["preference_accuracy"].as_f64().unwrap() > 0.9, "{summary}");
    assert!(scores["margin"].as_f64().unwrap() > 0.5, "{summary}");
    run("half", &["federation.rounds=3"]);
    fs::copy(place.path("whole/experiment.toml"), place.path("half/experiment.toml")).unwrap();
    fs::remove_file(place.path("half/summary.json")).unwrap();
    place.succeed(&["run", "--resume", "half", "--quiet"]);
    assert!(place.weights("half") == whole);
    for (name, sets) in [
        ("safl", vec!["method={ name = \"safl\", k = 1 }"]),
        ("frozen", vec!["method={ name = \"fedfrozen\", warmup = 1 }"]),
        ("ipo", vec!["work.preference={ loss = \"ipo\", beta = 0.3 }"]),
        ("dropout", vec!["work.dropout=0.1"]),
        ("dora", vec!["model.lora.dora=true"]),
        ("head", vec!["model.lora.target_modules=[\"q_proj\", \"lm_head\"]"]),
    ] {
        assert!(run(name, &sets) != whole, "{name}");
    }
    // From a model that has learned already, with a pair as the unit of privacy; scored against that model.
    let over =
        EXPERIMENT.replace("preset = \"tiny-decoder\"\nvocabulary = 200", "path = \"whole/model\"");
    fs::write(place.path("over.toml"), over).unwrap();
    let privacy = "privacy={ epsilon = 8.0, noise = 1.0 }";
    let dora = "model.lora.dora=true";
    let run = ["run", "over.toml", "--quiet", "--out", "private", "--set", privacy, "--set", dora];
    place.succeed(&run);
    assert_eq!(place.summary("private")["privacy"]["guarantee"]["unit"], "example");
    let score = |model: &str| -> Value {
        let scored = place.succeed(&["evaluate", "--model", model, "over.toml", "--json"]);
        let scored: Value = serde_json::from_str(&scored).unwrap();
        scored["sets"]["central_test"]["scores"].clone()
    };
    let (scored, logged) = (score("private"), &place.summary("private")["scores"]["central_test"]);
    assert_eq!(scored["preference_accuracy"], logged["preference_accuracy"], "{scored}");
    let away = scored["margin"].as_f64().unwrap() - logged["margin"].as_f64().unwrap();
    assert!(away.abs() < 1e-6, "{scored} {logged}");
    assert_eq!(score("private/adapter"), scored);
    let refused = place.refused(&["evaluate", "--model", "whole/model", "over.toml"]);
    assert!(refused.contains("against the model without them"), "{refused}");
}

#[test]
fn what_preferences_cannot_be_combined_with_is_refused_by_its_key() {
    let place = Place::new();
    write_pairs(&place);
    for (set, expected) in [
        ("model.lora={ rank = 2 }", "model.lora.head"),
        ("split={ first = 0, last = 1 }", "preference cannot be combined with [split]"),
        ("work.label_smoothing=0.1", "work.preference = { label_smoothing = 0.1 }"),
        ("work.preference={ beta = 0.0 }", "work.preference.beta"),
        ("work.preference={ loss = \"ipo\", label_smoothing = 0.1 }", "which has no smoothing"),
        ("data.columns={ answer = \"chosen\" }", "to the task chat"),
        ("data.task=chat", "work.preference applies only to the task preference"),
    ] {
        let refused = place.refused(&["plan", "pairs.toml", "--set", set]);
        assert!(refused.contains(expected), "{set}: {refused}");
    }
    let bare = EXPERIMENT.replace("lora = { rank = 2, head = \"frozen\" }\n", "");
    fs::write(place.path("bare.toml"), bare).unwrap();
    let refused = place.refused(&["plan", "bare.toml"]);
    assert!(refused.contains("the reference of a preference"), "{refused}");
}

#[test]
fn names_of_peft_and_a_rank_stabilised_scale_are_the_same_adapters() {
    let place = Place::new();
    write_pairs(&place);
    let run = |out: &str, lora: &str| {
        let lora = format!("model.lora={lora}");
        place.succeed(&["run", "pairs.toml", "--quiet", "--out", out, "--set", &lora]);
        place.weights(out)
    };
    let plain =
        run("plain", "{ rank = 4, alpha = 32.0, roles = [\"query\", \"up\"], head = \"frozen\" }");
    let named = "target_modules = [\"q_proj\", \"up_proj\"]";
    let stabilised =
        format!("{{ rank = 4, alpha = 16.0, rslora = true, {named}, head = \"frozen\" }}");
    assert!(run("stabilised", &stabilised) == plain);
    assert!(run("other", &stabilised.replace("rslora = true, ", "")) != plain);
}
