//! SAFL: the blocks that attention points to learn and travel, the others rest.
//!
//! Selective Attention Federated Learning: Improving Privacy and Efficiency for Clinical Text
//! Classification. 2025, arXiv 2504.11793, equation 1 and its algorithm.
//!
//! ```text
//! client  A_l = 1/(H n) sum over heads h, queries i, relevant keys j of alpha[l, h, i, j]
//! server  S = the K blocks with the highest mean A_l            (consensus), or
//! client  S_k = the K blocks with its own highest A_l           (per_client, the paper)
//! client  w_l <- w_l - rate g_l                                 for l in S and the head
//! server  w_l <- w_l + sum_k n_k change_kl / sum_k n_k          over the k that sent block l
//! ```
//!
//! The score is normalised (the paper's is a plain sum, which long inputs would dominate), and every
//! control is a `selector` with the same K: without them nobody can say that attention chose well.

mod block_count;
mod pruning;
mod selector;

use std::collections::BTreeMap;

use fedra_plan::{AttentionSide, Layer, Probe, RelevantTokens, Rule};
use fedra_wire::Encoding;
use serde::{Deserialize, Serialize};

use super::beneath::Beneath;
use crate::aggregate::fold::Denominator;
use crate::error::{EngineError, refuse};
use crate::recipe::Recipe;
use crate::selection::{Masks, Selection};
use crate::settings::settings;
use crate::work::HeadProbe;

pub use block_count::BlockCount;
pub use pruning::Pruning;
pub use selector::BlockSelector;

settings! {
    /// The method's settings.
    pub struct Safl<Base> {
        /// How many blocks learn: 2 unless given, and as many as [`BlockSelector::Blocks`] names.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub k: Option<BlockCount> = None,
        /// What ranks the blocks.
        pub selector: BlockSelector = BlockSelector::Attention,
        /// Whether all clients train the same blocks or each its own.
        pub mask: Masks = Masks::Consensus,
        /// The tokens on which attention has to land; [`RelevantTokens::Cls`] on the key side and
        /// [`RelevantTokens::All`] on the query side unless given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub relevant: Option<RelevantTokens> = None,
        /// Whose attention counts; the key side unless given, and whoever knows that the model is a
        /// decoder should give the query side.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub side: Option<AttentionSide> = None,
        /// Clients measure in every so many rounds.
        pub profile_every: u32 = Selection::default().profile_every,
        /// Clients stop measuring after so many measurements, and the choice stands still.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub settle: Option<u32> = None,
        /// Most examples that a client looks at to measure.
        pub profile_examples: u32 = Selection::default().profile_examples,
        /// By whose weights a block's sum is divided.
        pub denominator: Denominator = Denominator::Participants,
        /// Inside blocks, send only the entries that changed most, or only some heads of attention.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub prune: Option<Pruning> = None,
        /// How many of the K blocks are drawn by lot.
        pub explore: u16 = Selection::default().explore,
        /// Whether the embeddings learn too.
        pub embeddings: Embeddings = Embeddings::Frozen,
        /// The method beneath.
        pub base: Box<Base> = Box::default(),
    }
}

impl<Base: Beneath> Safl<Base> {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let (probe, criterion) = (self.probe(), self.selector.criterion());
        let (count, attention) = (self.count(), self.attention());
        let base = self.base.recipe_beneath(base);
        let (usual, counts, budget) = match count {
            BlockCount::Everywhere(k) => (k, BTreeMap::new(), None),
            BlockCount::Named { default, counts } => (default, counts, None),
            // K follows from the budget once the model is known; until then one block stands for it.
            BlockCount::Memory(budget) => (1, BTreeMap::new(), Some(budget)),
        };
        let always = match self.embeddings {
            Embeddings::Frozen => [Layer::Head].into(),
            Embeddings::Learn => [Layer::Embedding, Layer::Head].into(),
        };
        let part = Rule::Chosen | Rule::Layers(always);
        let mut work = base.work;
        match self.prune {
            None => {}
            Some(Pruning::Entries { share, feedback }) => {
                work.encoding = Encoding::Pruned { share, feedback };
            }
            Some(Pruning::Heads { share, of }) => {
                work.encoding = Encoding::Heads { share, of };
                work.head_probe =
                    Some(HeadProbe { probe: attention, examples: self.profile_examples });
            }
        }
        Recipe {
            learns: if base.learns == Rule::Everything { part } else { base.learns & part },
            masks: self.mask,
            selection: Selection {
                k: usual,
                probe,
                criterion,
                explore: self.explore,
                profile_every: self.profile_every,
                settle: self.settle,
                profile_examples: self.profile_examples,
                counts,
                budget,
            },
            denominator: self.denominator,
            work,
            ..base
        }
    }

    /// Refuses methods that cannot lie beneath, and blocks that contradict their number.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        self.selector.check()?;
        if let (BlockSelector::Blocks(_), Some(given)) = (&self.selector, &self.k)
            && *given != self.selector.usual_count()
        {
            let expected = "the number of blocks that method.selector names, or no k at all";
            return refuse("method.k", given, expected);
        }
        self.base.check_beneath(&[
            ("centralised", "a federated method: centralised training sends no blocks"),
            ("local-only", "a method that aggregates: without aggregation no block is sent"),
            ("safl", "another method: blocks can be chosen only once"),
            ("fedfrozen", "the reverse order: fedfrozen with base = { name = \"safl\", .. }"),
        ])
    }

    /// The attention that counts, whoever looks at it.
    pub fn attention(&self) -> Probe {
        let side = self.side.unwrap_or(AttentionSide::Key);
        let usual = match side {
            AttentionSide::Key => RelevantTokens::Cls,
            AttentionSide::Query => RelevantTokens::All,
        };
        Probe::Attention { side, tokens: self.relevant.unwrap_or(usual) }
    }

    /// How many blocks learn.
    fn count(&self) -> BlockCount {
        self.k.clone().unwrap_or_else(|| self.selector.usual_count())
    }

    /// What clients measure, if anything.
    pub fn probe(&self) -> Option<Probe> {
        let probe = if self.selector == BlockSelector::GradientNorm {
            Probe::GradientNorm
        } else if self.selector == BlockSelector::GradientCover {
            Probe::RelativeGradient
        } else {
            self.attention()
        };
        self.selector.criterion().looks_at_data().then_some(probe)
    }
}

/// Whether the embeddings learn too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Embeddings {
    /// No: right for pretrained weights, and the larger part of the saving.
    #[default]
    Frozen,
    /// Yes: fresh embeddings know nothing, and blocks cannot learn for them.
    Learn,
}
