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

mod pruning;
mod selector;

use std::collections::BTreeMap;
use std::fmt;

use fedra_plan::{AttentionSide, ByteCount, Probe, RelevantTokens, Rule, Site};
use fedra_wire::Encoding;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::base_method::BaseMethod;
use crate::error::EngineError;
use crate::fold::Denominator;
use crate::recipe::Recipe;
use crate::selection::{Masks, Selection};
use crate::work::HeadProbe;

pub use pruning::Pruning;
pub use selector::BlockSelector;

/// How many blocks learn unless the file says.
const USUAL_COUNT: u16 = 2;

/// The method's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Safl {
    /// How many blocks learn: 2 unless given, and as many as [`BlockSelector::Blocks`] names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<BlockCount>,
    /// What ranks the blocks.
    pub selector: BlockSelector,
    /// Whether all clients train the same blocks or each its own.
    pub mask: Masks,
    /// The tokens on which attention has to land; [`RelevantTokens::Cls`] on the key side and
    /// [`RelevantTokens::All`] on the query side unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relevant: Option<RelevantTokens>,
    /// Whose attention counts; the key side unless given, and whoever knows that the model is a
    /// decoder should give the query side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<AttentionSide>,
    /// Clients measure in every so many rounds.
    pub profile_every: u32,
    /// Clients stop measuring after so many measurements, and the choice stands still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle: Option<u32>,
    /// Most examples that a client looks at to measure.
    pub profile_examples: u32,
    /// By whose weights a block's sum is divided.
    pub denominator: Denominator,
    /// Inside blocks, send only the entries that changed most, or only some heads of attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prune: Option<Pruning>,
    /// How many of the K blocks are drawn by lot.
    pub explore: u16,
    /// Whether the embeddings learn too.
    pub embeddings: Embeddings,
    /// The method beneath.
    pub base: BaseMethod,
}

impl Default for Safl {
    fn default() -> Self {
        let Selection { profile_every, profile_examples, explore, .. } = Selection::default();
        Self {
            k: None,
            selector: BlockSelector::Attention,
            mask: Masks::Consensus,
            relevant: None,
            side: None,
            profile_every,
            settle: None,
            profile_examples,
            denominator: Denominator::Participants,
            prune: None,
            explore,
            embeddings: Embeddings::Frozen,
            base: BaseMethod::default(),
        }
    }
}

impl Safl {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let (probe, criterion) = (self.probe(), self.selector.criterion());
        let (count, attention) = (self.count(), self.attention());
        let base = self.base.recipe(base);
        let (usual, counts, budget) = match count {
            BlockCount::Everywhere(k) => (k, BTreeMap::new(), None),
            BlockCount::Named { default, counts } => (default, counts, None),
            // K follows from the budget once the model is known; until then one block stands for it.
            BlockCount::Memory(budget) => (1, BTreeMap::new(), Some(budget)),
        };
        let always = match self.embeddings {
            Embeddings::Frozen => [Site::Head].into(),
            Embeddings::Learn => [Site::Embedding, Site::Head].into(),
        };
        let part = Rule::Chosen | Rule::Sites(always);
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

    pub(super) fn over(self, rounds: u32) -> Self {
        Self { base: self.base.over(rounds), ..self }
    }

