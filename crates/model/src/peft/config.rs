//! What `adapter_config.json` says, as far as it changes numbers.

use std::collections::BTreeMap;
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
    "eva_config",
    "exclude_modules",
    // How the base is stored, which its family says too.
    "fan_in_fan_out",
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

/// Keys that are true or false, and followed.
const SWITCHES: [&str; 3] = ["use_rslora", "use_dora", "ensure_weight_tying"];

/// The size of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AdapterConfig {
    pub rank: usize,
    /// The correction is `alpha / rank * B A`, whatever the file's own convention.
    pub alpha: f32,
    /// Whether rows have magnitudes of their own (`DoRA`).
    pub magnitudes: bool,
    /// Whether the adapter of an output vocabulary is the token embedding's too, where both are one weight.
    pub tied: bool,
    /// Other ranks by the ends of modules' names, at the same scale.
    ranks: BTreeMap<String, usize>,
}

impl AdapterConfig {
    /// Reads and checks a file.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let object: Map<String, Value> = serde_json::from_slice(&file::read(path, MAX_BYTES)?)
            .map_err(|e| ModelError::file(path, e.to_string(), "a JSON object"))?;
        Self::read(path, &object)
    }

    /// The rank of the module that a tensor belongs to.
    pub fn rank_of(&self, tensor: &str) -> usize {
        let module = module_of(tensor);
        let own = self.ranks.iter().find(|(name, _)| ends_with(module, name));
        own.map_or(self.rank, |(_, rank)| *rank)
    }

    /// The first name with a rank of its own that none of these tensors belongs to.
    pub fn unmatched(&self, tensors: &[&str]) -> Option<&str> {
        let is_free =
            |name: &&String| !tensors.iter().any(|tensor| ends_with(module_of(tensor), name));
        self.ranks.keys().find(is_free).map(String::as_str)
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
        let known = |key: &str| {
            HARMLESS.contains(&key)
                || SWITCHES.contains(&key)
                || ["bias", "rank_pattern", "alpha_pattern"].contains(&key)
        };
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
        let switch = |key: &str| match object.get(key).unwrap_or(&Value::Null) {
            Value::Null | Value::Bool(false) => Some(false),
            Value::Bool(true) => Some(true),
            Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
        };
        if let Some(wrong) = SWITCHES.into_iter().find(|key| switch(key).is_none()) {
            return refuse(wrong, "true or false");
        }
        let [stabilised, magnitudes, tied] = SWITCHES.map(|key| switch(key) == Some(true));
        // Rank-stabilised: alpha over the root of the rank.
        let stabilised = if stabilised { (rank as f64).sqrt() } else { 1.0 };
        let ranks = pattern(object, "rank_pattern");
        let alphas = pattern(object, "alpha_pattern");
        let (Some(ranks), Some(alphas)) = (&ranks, &alphas) else {
            let key = if ranks.is_none() { "rank_pattern" } else { "alpha_pattern" };
            return refuse(key, "numbers above 0 by the names of modules");
        };
        // Ranks of modules that hold several adapters, whose scale is that of one.
        let scale = |name: &String| alphas.get(name).copied().unwrap_or(alpha);
        let is_same = |(name, own): (&String, &f64)| {
            (scale(name) * rank as f64 / own / alpha - 1.0).abs() < 1e-6
        };
        if alphas.keys().any(|name| !ranks.contains_key(name)) {
            return refuse("alpha_pattern", "names that rank_pattern has too");
        }
        if !ranks.iter().all(is_same) || (!ranks.is_empty() && stabilised != 1.0) {
            return refuse("rank_pattern", "ranks with an alpha_pattern at the same scale");
        }
        let ranks = ranks.iter().map(|(name, rank)| (name.clone(), *rank as usize)).collect();
        Ok(Self { rank, alpha: (alpha * stabilised) as f32, magnitudes, tied, ranks })
    }
}

/// The numbers of a pattern, whole ones for ranks; none if it has anything else.
fn pattern(object: &Map<String, Value>, key: &str) -> Option<BTreeMap<String, f64>> {
    let Some(value) = object.get(key).filter(|value| !is_off(value)) else {
        return Some(BTreeMap::new());
    };
    let number = |value: &Value| {
        let is_whole = key != "rank_pattern" || value.as_u64().is_some_and(|rank| rank < 1 << 20);
        value.as_f64().filter(|number| number.is_finite() && *number > 0.0 && is_whole)
    };
    let entries = value.as_object()?.iter();
    entries.map(|(name, value)| Some((name.clone(), number(value)?))).collect()
}

/// The module of an adapter's tensor.
fn module_of(tensor: &str) -> &str {
    const ENDS: [&str; 3] = [".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"];
    ENDS.iter().find_map(|end| tensor.strip_suffix(end)).unwrap_or(tensor)
}

/// Whether a module's path ends with a name, as the library compares them.
fn ends_with(module: &str, name: &str) -> bool {
    let before = module.strip_suffix(name);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
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
        let plain = read("{}").unwrap();
        assert_eq!((plain.rank, plain.alpha), (4, 8.0));
        let stabilised = read(r#"{"use_rslora": true}"#).unwrap();
        assert_eq!(stabilised.alpha / 4.0, 8.0 / 2.0);
    }

    #[test]
    fn a_module_of_several_adapters_has_the_sum_of_their_ranks() {
        let both = r#"{"rank_pattern": {"qkv_proj": 12}, "alpha_pattern": {"qkv_proj": 24}}"#;
        let settings = read(both).unwrap();
        assert_eq!(settings.rank_of("layers.0.self_attn.qkv_proj.lora_A.weight"), 12);
        assert_eq!(settings.rank_of("layers.0.self_attn.o_proj.lora_B.weight"), 4);
        assert_eq!(settings.rank_of("layers.0.self_attn.not_qkv_proj.lora_B.weight"), 4);
        assert_eq!(settings.unmatched(&["a.o_proj.lora_A.weight"]), Some("qkv_proj"));
        assert_eq!(settings.unmatched(&["a.qkv_proj.lora_A.weight"]), None);
    }

    #[test]
    fn what_would_change_numbers_is_refused_by_its_name() {
        for (change, key) in [
            (r#"{"peft_type": "IA3"}"#, "peft_type"),
            (r#"{"use_dora": "yes"}"#, "use_dora"),
            (r#"{"use_qalora": true}"#, "use_qalora"),
            (r#"{"rank_pattern": {"q_proj": 2}}"#, "rank_pattern"),
            (r#"{"alpha_pattern": {"q_proj": 2}}"#, "alpha_pattern"),
            (r#"{"rank_pattern": {"q_proj": 1.5}}"#, "rank_pattern"),
            (r#"{"rank_pattern": {"q": 8}, "alpha_pattern": {"q": -1}}"#, "alpha_pattern"),
            (r#"{"layers_to_transform": [0]}"#, "layers_to_transform"),
            (r#"{"bias": "lora_only"}"#, "bias"),
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
