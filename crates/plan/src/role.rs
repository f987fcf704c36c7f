//! What a parameter does inside its layer, and which piece of it is meant.
//!
//! One vocabulary serves encoders and decoders alike: a model simply has no parameter for the
//! roles it lacks, so a rule such as "all but query and key" needs no model-specific spelling.

use crate::text::words;

words! {
    /// What a parameter does, in the order in which the forward pass meets it.
    pub enum Role: "role" {
        /// Token embedding table.
        Token = "token",
        /// Projection of a patch of an image.
        Patch = "patch",
        /// Token in front of an image's patches that a classifier reads.
        ClassToken = "class_token",
        /// Token behind the class token that learnt from a teacher.
        DistillationToken = "distillation_token",
        /// Tokens in front of the patches that no position is added to.
        RegisterToken = "register_token",
        /// Learned position embedding table.
        Position = "position",
        /// Segment (token type) embedding table.
        Segment = "segment",
        /// Norm over the summed embeddings.
        EmbeddingNorm = "embedding_norm",
        /// Projection of a narrower embedding to the width of the blocks.
        EmbeddingProjection = "embedding_projection",
        /// Norm that belongs to the attention half of a block.
        AttentionNorm = "attention_norm",
        /// Query projection.
        Query = "query",
        /// Key projection.
        Key = "key",
        /// Value projection.
        Value = "value",
        /// Norm of the queries.
        QueryNorm = "query_norm",
        /// Norm of the keys.
        KeyNorm = "key_norm",
        /// Projection of the attended values back into the residual stream.
        Output = "output",
        /// Norm over what the attention half adds.
        AttentionOutputNorm = "attention_output_norm",
        /// Factors of what the attention half adds.
        AttentionScale = "attention_scale",
        /// Norm that belongs to the feed-forward half of a block.
        MlpNorm = "mlp_norm",
        /// Gate projection of a gated feed-forward layer.
        Gate = "gate",
        /// Projection into the feed-forward width.
        Up = "up",
        /// Projection back from the feed-forward width.
        Down = "down",
        /// Norm over what the feed-forward half adds.
        MlpOutputNorm = "mlp_output_norm",
        /// Factors of what the feed-forward half adds.
        MlpScale = "mlp_scale",
        /// Norm after the last block.
        FinalNorm = "final_norm",
        /// Dense layer over the first token of an encoder.
        Pooler = "pooler",
        /// Dense layer of a masked-language head.
        Transform = "transform",
        /// Norm of a masked-language head.
        TransformNorm = "transform_norm",
        /// Task layer that yields the class scores.
        Classifier = "classifier",
        /// Layer that yields the scores over the vocabulary.
        Vocabulary = "vocabulary",
    }
}

words! {
    /// Which piece of a projection, norm or table is meant.
    pub enum Part: "part" {
        /// The weight itself.
        Weight = "weight",
        /// The bias added after it.
        Bias = "bias",
        /// The down-projecting factor of a low-rank adapter.
        LoraA = "lora_a",
        /// The up-projecting factor of a low-rank adapter.
        LoraB = "lora_b",
        /// The norms that the rows of an adapted weight have (`DoRA`).
        Magnitude = "lora_magnitude",
    }
}

impl Part {
    /// The pieces of an adapter.
    pub const ADAPTER: [Self; 3] = [Self::LoraA, Self::LoraB, Self::Magnitude];

    /// Whether it is a piece of an adapter.
    pub const fn is_adapter(self) -> bool {
        match self {
            Self::LoraA | Self::LoraB | Self::Magnitude => true,
            Self::Weight | Self::Bias => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_every_role_once_and_in_order() {
        assert!(Role::ALL.is_sorted_by(|left, right| left < right));
        assert_eq!(Role::ALL.len(), Role::Vocabulary as usize + 1);
        assert!(Part::ALL.is_sorted_by(|left, right| left < right));
        assert_eq!(Part::ALL.len(), Part::Magnitude as usize + 1);
    }

    #[test]
    fn an_unknown_role_is_refused_with_the_known_ones() {
        let message = "kwery".parse::<Role>().expect_err("no such role").to_string();
        assert!(message.contains("`kwery`") && message.contains("query, key"), "{message}");
    }
}
