//! Adapters on the output vocabulary: learned under methods, cuts and privacy, and scored again from what is saved.

use std::fs;

use fedra_model::hf::Tensors as _;
use fedra_model::hf::safetensors::Reader;
use serde_json::{Value, json};

use crate::place::Place;

const WORDS: &str = "my head back foot hurts then rest walk sit well";

const EXPERIMENT: &str = r#"
[data]
source = "jsonl"
task = "language"
path = "notes.jsonl"
max_tokens = 24
shares = { central = 0.2, validation = 0.0, test = 0.0 }
[model]
path = "decoder"
lora = { rank = 4, target_modules = ["q_proj", "lm_head"], head = "frozen" }
[federation]
rounds = 2
[work]
batch = 4
optimiser = { name = "adamw", rate = 1e-2 }
"#;

/// Notes of two clinics; a decoder whose output vocabulary is a weight of its own.
fn place() -> Place {
    let place = Place::new();
    place.save_decoder(WORDS);
    let row = |row: usize| {
        let (ill, helps) = [("head", "rest"), ("back", "walk"), ("foot", "sit")][row % 3];
        let text = format!("my {ill} hurts then {helps} well");
        let clinic = ["north", "south"][row % 2];
        json!({"text": text, "client": clinic}).to_string()
    };
    fs::write(place.path("notes.jsonl"), (0..40).map(row).collect::<Vec<_>>().join("\n")).unwrap();
    fs::write(place.path("notes.toml"), EXPERIMENT).unwrap();
    place
}

fn run(place: &Place, out: &str, sets: &[&str]) {
    let sets = sets.iter().flat_map(|set| ["--set", *set]);
    let run = ["run", "notes.toml", "--quiet", "--out", out];
    place.succeed(&run.into_iter().chain(sets).collect::<Vec<_>>());
}

/// A decoder whose output vocabulary is its token embedding, wide enough for weights in fewer bits, in the folder
/// `tied-decoder`.
fn save_tied_decoder(place: &Place) {
    let fresh = "preset = \"tiny-decoder\"\nvocabulary = 200";
    fs::write(place.path("notes.toml"), EXPERIMENT.replace("path = \"decoder\"", fresh)).unwrap();
    run(place, "whole", &["model.lora.target_modules=[\"q_proj\"]"]);
    fs::write(place.path("notes.toml"), EXPERIMENT).unwrap();
    fs::rename(place.path("whole/model"), place.path("tied-decoder")).unwrap();
}

fn score(place: &Place, model: &str) -> f64 {
    let scored = place.succeed(&["evaluate", "--model", model, "notes.toml", "--json"]);
    let scored: Value = serde_json::from_str(&scored).unwrap();
    scored["sets"]["central_test"]["scores"]["perplexity"].as_f64().unwrap()
}

fn logged(place: &Place, run: &str) -> f64 {
    place.summary(run)["scores"]["central_test"]["perplexity"].as_f64().unwrap()
}

fn json_of(place: &Place, file: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(place.path(file)).unwrap()).unwrap()
}

fn adapter(place: &Place, run: &str) -> Vec<u8> {
    fs::read(place.path(&format!("{run}/adapter/adapter_model.safetensors"))).unwrap()
}

/// Whether the head's adapter does something: its B begins as zeros.
fn has_learned(place: &Place, run: &str) -> bool {
    let path = place.path(&format!("{run}/adapter/adapter_model.safetensors"));
    let numbers = Reader::open(path).unwrap().read_f32("base_model.model.lm_head.lora_B.weight");
    numbers.unwrap().iter().any(|value| *value != 0.0)
}

/// The scores of what is saved differ from those of the run by rounding.
const SAME: f64 = 1e-5;

