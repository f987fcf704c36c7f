//! What the parties of a federation have to have alike, fact by fact.
//!
//! Two machines that read the same file may still differ: another version of the file, another folder of
//! weights, a tokenizer with one piece more. Each fact has a name, so that whoever compares two
//! agreements can say which one differs. Rows are no part of it: they are each party's own.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::Result;
use crate::experiment::Experiment;
use crate::fingerprint;
use crate::prepared::Prepared;

/// The facts by name: settings under their keys, and digests of what is too long to say.
pub fn agreement(experiment: &Experiment, prepared: &Prepared) -> Result<BTreeMap<String, String>> {
    let draft = &experiment.draft;
    let mut facts = BTreeMap::new();
    let mut fact = |name: &str, value: String| facts.insert(name.to_owned(), value);
    fact("seed", draft.seed.to_string());
    fact("data.task", experiment.task.name().to_owned());
    fact("data.max_tokens", format!("{:?}", draft.data.max_tokens));
    fact("federation.names", draft.federation.names.join(", "));
    let Prepared { model, params, companions, shards, .. } = prepared;
    fact("data.labels", fingerprint::of_texts(shards.labels.names()).to_string());
    fact("model: its layout", model.layout().digest().to_string());
    let first = prepared.first_weights.unwrap_or_else(|| fingerprint::of_params(params));
    fact("model: its first weights", first.to_string());
    if let Some(tokenizer) = companions.tokenizer() {
        fact("model: its tokenizer", fingerprint::of_bytes(tokenizer).to_string());
    }
    flatten("", &serde_json::to_value(&experiment.recipe)?, &mut facts);
    Ok(facts)
}

/// Every number and word of a recipe under its full name.
fn flatten(name: &str, value: &Value, facts: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                flatten(&name, value, facts);
            }
        }
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            facts.insert(name.to_owned(), value.to_string());
        }
    }
}
