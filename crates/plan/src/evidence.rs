//! What a round measures before it decides which blocks learn.
//!
//! A [`Probe`] is plain data that says *what* to measure; [`BlockScores`] is the answer and
//! remembers the probe, so that a rule can refuse scores of another kind.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::PlanError;

/// What evidence a round needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Probe {
    /// None: the choice is made without looking at data.
    #[default]
    Nothing,
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
    /// Nothing that a client could measure: the server puts the blocks in an order of its own, by
    /// place, by turn or by lot, and hands it over as scores.
    ServerOrder,
}

impl Probe {
    /// Whether clients have to look at their data for it.
    pub const fn asks_clients(self) -> bool {
        match self {
            Self::Nothing | Self::ServerOrder => false,
            Self::Attention { .. } | Self::GradientNorm | Self::RelativeGradient => true,
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
            Some(block) => Err(PlanError::ScoreNotFinite { block, found: scores[block] }),
        }
    }

    /// Scores that rank the given blocks in the given order, and all others below them.
    pub fn of_order(probe: Probe, order: &[u16], blocks: u16) -> Self {
        let mut scores = vec![0.0; usize::from(blocks)];
        for (place, block) in order.iter().enumerate() {
            if let Some(score) = scores.get_mut(usize::from(*block)) {
                *score = (order.len() - place) as f64;
            }
        }
        Self { probe, scores }
    }

    /// What was measured.
    pub const fn probe(&self) -> Probe {
        self.probe
    }

    /// The scores in block order.
    pub fn as_slice(&self) -> &[f64] {
        &self.scores
    }

    /// The blocks from the highest score to the lowest; of equals the lower block comes first.
    pub fn ranking(&self) -> Vec<u16> {
        let mut ranked: Vec<(u16, f64)> = (0..=u16::MAX).zip(self.scores.iter().copied()).collect();
        // A stable sort keeps equal scores, and -0 counts as 0, in block order.
        ranked.sort_by(|(_, left), (_, right)| {
            right.partial_cmp(left).expect("the constructor refuses scores that do not compare")
        });
        ranked.into_iter().map(|(block, _)| block).collect()
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => formatter.write_str("nothing"),
            Self::Attention { side, tokens } => {
                write!(formatter, "attention ({side} side, {tokens})")
            }
            Self::GradientNorm => formatter.write_str("gradient norms"),
            Self::RelativeGradient => formatter.write_str("relative gradient norms"),
            Self::ServerOrder => formatter.write_str("an order of the server"),
        }
    }
}

impl fmt::Display for AttentionSide {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Key => "key",
            Self::Query => "query",
        })
    }
}

impl fmt::Display for RelevantTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Cls => "classification token",
            Self::Entities => "entity tokens",
            Self::All => "all content tokens",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_rank_by_score_and_ties_go_to_the_lower_block() {
        let scores = BlockScores::new(Probe::GradientNorm, vec![0.0, 3.0, -0.0, 3.0, -1.0]);
        assert_eq!(scores.expect("finite").ranking(), [1, 3, 0, 2, 4]);
    }

    #[test]
    fn an_order_becomes_scores_that_rank_like_it() {
        let scores = BlockScores::of_order(Probe::ServerOrder, &[3, 0], 4);
        assert_eq!(scores.ranking(), [3, 0, 1, 2]);
    }

    #[test]
    fn a_score_that_is_not_finite_is_refused() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let refused = BlockScores::new(Probe::GradientNorm, vec![0.5, bad]);
            let message = refused.expect_err("not finite").to_string();
            assert_eq!(message, format!("the score of block 1 is {bad}: expected a finite number"));
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
