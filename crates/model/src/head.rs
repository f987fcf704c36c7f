//! What stands on the last block and turns hidden states into an answer.

use crate::config::Config;
use crate::error::ModelError;
use crate::family::ClassKind;
use crate::hf::names::{Answers, Architecture};

/// The kinds of head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// None: hidden states are the answer.
    Bare,
    /// One answer per sequence, read from `[CLS]` by an encoder and by a decoder from the last token that is not
    /// padding.
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

    /// The class of the library that has this head.
    pub(crate) fn class(self) -> ClassKind {
        match self {
            Self::Bare => ClassKind::Base,
            Self::Sequence { .. } => ClassKind::Sequences,
            Self::Tokens { .. } => ClassKind::Tokens,
            Self::Language => ClassKind::Language,
        }
    }

    /// The class that reads a model of this configuration with this head.
    pub(crate) fn architecture(self, config: &Config) -> Result<Architecture, ModelError> {
        let has_dense = config.classifier.has_dense();
        if matches!(self, Self::Sequence { pooler: false, .. }) && has_dense {
            let found = "an encoder's sequence head without a pooler";
            let expected = "one with a pooler, which other libraries always have";
            return Err(ModelError::structure("head to save", &found, &expected));
        }
        Ok(Architecture { family: config.family, kind: self.class() })
    }
}

impl Config {
    /// The head that classifies; a dense layer stands in front of a sequence's where the family has one.
    pub fn head(&self, answers: Answers, classes: usize) -> Head {
        match answers {
            Answers::Sequences => Head::Sequence { classes, pooler: self.classifier.has_dense() },
            Answers::Tokens => Head::Tokens { classes },
        }
    }
}
