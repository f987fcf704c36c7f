//! `config.json`: which family a model is of, its common sizes, and back again. The original JSON stays beside
//! the checked properties, so that saving a model loses no key that another library cares about and this one
//! does not know.
//!
//! Every size is at least one and at most the limit named beside it; no product of two of them
//! overflows.

mod missing;

use std::path::Path;

use serde_json::{Map, Value, json};

use super::dtype::Precision;
use super::file;
use super::names::Architecture;
use crate::config::{Config, Positions};
use crate::config_json::fields::{Fields, INITIALIZER_RANGE};
use crate::error::ModelError;
use crate::families;

pub use crate::config_json::fields::limit;
pub use crate::config_json::labels::{Labels, Problem};
pub use fedra_files::model_folder::CONFIG as FILE;

/// Largest configuration file; its bulk is label names.
const MAX_BYTES: u64 = 16 << 20;

impl Config {
    /// Reads and checks the `config.json` of a model folder.
    pub fn open(dir: &Path) -> Result<Self, ModelError> {
        let path = dir.join(FILE);
        Self::parse(&path, &file::read(&path, MAX_BYTES)?)
    }

    /// Checks the bytes of a `config.json`; `path` is for messages.
    ///
    /// ```
    /// use fedra_model::hf::Config;
    /// let json = br#"{"model_type": "mamba"}"#;
    /// let error = Config::parse("config.json".as_ref(), json).unwrap_err();
    /// assert!(error.to_string().starts_with(
    ///     r#"config.json: model_type: found "mamba", a model with recurrent layers, expected one of "bert""#
    /// ));
    /// ```
    pub fn parse(path: &Path, json: &[u8]) -> Result<Self, ModelError> {
        let object: Map<String, Value> = serde_json::from_slice(json)
            .map_err(|e| ModelError::file(path, e.to_string(), "a JSON object"))?;
        let fields = Fields { path, object: &object, within: "", family: None };
        let model_type = fields.text("model_type")?;
        let family = model_type.and_then(families::by_type).ok_or_else(|| {
            let expected = format!("one of {}", families::known_types());
            let property = model_type.and_then(|kind| missing::property(kind, &object));
            match (model_type, property) {
                (Some(kind), Some(property)) => {
                    let found = format!("{kind:?}, a model with {property}");
                    ModelError::config(path, "model_type", found, expected)
                }
                (_, None) | (None, _) => fields.refuse("model_type", expected),
            }
        })?;
        families::read(family, &Fields { family: Some(family), ..fields })
    }

    /// The configuration as it goes into a saved folder: the original keys, overwritten by the
    /// checked properties and by what is known only when saving.
    pub fn to_json(&self, architecture: Architecture, precision: Precision) -> Value {
        let mut object = self.object();
        object.insert("architectures".into(), json!([architecture.class_name()]));
        // The second key is what versions before 5 read.
        object.insert("dtype".into(), json!(precision.torch_name()));
        object.insert("torch_dtype".into(), json!(precision.torch_name()));
        Value::Object(object)
    }

    /// Checks a configuration made in code the way a file is checked.
    pub fn check(&self) -> Result<(), ModelError> {
        let object = self.object();
        let family = Some(self.family);
        let fields = Fields { path: Path::new(FILE), object: &object, within: "", family };
        families::read(self.family, &fields).map(drop)
    }

    /// The original keys, overwritten by the checked properties.
    fn object(&self) -> Map<String, Value> {
        let mut object = self.original.clone();
        let mut put = |key: &str, value: Value| {
            object.insert(self.family.key(key).to_owned(), value);
        };
        put("model_type", json!(self.family.model_type));
        put("hidden_size", json!(self.hidden_size));
        put("num_hidden_layers", json!(self.num_hidden_layers));
        put("num_attention_heads", json!(self.num_attention_heads));
        put("intermediate_size", json!(self.intermediate_size));
        let before = match self.positions {
            Positions::Learned { offset } => offset,
            Positions::Rotary(_) => 0,
        };
        if self.image.is_none() {
            put("vocab_size", json!(self.vocab_size));
            put("max_position_embeddings", json!(self.max_position_embeddings + before));
            put("pad_token_id", json!(self.pad_token_id));
        }
        if self.initializer_range != INITIALIZER_RANGE {
            put("initializer_range", json!(self.initializer_range));
        }
        if self.causal {
            put("bos_token_id", json!(self.bos_token_id));
            put("eos_token_id", one_or_several(&self.eos_token_ids));
            put("tie_word_embeddings", json!(self.tie_word_embeddings));
        }
        families::write(self, &mut object);
        if let Some(labels) = &self.labels {
            labels.write(&mut object);
        }
        object
    }
}

/// The library writes one token as a number, and several as a list.
fn one_or_several(tokens: &[u32]) -> Value {
    match tokens {
        [] => Value::Null,
        [one] => json!(one),
        several => json!(several),
    }
}
