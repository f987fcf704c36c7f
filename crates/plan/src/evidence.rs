//! What a round measures before it decides which blocks learn.
//!
//! A [`Probe`] is plain data that says *what* to measure; [`BlockScores`] is the answer.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::PlanError;

/// What evidence a round needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Probe {
    /// The share of attention that lands on the relevant tokens, per block.
    Attention {
        /// Whose attention counts.
        side: AttentionSide,
        /// The tokens on which it has to land.
        tokens: RelevantTokens,
    },
    /// The norm of the gradient of the loss, per block.
    GradientNorm,
    /// The norm of the gradient relative to the norm of the block's parameters.
    RelativeGradient,
}

impl Probe {
    /// Whether the score of every single example is from 0 to 1.
    pub const fn is_bounded(self) -> bool {
        match self {
            Self::Attention { .. } => true,
            Self::GradientNorm | Self::RelativeGradient => false,
        }
    }
}

/// Whose attention counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionSide {
    /// What the relevant tokens receive, as keys, from every valid token (SAFL, Eq. 1).
    Key,
    /// What the predicting position gives, as the query, to the relevant tokens. For causal
    /// decoders, where the key side would measure the attention sink at the first token.
    Query,
}

/// The tokens on which attention has to land; padding never counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelevantTokens {
    /// The classification token.
    Cls,
    /// Tokens whose training label names an entity.
    Entities,
    /// All content tokens.
    All,
}

/// One finite score for each block, higher for those that should learn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockScores {
    probe: Probe,
    scores: Vec<f64>,
}

impl BlockScores {
    /// The scores of blocks 0, 1, 2, ... under a probe; refuses NaN and infinity.
    pub fn new(probe: Probe, scores: Vec<f64>) -> Result<Self, PlanError> {
        match scores.iter().position(|score| !score.is_finite()) {
            None => Ok(Self { probe, scores }),
            Some(block) => {
                let found = format!("the score of block {block} is {}", scores[block]);
                Err(PlanError::unusable(found, "a finite number"))
            }
        }
    }

    /// What was measured.
    pub const fn probe(&self) -> Probe {
        self.probe
    }

    /// The scores in block order.
    pub fn as_slice(&self) -> &[f64] {
        &self.scores
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::GradientNorm => "gradient norms",
            Self::RelativeGradient => "relative gradient norms",
            Self::Attention { side, tokens } => {
                let side = match side {
                    AttentionSide::Key => "key",
                    AttentionSide::Query => "query",
                };
                let tokens = match tokens {
                    RelevantTokens::Cls => "classification token",
                    RelevantTokens::Entities => "entity tokens",
                    RelevantTokens::All => "all content tokens",
                };
                return write!(formatter, "attention ({side} side, {tokens})");
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_that_is_not_finite_is_refused() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let refused = BlockScores::new(Probe::GradientNorm, vec![0.5, bad]);
            let message = refused.expect_err("not finite").to_string();
            assert_eq!(message, format!("the score of block 1 is {bad}, expected a finite number"));
        }
    }

    #[test]
    fn a_probe_reads_from_plain_words_and_refuses_unknown_ones() {
        let probe = Probe::Attention { side: AttentionSide::Key, tokens: RelevantTokens::Cls };
        let text = r#"{"attention":{"side":"key","tokens":"cls"}}"#;
        assert_eq!(serde_json::to_string(&probe).expect("plain data"), text);
        assert_eq!(serde_json::from_str::<Probe>(text).expect("just written"), probe);
        let typo = r#"{"attention":{"side":"key","tokens":"cls","token":"cls"}}"#;
        assert!(serde_json::from_str::<Probe>(typo).is_err());
    }
}
