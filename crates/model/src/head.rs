//! What stands on the last block and turns hidden states into an answer.

use crate::error::ModelError;
use crate::hf::names::{Answers, Architecture, Family};

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
    pub(crate) fn architecture(self, family: Family) -> Result<Architecture, ModelError> {
        Ok(match (family, self) {
            (Family::Bert, Self::Bare) => Architecture::BertModel,
            (Family::Bert, Self::Sequence { pooler: true, .. }) => {
                Architecture::BertForSequenceClassification
            }
            (Family::Bert, Self::Sequence { pooler: false, .. }) => {
                let found = "an encoder's sequence head without a pooler";
                let expected = "one with a pooler, which other libraries always have";
                return Err(ModelError::structure("head to save", &found, &expected));
            }
            (Family::Bert, Self::Tokens { .. }) => Architecture::BertForTokenClassification,
            (Family::Bert, Self::Language) => Architecture::BertForMaskedLM,
            (Family::Llama, Self::Bare) => Architecture::LlamaModel,
            (Family::Llama, Self::Sequence { .. }) => Architecture::LlamaForSequenceClassification,
            (Family::Llama, Self::Tokens { .. }) => Architecture::LlamaForTokenClassification,
            (Family::Llama, Self::Language) => Architecture::LlamaForCausalLM,
        })
    }
}
