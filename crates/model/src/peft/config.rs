//! What `adapter_config.json` says, as far as it changes numbers.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::ModelError;
use crate::hf::file;

/// Largest file.
const MAX_BYTES: u64 = 16 << 20;

/// Keys that change no number of a finished adapter: where it came from, how it was trained, and
/// which modules it is for, which its tensors say too.
const HARMLESS: [&str; 22] = [
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "megatron_core",
    "modules_to_save",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
];

/// Ways to start that leave the base as it is.
const PLAIN_STARTS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

/// The size of an adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AdapterConfig {
    pub rank: usize,
    /// The correction is `alpha / rank * B A`, whatever the file's own convention.
    pub alpha: f32,
}

impl AdapterConfig {
    /// Reads and checks a file.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let object: Map<String, Value> = serde_json::from_slice(&file::read(path, MAX_BYTES)?)
            .map_err(|e| ModelError::file(path, e.to_string(), "a JSON object"))?;
        Self::read(path, &object)
    }

    fn read(path: &Path, object: &Map<String, Value>) -> Result<Self, ModelError> {
        let refuse = |key: &str, expected: &str| {
            let found = object.get(key).map_or("nothing".into(), Value::to_string);
            Err(ModelError::config(path, key, found, expected))
        };
        if object.get("peft_type").and_then(Value::as_str) != Some("LORA") {
            return refuse("peft_type", "\"LORA\"");
        }
        let start = object.get("init_lora_weights").unwrap_or(&Value::Null);
        if start.as_str().is_some_and(|start| !PLAIN_STARTS.contains(&start)) {
            return refuse(
                "init_lora_weights",
                "an initialisation that does not change the base model",
            );
        }
        match object.get("bias").and_then(Value::as_str) {
            None | Some("none") => {}
            Some(_) => return refuse("bias", "\"none\": no trained bias"),
        }
        let known = |key: &str| HARMLESS.contains(&key) || key == "bias" || key == "use_rslora";
        if let Some((key, _)) = object.iter().find(|(key, value)| !known(key) && !is_off(value)) {
            return refuse(key, "no such key, or false: it changes what an adapter computes");
        }
        let rank = object.get("r").and_then(Value::as_u64).and_then(|r| usize::try_from(r).ok());
        let Some(rank) = rank.filter(|&rank| rank > 0) else {
            return refuse("r", "a whole number above 0");
        };
        let alpha = object.get("lora_alpha").and_then(Value::as_f64);
        let Some(alpha) = alpha.filter(|alpha| alpha.is_finite() && *alpha > 0.0) else {
            return refuse("lora_alpha", "a number above 0");
        };
        // Rank-stabilised: alpha over the root of the rank.
        let stabilised = match object.get("use_rslora").unwrap_or(&Value::Null) {
            Value::Null | Value::Bool(false) => 1.0,
            Value::Bool(true) => (rank as f64).sqrt(),
            Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                return refuse("use_rslora", "true or false");
            }
        };
        Ok(Self { rank, alpha: (alpha * stabilised) as f32 })
    }
}

/// Absent, false or empty.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(change: &str) -> Result<AdapterConfig, ModelError> {
        let plain = r#"{"peft_type":"LORA","r":4,"lora_alpha":8,"bias":"none","use_dora":false,
            "rank_pattern":{},"target_modules":["q_proj"]}"#;
        let mut object: Map<String, Value> = serde_json::from_str(plain).unwrap();
        let change: Map<String, Value> = serde_json::from_str(change).unwrap();
        object.extend(change);
        AdapterConfig::read(Path::new("adapter_config.json"), &object)
    }

    #[test]
    fn the_scale_is_that_of_either_convention() {
        assert_eq!(read("{}").unwrap(), AdapterConfig { rank: 4, alpha: 8.0 });
        let stabilised = read(r#"{"use_rslora": true}"#).unwrap();
        assert_eq!(stabilised.alpha / 4.0, 8.0 / 2.0);
    }

    #[test]
    fn what_would_change_numbers_is_refused_by_its_name() {
        for (change, key) in [
            (r#"{"peft_type": "IA3"}"#, "peft_type"),
            (r#"{"use_dora": true}"#, "use_dora"),
            (r#"{"rank_pattern": {"q_proj": 2}}"#, "rank_pattern"),
            (r#"{"alpha_pattern": {"q_proj": 2}}"#, "alpha_pattern"),
            (r#"{"layers_to_transform": [0]}"#, "layers_to_transform"),
            (r#"{"bias": "lora_only"}"#, "bias"),
            (r#"{"fan_in_fan_out": true}"#, "fan_in_fan_out"),
            (r#"{"init_lora_weights": "pissa"}"#, "init_lora_weights"),
            (r#"{"trainable_token_indices": [3]}"#, "trainable_token_indices"),
            (r#"{"of_next_year": 1}"#, "of_next_year"),
            (r#"{"r": 0}"#, "r"),
            (r#"{"lora_alpha": "8"}"#, "lora_alpha"),
            (r#"{"use_rslora": 1}"#, "use_rslora"),
        ] {
            let message = read(change).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("adapter_config.json: {key}: found ")),
                "{message}"
            );
        }
    }
}