#[test]
fn a_head_learns_through_its_adapter_and_scores_the_same_from_every_folder() {
    let place = place();
    save_tied_decoder(&place);
    for (name, base) in [("untied", "decoder"), ("tied", "tied-decoder")] {
        let ties = |folder: &str| json_of(&place, &format!("{folder}/config.json"));
        assert_eq!(ties(base)["tie_word_embeddings"], json!(name == "tied"));
        let path = format!("model.path={base}");
        run(&place, name, &[&path]);
        let expected = logged(&place, name);
        for folder in [name.to_owned(), format!("{name}/adapter"), format!("{name}/model")] {
            let found = score(&place, &folder);
            assert!((found / expected - 1.0).abs() < SAME, "{folder}: {found} {expected}");
        }
        assert_eq!(ties(&format!("{name}/model"))["tie_word_embeddings"], json!(false));
        let settings = json_of(&place, &format!("{name}/adapter/adapter_config.json"));
        assert_eq!(settings["target_modules"], json!(["lm_head", "q_proj"]));
        // It goes on from its own adapters, and writes what its merged model writes.
        let adapter = format!("model.adapter={name}/adapter");
        let more = format!("{name} more");
        let lora = "model.lora={ rank = 4, roles = [\"query\", \"lm_head\"], head = \"frozen\" }";
        run(&place, &more, &[&path, &adapter, lora]);
        assert!(logged(&place, &more) < expected, "{name}");
        let write = |folder: &str| {
            let flags = ["--max-tokens", "8", "--prompt", "my head"];
            place.succeed(&[&["generate", "--model", folder][..], &flags].concat())
        };
        assert_eq!(write(&format!("{name}/adapter")), write(&format!("{name}/model")));
    }
}

#[test]
fn adapters_of_the_head_learn_under_every_method() {
    let place = place();
    save_tied_decoder(&place);
    place.succeed(&["plan", "notes.toml"]);
    run(&place, "plain", &[]);
    let expected = adapter(&place, "plain");
    for (name, sets) in [
        ("cut", vec!["split={ first = 0, last = 1 }"]),
        ("safl", vec!["method={ name = \"safl\", k = 1 }"]),
        ("frozen", vec!["method={ name = \"fedfrozen\", warmup = 1 }"]),
        ("private", vec!["privacy={ epsilon = 8.0, noise = 1.0 }"]),
        ("freeze_a", vec!["model.lora.mean=freeze_a"]),
        ("exact", vec!["model.lora.mean=exact", "federation.ranks={ north = 2 }"]),
        ("dora", vec!["model.lora.dora=true"]),
        ("stabilised", vec!["model.lora.rslora=true"]),
        ("tied", vec!["model.path=tied-decoder"]),
        ("bf16", vec!["model.path=tied-decoder", "model.weights=bf16"]),
        ("int4", vec!["model.path=tied-decoder", "model.weights=int4"]),
    ] {
        run(&place, name, &sets);
        let is_same = adapter(&place, name) == expected;
        // Where a model is cut changes no bit of it.
        assert_eq!(is_same, name == "cut", "{name}");
        // Under SAFL the adapter of the head travels whichever block does.
        assert!(has_learned(&place, name), "{name}");
        let (found, expected) = (score(&place, name), logged(&place, name));
        assert!((found / expected - 1.0).abs() < SAME, "{name}: {found} {expected}");
    }
}

#[test]
fn a_head_that_learns_whole_or_is_none_gets_no_adapter() {
    let place = place();
    for (set, expected) in [
        ("model.lora.head=learns", "model.lora.head: found \"learns\", expected \"frozen\""),
        ("model.lora.target_modules=[\"lm_heads\"]", "self_attn.q_proj"),
        ("model.lora.target_modules=[\"embed_tokens\"]", "or lm_head"),
        ("data.task=classes", "trains a head whole"),
    ] {
        let refused = place.refused(&["plan", "notes.toml", "--set", set]);
        assert!(refused.contains(expected), "{set}: {refused}");
    }
    let tied = "model={ preset = \"tiny-decoder\", vocabulary = 200, lora = { rank = 2, dora = true, \
                roles = [\"vocabulary\"], head = \"frozen\" } }";
    let refused = place.refused(&["plan", "notes.toml", "--set", tied]);
    assert!(refused.contains("vocabulary with magnitudes"), "{refused}");
}
