//! What ranks SAFL's blocks, as an experiment file names it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::block_count::{BlockCount, USUAL_COUNT};
use crate::error::{EngineError, refuse};
use crate::selection::Criterion;

/// What ranks the blocks: attention, its controls, and candidates for something better.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockSelector {
    /// The highest attention scores (the paper).
    #[default]
    Attention,
    /// Control: by lot, anew in each round.
    Random,
    /// Control: by lot, once.
    RandomFixed,
    /// Control: those next to the embedding.
    First,
    /// Control: those next to the head.
    Last,
    /// Control: evenly spaced (Layer-Skipping).
    Even,
    /// Control: the lowest attention scores.
    Bottom,
    /// Control: the highest gradient norms.
    GradientNorm,
    /// Control: in turn (FedPart).
    Cyclic,
    /// Candidate: the highest attention score of each of K bands of the depth.
    Cover,
    /// Candidate: attention relative to the block's own running mean.
    Corrected,
    /// Candidate: where clients' attention scores differ most.
    Disagreement,
    /// Candidate: the highest relative gradient norm of each of K bands of the depth.
    GradientCover,
    /// Exactly these blocks, in every round: `{ blocks = [1, 4] }`.
    Blocks(Vec<u16>),
}

impl BlockSelector {
    pub(super) fn criterion(&self) -> Criterion {
        match self {
            Self::Attention | Self::GradientNorm => Criterion::Highest,
            Self::Bottom => Criterion::Lowest,
            Self::Random => Criterion::Random,
            Self::RandomFixed => Criterion::RandomFixed,
            Self::First => Criterion::First,
            Self::Last => Criterion::Last,
            Self::Even => Criterion::Even,
            Self::Cyclic => Criterion::Cyclic,
            Self::Cover | Self::GradientCover => Criterion::Cover,
            Self::Corrected => Criterion::Corrected,
            Self::Disagreement => Criterion::Disagreement,
            Self::Blocks(blocks) => Criterion::Named(blocks.clone()),
        }
    }

    /// How many blocks learn unless the file says.
    pub(super) fn usual_count(&self) -> BlockCount {
        let Self::Blocks(blocks) = self else { return BlockCount::Everywhere(USUAL_COUNT) };
        BlockCount::Everywhere(u16::try_from(blocks.len()).unwrap_or(u16::MAX))
    }

    /// Refuses a list of blocks that is none.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let Self::Blocks(blocks) = self else { return Ok(()) };
        let key = "method.selector";
        if blocks.is_empty() {
            return refuse(key, "no block", "at least one, such as { blocks = [1, 4] }");
        }
        let mut seen = BTreeSet::new();
        match blocks.iter().find(|block| !seen.insert(**block)) {
            None => Ok(()),
            Some(twice) => refuse(key, format!("block {twice} twice"), "every block once"),
        }
    }
}
