//! What the server and the clients of a federation must have in common, fact by fact.
//!
//! Two machines that read the same file may still differ: another version of the file, another folder of
//! weights, a tokenizer with one piece more. Each fact has a name, so that a comparison of two
//! agreements can say which one differs. Rows are no part of it: they differ between clients.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::config::{Experiment, Source};
use crate::error::Result;
use crate::prepare::fingerprint::digest;
use crate::prepare::prepared::Prepared;

/// Keys of `[data]` that may differ between machines: where rows lie, how they are written, what their columns
/// are called. All others decide what a client trains on or is scored on.
const OWN_DATA: [&str; 12] = [
    "source",
    "path",
    "clients",
    "train",
    "validation",
    "test",
    "columns",
    "delimiter",
    "encoding",
    "missing",
    "cache",
    // Compared as a digest: there may be thousands.
    "labels",
];

/// Keys of `[data]` that hold templates, in which column names may differ between machines.
const TEMPLATES: [&str; 3] = ["prompt", "answers", "target"];

/// Where a setting of a recipe stands in an experiment's file, if elsewhere.
const IN_THE_FILE: [(&str, &str); 14] = [
    ("adapters", "model.lora.mean"),
    ("depths", "federation.depths"),
    ("evaluation.attention", "evaluate.attention"),
    ("evaluation.drift", "evaluate.drift"),
    ("evaluation.every", "evaluate.every"),
    ("max_norm", "federation.max_norm"),
    ("min_arrivals", "federation.min_arrivals"),
    ("ranks", "federation.ranks"),
    ("privacy.guarantee.budget", "privacy.epsilon"),
    ("privacy.guarantee", "privacy"),
    ("sampler", "federation.sample"),
    ("start", "federation.start"),
    ("work.download", "wire.download"),
    ("work.encoding", "wire.encoding"),
];

/// The facts by name: settings under their keys, and digests of what is too long to say.
pub fn agreement(experiment: &Experiment, prepared: &Prepared) -> Result<BTreeMap<String, String>> {
    let raw = &experiment.raw;
    let mut facts = BTreeMap::new();
    flatten("data", &data(experiment)?, &mut facts);
    let mut settings = BTreeMap::new();
    flatten("", &as_written(&experiment.recipe)?, &mut settings);
    facts.extend(settings.into_iter().map(|(name, value)| (in_file(name), value)));
    let mut fact = |name: &str, value: String| facts.insert(name.to_owned(), value);
    fact("seed", raw.seed.to_string());
    fact("model.weights", raw.model.weights.to_string());
    fact("data.task", experiment.task.name().to_owned());
    fact("federation.names", raw.federation.names.join(", "));
    let Prepared { model, params, companions, shards, .. } = prepared;
    fact("data.labels", digest(|sum| sum.texts(shards.labels.names())).to_string());
    fact("model: its layout", model.layout().digest().to_string());
    let first = prepared.first_weights.unwrap_or_else(|| digest(|sum| sum.params(params)));
    fact("model: its initial weights", first.to_string());
    if let Some(tokenizer) = companions.tokenizer() {
        fact("model: its tokenizer", digest(|sum| sum.bytes(tokenizer)).to_string());
    }
    if let Some(template) = companions.get(fedra_model::hf::companions::CHAT_TEMPLATE) {
        fact("model: its chat template", digest(|sum| sum.bytes(template)).to_string());
    }
    if let Some(processor) = companions.processor() {
        fact("model: its image processor", digest(|sum| sum.bytes(processor)).to_string());
    }
    Ok(facts)
}

/// What of `[data]` has to be alike.
fn data(experiment: &Experiment) -> Result<Value> {
    let mut data = as_written(&experiment.raw.data)?;
    let is_clinic = matches!(experiment.source, Source::Clinic(_));
    if let Value::Object(keys) = &mut data {
        // Of rows that each party has for itself, the central test set takes none from a client.
        if let Some(Value::Object(shares)) = keys.get_mut("shares").filter(|_| !is_clinic) {
            shares.remove("central");
        }
        for own in OWN_DATA {
            keys.remove(own);
        }
        for name in TEMPLATES {
            match keys.get_mut(name) {
                // The name of a column.
                Some(Value::String(_)) if name == "answers" => drop(keys.remove(name)),
                Some(template) => forget_columns(template),
                None => {}
            }
        }
    }
    Ok(data)
}