    /// Refuses methods that cannot lie beneath, and blocks that contradict their number.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        self.selector.check()?;
        if let (BlockSelector::Blocks(_), Some(given)) = (&self.selector, &self.k)
            && *given != self.selector.usual_count()
        {
            return Err(EngineError::Setting {
                key: "method.k",
                found: given.to_string(),
                expected: "the number of blocks that method.selector names, or no k at all",
            });
        }
        self.base.check(&[
            ("centralised", "a federated method: one party alone sends no blocks"),
            ("local-only", "a method that aggregates: without it no block travels"),
            ("safl", "another method: blocks are chosen once"),
            ("fedfrozen", "fedfrozen on top: fedfrozen with base = { name = \"safl\", .. }"),
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
        match &self.selector {
            BlockSelector::Attention
            | BlockSelector::Bottom
            | BlockSelector::Cover
            | BlockSelector::Corrected
            | BlockSelector::Disagreement => Some(self.attention()),
            BlockSelector::GradientNorm => Some(Probe::GradientNorm),
            BlockSelector::GradientCover => Some(Probe::RelativeGradient),
            BlockSelector::Random
            | BlockSelector::RandomFixed
            | BlockSelector::First
            | BlockSelector::Last
            | BlockSelector::Even
            | BlockSelector::Cyclic
            | BlockSelector::Blocks(_) => None,
        }
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

/// How many blocks learn: `2`, `{ default = 4, "hospital-3" = 2 }` or `{ memory = "200 MB" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockCount {
    /// So many at every client.
    Everywhere(u16),
    /// So many at the named clients, and a usual number at the others.
    Named {
        /// The usual number.
        default: u16,
        /// The exceptions, by name.
        counts: BTreeMap<String, u16>,
    },
    /// As many as fit into this much memory of a client.
    Memory(ByteCount),
}

impl fmt::Display for BlockCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everywhere(k) => write!(formatter, "{k}"),
            Self::Named { default, counts } => {
                write!(formatter, "{default} and {} numbers of clients", counts.len())
            }
            Self::Memory(budget) => write!(formatter, "{{ memory = \"{budget}\" }}"),
        }
    }
}

impl Serialize for BlockCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Everywhere(k) => serializer.serialize_u16(*k),
            Self::Named { default, counts } => {
                let mut map = serializer.serialize_map(Some(1 + counts.len()))?;
                map.serialize_entry("default", default)?;
                for (name, count) in counts {
                    map.serialize_entry(name, count)?;
                }
                map.end()
            }
            Self::Memory(budget) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("memory", &format!("{} B", budget.0))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for BlockCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Words)
    }
}

/// Reads the three spellings of a block count.
struct Words;

impl<'de> Visitor<'de> for Words {
    type Value = BlockCount;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(
            "a number of blocks, { default = 4, \"client\" = 2 } or { memory = \"200 MB\" }",
        )
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<BlockCount, E> {
        let count = u16::try_from(number);
        count
            .map(BlockCount::Everywhere)
            .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<BlockCount, M::Error> {
        let (mut default, mut counts, mut memory) = (None, BTreeMap::new(), None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "memory" => {
                    let text = map.next_value::<String>()?;
                    memory = Some(text.parse::<ByteCount>().map_err(M::Error::custom)?);
                }
                "default" => default = Some(map.next_value()?),
                _ => {
                    counts.insert(key, map.next_value::<u16>()?);
                }
            }
        }
        match (default, memory) {
            (Some(default), None) => Ok(BlockCount::Named { default, counts }),
            (None, Some(budget)) if counts.is_empty() => Ok(BlockCount::Memory(budget)),
            (Some(_) | None, Some(_)) => {
                Err(M::Error::custom("memory beside numbers of blocks: expected one or the other"))
            }
            (None, None) => Err(M::Error::missing_field("default")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &BlockCount) {
        assert_eq!(serde_json::from_str::<BlockCount>(text).expect(text), *expected);
        let again = serde_json::to_string(expected).expect("plain data");
        assert_eq!(serde_json::from_str::<BlockCount>(&again).expect("just written"), *expected);
    }

    #[test]
    fn k_has_three_spellings() {
        check("3", &BlockCount::Everywhere(3));
        let counts = [("hospital-3".to_owned(), 2)].into();
        let named = BlockCount::Named { default: 4, counts };
        check(r#"{"default":4,"hospital-3":2}"#, &named);
        check(r#"{"memory":"200 MB"}"#, &BlockCount::Memory(ByteCount(200_000_000)));
        for wrong in [
            "-1",
            "70000",
            r#""two""#,
            r#"{"hospital-3":2}"#,
            r#"{"memory":"lots"}"#,
            r#"{"memory":"1 MB","default":2}"#,
        ] {
            assert!(serde_json::from_str::<BlockCount>(wrong).is_err(), "{wrong}");
        }
    }
}
