//! A folder with a small encoder and rows of three labels.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;

use fedra::compute::{Device, Seed};
use fedra::data::Tokenizer;
use fedra::model::hf::{Companions, Config, Precision};
use fedra::model::{Head, Model, Saving, save};
use serde_json::json;

const LABELS: [&str; 3] = ["heart", "lung", "skin"];
/// Rows whose words the tokenizer knows.
const ROWS: usize = 48;

/// The texts of the rows, which begin again behind the last.
pub fn texts() -> Vec<String> {
    (0..ROWS).map(|row| format!("note {} of the {}", row % 5, LABELS[row % 3])).collect()
}

/// A model of three blocks in `base`, and so many rows of these clients in `rows.jsonl`.
pub fn with_rows(rows: usize, clients: &[&str]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let texts = texts();
    let tokenizer = Tokenizer::grow(texts.iter().map(String::as_str), 80).unwrap();
    let companions = Companions::with_tokenizer(tokenizer.json().as_bytes().to_vec()).unwrap();
    let config = json!({
        "model_type": "bert", "vocab_size": tokenizer.vocabulary_size(), "hidden_size": 48,
        "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96, "hidden_act": "gelu",
        "max_position_embeddings": 16, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    });
    let file = place.path().join("config.json");
    let config = Config::parse(&file, config.to_string().as_bytes()).unwrap();
    let model = Model::new(config, Head::Bare, None).unwrap();
    let params = model.fresh_params(&Device::cpu(), Seed(4)).unwrap();
    let saving =
        Saving { precision: Precision::F32, labels: None, problem: None, companions: &companions };
    save(&place.path().join("base"), &model, &params, &saving).unwrap();
    let rows = texts.into_iter().zip(LABELS.into_iter().cycle()).cycle().take(rows).enumerate();
    let rows = rows.map(|(row, (text, label))| {
        let client = clients[row / 3 % clients.len()];
        json!({ "text": text, "label": label, "client": client }).to_string() + "\n"
    });
    fs::write(place.path().join("rows.jsonl"), rows.collect::<String>()).unwrap();
    place
}