/// The name that a setting of a recipe has in a file.
fn in_file(name: String) -> String {
    let renamed = IN_THE_FILE.iter().find_map(|(here, there)| {
        let rest = name.strip_prefix(here)?;
        (rest.is_empty() || rest.starts_with('.')).then(|| format!("{there}{rest}"))
    });
    renamed.unwrap_or(name)
}

/// A value as JSON reads it back: a short decimal number stays one, whatever its width in memory.
fn as_written(value: &impl Serialize) -> Result<Value> {
    Ok(serde_json::from_str(&serde_json::to_string(value)?)?)
}

/// Templates without the names of their columns.
fn forget_columns(template: &mut Value) {
    match template {
        Value::String(text) => {
            let mut kept = String::new();
            let mut is_name = false;
            for letter in text.chars() {
                is_name = is_name && letter != '}';
                if !is_name {
                    kept.push(letter);
                }
                is_name = is_name || letter == '{';
            }
            *text = kept;
        }
        Value::Array(inner) => inner.iter_mut().for_each(forget_columns),
        Value::Object(inner) => inner.values_mut().for_each(forget_columns),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Every number and word of a value under its full name.
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
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            facts.insert(name.to_owned(), shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;
    use crate::prepare::partitioned_data::PartitionedData;

    const FILE: &str = include_str!("../../tests/tiny.toml");

    fn facts(set: &str) -> BTreeMap<String, String> {
        let sets =
            if set.is_empty() { Overrides::default() } else { Overrides::default().set(set) };
        let experiment = Experiment::from_toml(FILE, &sets).unwrap();
        let holdings = PartitionedData::of(&experiment).unwrap();
        let device = fedra_compute::Device::cpu();
        let prepared =
            Prepared::of(&experiment, holdings, (&device, None), &fedra_data::Work::default())
                .unwrap();
        agreement(&experiment, &prepared).unwrap()
    }

    #[test]
    fn what_changes_a_clients_examples_is_compared_under_its_key_and_as_it_is_written() {
        let first = facts("");
        for (set, name, value) in [
            ("data.shares.validation=0.3", "data.shares.validation", "0.3"),
            ("data.max_examples=5", "data.max_examples", "5"),
            ("data.max_test=2", "data.max_test", "2"),
            ("data.max_tokens=24", "data.max_tokens", "24"),
            ("data.clinic.notes=30", "data.clinic.notes", "30"),
            ("work.optimiser.rate=0.002", "work.optimiser.rate", "0.002"),
            ("wire.encoding='bf16'", "wire.encoding", "bf16"),
            ("wire.download='bf16'", "wire.download", "bf16"),
            ("evaluate.every=2", "evaluate.every", "2"),
            ("federation.start='shared'", "federation.start", "shared"),
        ] {
            let other = facts(set);
            assert_ne!(first.get(name), other.get(name), "{set}: {other:?}");
            assert_eq!(other.get(name).map(String::as_str), Some(value), "{set}: {other:?}");
        }
        assert_eq!(first["data.max_tokens"], "32");
        let named = |name: &str| in_file(name.to_owned());
        assert_eq!(named("privacy.guarantee.budget"), "privacy.epsilon");
        assert_eq!(named("privacy.guarantee.delta"), "privacy.delta");
        assert_eq!(named("privacy.clip"), "privacy.clip");
        assert!(!first.contains_key("data.max_test"));
    }

    #[test]
    fn templates_are_compared_without_the_names_of_columns() {
        let mut template = serde_json::json!(["{note} is {answer}?", { "yes": "so {x}" }]);
        forget_columns(&mut template);
        assert_eq!(template, serde_json::json!(["{} is {}?", { "yes": "so {}" }]));
    }
}
