//! What `config.json` says a model is. The original JSON stays beside the checked fields, so that
//! saving a model loses no key that another library cares about and this one does not know.
//!
//! Every size is at least one and at most the limit named beside it; no product of two of them
//! overflows.

mod bert;
mod fields;
mod labels;
mod llama;

use std::path::Path;

use serde_json::{Map, Value, json};

pub use bert::BertConfig;
pub use labels::{Labels, Problem};
pub use llama::LlamaConfig;

use self::fields::Fields;
use super::dtype::Precision;
use super::file;
use super::names::{Architecture, Family};
use crate::error::{ModelError, shortened};
use crate::gguf;

/// The file's name in a model folder.
pub const FILE: &str = "config.json";

/// Largest configuration file; its bulk is label names.
const MAX_BYTES: u64 = 16 << 20;

/// A checked model configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Config {
    /// An encoder of the BERT family.
    Bert(BertConfig),
    /// A decoder of the LLaMA family.
    Llama(LlamaConfig),
}

impl Config {
    /// Reads and checks the `config.json` of a model folder, or what a GGUF file says.
    pub fn open(dir: &Path) -> Result<Self, ModelError> {
        if dir.is_file() {
            return gguf::config(dir);
        }
        let path = dir.join(FILE);
        Self::parse(&path, &file::read(&path, MAX_BYTES)?)
    }

    /// Checks the bytes of a `config.json`; `path` is for messages.
    ///
    /// ```
    /// use fedra_model::hf::config::Config;
    /// let json = br#"{"model_type": "mamba"}"#;
    /// let error = Config::parse("config.json".as_ref(), json).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"config.json: model_type: found "mamba", expected one of "bert", "llama""#
    /// );
    /// ```
    pub fn parse(path: &Path, json: &[u8]) -> Result<Self, ModelError> {
        let object: Map<String, Value> = serde_json::from_slice(json)
            .map_err(|e| ModelError::file(path, e.to_string(), "a JSON object"))?;
        let fields = Fields { path, object: &object, within: "" };
        match fields.text("model_type")? {
            Some("bert") => Ok(Self::Bert(BertConfig::read(&fields)?)),
            Some("llama") => Ok(Self::Llama(LlamaConfig::read(&fields)?)),
            Some(_) | None => Err(fields.refuse("model_type", r#"one of "bert", "llama""#)),
        }
    }

    /// The configuration as it goes into a saved folder: the original keys, overwritten by the
    /// checked fields and by what is known only when saving.
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
        let fields = Fields { path: Path::new(FILE), object: &object, within: "" };
        match self {
            Self::Bert(_) => BertConfig::read(&fields).map(drop),
            Self::Llama(_) => LlamaConfig::read(&fields).map(drop),
        }
    }

    /// Which family's tensor names the weights use.
    pub fn family(&self) -> Family {
        match self {
            Self::Bert(_) => Family::Bert,
            Self::Llama(_) => Family::Llama,
        }
    }

    /// The class that saved the folder, when the file names one we know.
    pub fn architecture(&self) -> Option<Architecture> {
        let name = self.original().get("architectures")?.get(0)?.as_str()?;
        Architecture::parse(name).filter(|architecture| architecture.family() == self.family())
    }

    /// Names of the classes of a classification head.
    pub fn labels(&self) -> Option<&Labels> {
        match self {
            Self::Bert(config) => config.labels.as_ref(),
            Self::Llama(config) => config.labels.as_ref(),
        }
    }

    /// Replaces the names of the classes, for a new head.
    pub fn set_labels(&mut self, labels: Labels) {
        match self {
            Self::Bert(config) => config.labels = Some(labels),
            Self::Llama(config) => config.labels = Some(labels),
        }
    }

    /// Number of Transformer blocks.
    pub fn blocks(&self) -> usize {
        match self {
            Self::Bert(config) => config.num_hidden_layers,
            Self::Llama(config) => config.num_hidden_layers,
        }
    }

    /// Whether the output vocabulary shares the weight of the token embedding.
    pub fn tied(&self) -> bool {
        match self {
            Self::Bert(_) => true,
            Self::Llama(config) => config.tie_word_embeddings,
        }
    }

    /// Rows of the token embedding.
    pub fn vocabulary(&self) -> usize {
        match self {
            Self::Bert(config) => config.vocab_size,
            Self::Llama(config) => config.vocab_size,
        }
    }

    /// Standard deviation of weights that are drawn anew beside those of a folder.
    pub fn initializer_range(&self) -> f64 {
        match self {
            Self::Bert(config) => config.initializer_range,
            Self::Llama(config) => config.initializer_range,
        }
    }

    /// The original keys, overwritten by the checked fields.
    fn object(&self) -> Map<String, Value> {
        let mut object = match self {
            Self::Bert(config) => config.to_json(),
            Self::Llama(config) => config.to_json(),
        };
        if let Some(labels) = self.labels() {
            labels.write(&mut object);
        }
        object
    }

    fn original(&self) -> &Map<String, Value> {
        match self {
            Self::Bert(config) => &config.original,
            Self::Llama(config) => &config.original,
        }
    }
}

/// Largest accepted sizes. All are several times what published models have, and small enough that
/// the product of any two is far from overflowing.
pub mod limit {
    /// Rows of a token embedding.
    pub const VOCABULARY: usize = 1 << 24;
    /// Width of hidden states, and inside a feed-forward layer.
    pub const WIDTH: usize = 1 << 18;
    /// Blocks.
    pub const BLOCKS: usize = 1 << 10;
    /// Attention heads of a block.
    pub const HEADS: usize = 1 << 12;
    /// Positions.
    pub const POSITIONS: usize = 1 << 26;
    /// Rows of a segment embedding.
    pub const SEGMENTS: usize = 1 << 10;
}

/// What both families draw new weights with unless the file says otherwise.
const INITIALIZER_RANGE: f64 = 0.02;

/// Writes the deviation of new weights where the file says another than the usual one.
fn write_initializer_range(range: f64, object: &mut Map<String, Value>) {
    if range != INITIALIZER_RANGE {
        object.insert("initializer_range".into(), json!(range));
    }
}

/// Refuses what changes the meaning of the weights in any family.
fn refuse_quantised(fields: &Fields<'_>) -> Result<(), ModelError> {
    let key = "quantization_config";
    let Some(value) = fields.get(key) else { return Ok(()) };
    let flag = |name: &str| value.get(name).and_then(Value::as_bool) == Some(true);
    let method = match value.get("quant_method").and_then(Value::as_str) {
        Some(method) => method,
        // What its files said before they named themselves.
        None if flag("load_in_4bit") || flag("load_in_8bit") => "bitsandbytes",
        None => "by a method that it does not name",
    };
    Err(ModelError::Config {
        path: fields.path.to_path_buf(),
        key: key.into(),
        found: shortened(format!("a quantised checkpoint ({method})")),
        expected: UNQUANTISED.into(),
    })
}

/// What is expected where weights are quantised.
pub(super) const UNQUANTISED: &str = "weights stored as F32, F16 or BF16";
