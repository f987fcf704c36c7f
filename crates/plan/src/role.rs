//! What a parameter does inside its site, and which piece of it is meant.
//!
//! One vocabulary serves encoders and decoders alike: a model simply has no parameter for the
//! roles it lacks, so a rule such as "all but query and key" needs no model-specific spelling.

use std::fmt;
use std::str::FromStr;

use crate::text::{Unreadable, serde_as_text};

/// What a parameter does, in the order in which the forward pass meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Token embedding table.
    Token,
    /// Learned position embedding table.
    Position,
    /// Segment (token type) embedding table.
    Segment,
    /// Norm over the summed embeddings.
    EmbeddingNorm,
    /// Norm that belongs to the attention half of a block.
    AttentionNorm,
    /// Query projection.
    Query,
    /// Key projection.
    Key,
    /// Value projection.
    Value,
    /// Projection of the attended values back into the residual stream.
    Output,
    /// Norm that belongs to the feed-forward half of a block.
    MlpNorm,
    /// Gate projection of a gated feed-forward layer.
    Gate,
    /// Projection into the feed-forward width.
    Up,
    /// Projection back from the feed-forward width.
    Down,
    /// Norm after the last block.
    FinalNorm,
    /// Dense layer over the first token of an encoder.
    Pooler,
    /// Dense layer of a masked-language head.
    Transform,
    /// Norm of a masked-language head.
    TransformNorm,
    /// Task layer that yields the class scores.
    Classifier,
    /// Layer that yields the scores over the vocabulary.
    Vocabulary,
}

impl Role {
    /// Every role, in order.
    pub const ALL: [Self; 19] = [
        Self::Token,
        Self::Position,
        Self::Segment,
        Self::EmbeddingNorm,
        Self::AttentionNorm,
        Self::Query,
        Self::Key,
        Self::Value,
        Self::Output,
        Self::MlpNorm,
        Self::Gate,
        Self::Up,
        Self::Down,
        Self::FinalNorm,
        Self::Pooler,
        Self::Transform,
        Self::TransformNorm,
        Self::Classifier,
        Self::Vocabulary,
    ];

    /// The name in snake case, as it stands in ids and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Position => "position",
            Self::Segment => "segment",
            Self::EmbeddingNorm => "embedding_norm",
            Self::AttentionNorm => "attention_norm",
            Self::Query => "query",
            Self::Key => "key",
            Self::Value => "value",
            Self::Output => "output",
            Self::MlpNorm => "mlp_norm",
            Self::Gate => "gate",
            Self::Up => "up",
            Self::Down => "down",
            Self::FinalNorm => "final_norm",
            Self::Pooler => "pooler",
            Self::Transform => "transform",
            Self::TransformNorm => "transform_norm",
            Self::Classifier => "classifier",
            Self::Vocabulary => "vocabulary",
        }
    }
}

/// Which piece of a projection, norm or table is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The weight itself.
    Weight,
    /// The bias added after it.
    Bias,
    /// The down-projecting factor of a low-rank adapter.
    LoraA,
    /// The up-projecting factor of a low-rank adapter.
    LoraB,
}

impl Part {
    /// Every part, in order.
    pub const ALL: [Self; 4] = [Self::Weight, Self::Bias, Self::LoraA, Self::LoraB];

    /// The name in snake case, as it stands in ids and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::Bias => "bias",
            Self::LoraA => "lora_a",
            Self::LoraB => "lora_b",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Role {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| Unreadable::new("role", text, &Self::ALL.map(Self::name).join(", ")))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Part {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let found = Self::ALL.into_iter().find(|part| part.name() == text);
        found.ok_or_else(|| Unreadable::new("part", text, &Self::ALL.map(Self::name).join(", ")))
    }
}

serde_as_text!(Role, Part);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_every_role_once_and_in_order() {
        assert!(Role::ALL.is_sorted_by(|left, right| left < right));
        assert_eq!(Role::ALL.len(), Role::Vocabulary as usize + 1);
        assert!(Part::ALL.is_sorted_by(|left, right| left < right));
        assert_eq!(Part::ALL.len(), Part::LoraB as usize + 1);
    }

    #[test]
    fn an_unknown_role_is_refused_with_the_known_ones() {
        let message = "kwery".parse::<Role>().expect_err("no such role").to_string();
        assert!(message.contains("`kwery`") && message.contains("query, key"), "{message}");
    }
}
