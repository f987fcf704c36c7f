//! What stands on the last block and turns hidden states into an answer.

use crate::error::ModelError;
use crate::hf::{Answers, Architecture, Config};

/// The kinds of head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// None: hidden states are the answer.
    Bare,
    /// One answer per sequence, read from `[CLS]` by an encoder and from the last token by a decoder.
    Sequence {
        /// Number of classes or labels.
        classes: usize,
        /// Whether a tanh layer stands between (encoders of the BERT library have one).
        pooler: bool,
    },
    /// One answer per token.
    Tokens {
        /// Number of classes.
        classes: usize,
    },
    /// A word of the vocabulary per token: the next one, or the one behind a mask.
    Language,
}

impl Head {
    /// What it classifies, if it does.
    pub const fn answers(self) -> Option<Answers> {
        match self {
            Self::Sequence { .. } => Some(Answers::Sequences),
            Self::Tokens { .. } => Some(Answers::Tokens),
            Self::Bare | Self::Language => None,
        }
    }

    /// The number of its classes, if it has any.
    pub const fn classes(self) -> Option<usize> {
        match self {
            Self::Sequence { classes, .. } | Self::Tokens { classes } => Some(classes),
            Self::Bare | Self::Language => None,
        }
    }

    /// The class that reads a backbone with this head.
    pub(crate) fn architecture(self, config: &Config) -> Result<Architecture, ModelError> {
        Ok(match (config, self) {
            (Config::Bert(_), Self::Bare) => Architecture::BertModel,
            (Config::Bert(_), Self::Sequence { pooler: true, .. }) => {
                Architecture::BertForSequenceClassification
            }
            (Config::Bert(_), Self::Sequence { pooler: false, .. }) => {
                return Err(ModelError::Structure {
                    what: "head to save",
                    found: "an encoder's sequence head without a pooler".into(),
                    expected: "one with a pooler, which other libraries always have".into(),
                });
            }
            (Config::Bert(_), Self::Tokens { .. }) => Architecture::BertForTokenClassification,
            (Config::Bert(_), Self::Language) => Architecture::BertForMaskedLM,
            (Config::Llama(_), Self::Bare) => Architecture::LlamaModel,
            (Config::Llama(_), Self::Sequence { .. }) => {
                Architecture::LlamaForSequenceClassification
            }
            (Config::Llama(_), Self::Tokens { .. }) => Architecture::LlamaForTokenClassification,
            (Config::Llama(_), Self::Language) => Architecture::LlamaForCausalLM,
        })
    }
}
