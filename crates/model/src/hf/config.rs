//! What `config.json` says a model is. The original JSON stays beside the checked fields, so that
//! saving a model loses no key that another library cares about and this one does not know.
//!
//! Every size is at least one and at most the limit named beside it; no product of two of them
//! overflows.

mod bert;
pub(crate) mod fields;
mod labels;
mod llama;

use std::path::Path;

use serde_json::{Map, Value, json};

pub use bert::BertConfig;
pub use fields::limit;
pub use labels::{Labels, Problem};
pub use llama::LlamaConfig;

use self::fields::Fields;
use super::dtype::Precision;
use super::file;
use super::names::{Answers, Architecture, Family};
use crate::either::either;
use crate::error::ModelError;
use crate::head::Head;

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
    /// Reads and checks the `config.json` of a model folder.
    pub fn open(dir: &Path) -> Result<Self, ModelError> {
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
        either!(self, Self, config => config.labels.as_ref())
    }

    /// Replaces the names of the classes, for a new head.
    pub fn set_labels(&mut self, labels: Labels) {
        either!(self, Self, config => config.labels = Some(labels));
    }

    /// Number of Transformer blocks.
    pub fn blocks(&self) -> usize {
        either!(self, Self, config => config.num_hidden_layers)
    }

    /// The same model with so many blocks.
    pub(crate) fn with_blocks(mut self, blocks: usize) -> Self {
        either!(&mut self, Self, config => config.num_hidden_layers = blocks);
        self
    }

    /// Attention heads of a block.
    pub fn heads(&self) -> usize {
        either!(self, Self, config => config.num_attention_heads)
    }

    /// Most tokens that it reads at once.
    pub fn positions(&self) -> usize {
        either!(self, Self, config => config.max_position_embeddings)
    }

    /// Rows of the token embedding.
    pub fn vocabulary(&self) -> usize {
        either!(self, Self, config => config.vocab_size)
    }

    /// Standard deviation of weights that are drawn anew beside those of a folder.
    pub fn initializer_range(&self) -> f64 {
        either!(self, Self, config => config.initializer_range)
    }

    /// Whether a token sees only those before it, so that the model can write.
    pub fn is_decoder(&self) -> bool {
        matches!(self, Self::Llama(_))
    }

    /// Whether the output vocabulary shares the weight of the token embedding.
    pub fn tied(&self) -> bool {
        match self {
            Self::Bert(_) => true,
            Self::Llama(config) => config.tie_word_embeddings,
        }
    }

    /// The tokens that end a text.
    pub fn end_tokens(&self) -> &[u32] {
        match self {
            Self::Bert(_) => &[],
            Self::Llama(config) => &config.eos_token_ids,
        }
    }

    /// The head that classifies; an encoder's has a pooler, as other libraries expect.
    pub fn head(&self, answers: Answers, classes: usize) -> Head {
        match answers {
            Answers::Sequences => Head::Sequence { classes, pooler: !self.is_decoder() },
            Answers::Tokens => Head::Tokens { classes },
        }
    }

    /// The original keys, overwritten by the checked fields.
    fn object(&self) -> Map<String, Value> {
        let mut object = self.original().clone();
        object.extend(either!(self, Self, config => config.to_json()));
        // What it said of rotary positions stands in `rope_parameters` now.
        object.remove("rope_scaling");
        if let Some(labels) = self.labels() {
            labels.write(&mut object);
        }
        object
    }

    fn original(&self) -> &Map<String, Value> {
        either!(self, Self, config => &config.original)
    }
}
