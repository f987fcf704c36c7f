//! A model cut between its clients and the server (FedSEA-LLaMA, Zhang et al. 2025,
//! <https://arxiv.org/abs/2505.15683>): where the cut is, in which order the server serves its
//! clients, and what is done to what leaves a client.
//!
//! The cut itself is part of each client's [`Plan`](fedra_plan::Plan); this is the recipe for it.

use std::collections::BTreeMap;

use fedra_plan::{Cut, PlanError, Round};
use fedra_wire::RowEncoding;
use serde::{Deserialize, Serialize};

use crate::error::{EngineError, positive, refuse};

/// How a model is cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitConfig {
    /// What clients keep, unless said otherwise.
    pub ends: ClientBlocks,
    /// What the clients of these names keep.
    #[serde(default)]
    pub clients: BTreeMap<String, ClientBlocks>,
    /// Cuts that move: from a round on, clients without an entry of their own keep this.
    #[serde(default)]
    pub moves: Vec<Move>,
    /// Whom the server serves when, and with which copy.
    #[serde(default)]
    pub mode: SplitMode,
    /// With copies: average them after every so many steps too, not only at the end of a round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_every: Option<u32>,
    /// How rows are written.
    #[serde(default)]
    pub encoding: RowEncoding,
    /// What is added to rows before they leave a client.
    #[serde(default)]
    pub noise: Option<Noise>,
    /// Whether a ledger answers for that noise.
    #[serde(default, skip_serializing_if = "RowPrivacy::is_empirical")]
    pub privacy: RowPrivacy,
}

/// What the noise of rows is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RowPrivacy {
    /// It perturbs.
    #[default]
    Empirical,
    /// It is drawn from the client's secret key, and each row is a release in a ledger
    /// ([`RowsAtCut`](crate::RowsAtCut)). A client tells no loss, and a number that is none becomes zero.
    Accounted {
        /// The most tokens of an example: a public bound.
        longest: u32,
    },
}

impl RowPrivacy {
    /// Whether no ledger answers for it.
    pub const fn is_empirical(&self) -> bool {
        matches!(self, Self::Empirical)
    }
}

/// How many blocks a client keeps at either end (p and q of the paper).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(deny_unknown_fields)]
pub struct ClientBlocks {
    /// Blocks behind the embedding.
    pub first: u16,
    /// Blocks in front of the head.
    pub last: u16,
}

/// A cut that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// The first round with this cut, counted from 1.
    pub round: u32,
    /// Blocks behind the embedding.
    pub first: u16,
    /// Blocks in front of the head.
    pub last: u16,
}

/// How the server serves several clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitMode {
    /// One copy of the middle; clients take their turns on it.
    Sequential,
    /// One copy of the middle; the rows of all clients go through it in one step.
    Batched,
    /// A copy of the middle for each client; the copies are averaged at the end of the round.
    #[default]
    Replicated,
}

/// What is added to rows before they leave a client. It perturbs; it is no guarantee of privacy
/// unless rows are clipped and the noise is accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// How much.
    pub kind: NoiseKind,
    /// Whether an example meets new noise each time.
    #[serde(default)]
    pub draw: NoiseDraw,
    /// Whether gradients that leave a client get it too.
    #[serde(default = "yes")]
    pub gradients: bool,
    /// The largest norm of a gradient's row where rows are clipped; that of states unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
}

const fn yes() -> bool {
    true
}

/// How large noise is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NoiseKind {
    /// Standard deviation `gamma` times the root mean square of the row.
    Relative {
        /// The factor.
        gamma: f64,
    },
    /// Rows are scaled down to the norm; standard deviation `sigma * norm`.
    Clipped {
        /// The largest norm of a row.
        norm: f64,
        /// Noise in units of it.
        sigma: f64,
    },
    /// Standard deviation `1.2533 * scale` whatever the row, the paper's convention: `scale` is then
    /// the mean absolute value.
    Absolute {
        /// The scale.
        scale: f64,
    },
}

/// Whether the same example meets the same noise again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoiseDraw {
    /// New noise each time: whoever sees the same text often can average it away.
    Fresh,
    /// One draw for each example, kept.
    #[default]
    Cached,
}

impl SplitConfig {
    /// The same cut for everybody, in every round.
    pub fn new(ends: ClientBlocks) -> Self {
        Self { ends, ..Self::default() }
    }

    /// Whether clients have to be at work side by side: they wait for each other.
    pub const fn is_joined(&self) -> bool {
        match self.mode {
            SplitMode::Batched => true,
            SplitMode::Replicated => self.average_every.is_some(),
            SplitMode::Sequential => false,
        }
    }

    /// What the named client keeps in a round.
    pub fn ends_of(&self, name: &str, round: Round) -> ClientBlocks {
        if let Some(own) = self.clients.get(name) {
            return *own;
        }
        let moved = self.moves.iter().filter(|step| step.round <= round.0 + 1);
        let latest = moved.max_by_key(|step| step.round);
        latest.map_or(self.ends, |step| ClientBlocks { first: step.first, last: step.last })
    }

    /// What is added to rows, for people; `None` where nothing is.
    pub fn describe_noise(&self) -> Option<String> {
        let kind = self.noise?.kind;
        Some(match (kind, self.privacy) {
            (NoiseKind::Clipped { norm, sigma }, RowPrivacy::Accounted { .. }) => {
                format!(
                    "clipped to norm {norm}, sigma {sigma}: accounted in the ledger, row by row"
                )
            }
            (kind, RowPrivacy::Accounted { .. } | RowPrivacy::Empirical) => kind.describe(),
        })
    }

    /// The named client's cut of a model of so many blocks.
    pub fn cut(&self, name: &str, round: Round, blocks: u16) -> Result<Cut, PlanError> {
        let ClientBlocks { first, last } = self.ends_of(name, round);
        Cut::keep(first, last, blocks)
    }

    /// All cuts that it names, each with whose it is.
    fn named(&self) -> impl Iterator<Item = (String, ClientBlocks)> {
        let of_clients = self.clients.iter().map(|(name, ends)| (format!("for {name:?}"), *ends));
        let of_moves = self.moves.iter().map(|step| {
            (
                format!("from round {}", step.round),
                ClientBlocks { first: step.first, last: step.last },
            )
        });
        [("for every client".to_owned(), self.ends)].into_iter().chain(of_clients).chain(of_moves)
    }

    /// All cuts of a model of so many blocks.
    pub fn cuts(&self, blocks: u16) -> Result<Vec<Cut>, PlanError> {
        self.named()
            .map(|(_, ClientBlocks { first, last })| Cut::keep(first, last, blocks))
            .collect()
    }

    /// Refuses cuts that a model of so many blocks does not have.
    pub(crate) fn check_model(&self, blocks: u16) -> Result<(), EngineError> {
        for (whose, ClientBlocks { first, last }) in self.named() {
            if Cut::keep(first, last, blocks).is_err() {
                let found = format!("first = {first}, last = {last} {whose}, of {blocks} blocks");
                return refuse("split", found, "at least one block between them, for the server");
            }
        }
        Ok(())
    }

    /// Refuses settings that make no sense by themselves.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if self.moves.iter().any(|step| step.round == 0) {
            return refuse("split.moves", "round 0", "rounds from 1 on");
        }
        let twice = self.moves.iter().enumerate().find(|(place, step)| {
            self.moves[..*place].iter().any(|before| before.round == step.round)
        });
        if let Some((_, step)) = twice {
            let found = format!("two moves in round {}", step.round);
            return refuse("split.moves", found, "at most one move per round");
        }
        if self.mode == SplitMode::Batched && !self.clients.is_empty() {
            let expected = "one cut for all clients, whose rows go through the same blocks";
            return refuse("split.clients", "separate cuts with mode = \"batched\"", expected);
        }
        match (self.average_every, self.mode) {
            (None, _) | (Some(1..), SplitMode::Replicated) => {}
            (Some(0), SplitMode::Replicated) => {
                return refuse("split.average_every", 0, "at least 1");
            }
            (Some(_), SplitMode::Sequential | SplitMode::Batched) => {
                let found = "a value without mode = \"replicated\"";
                return refuse(
                    "split.average_every",
                    found,
                    "no such key: the server has one copy",
                );
            }
        }
        let Some(noise) = self.noise else { return Ok(()) };
        if let Some(norm) = noise.gradient_norm {
            positive("split.noise.gradient_norm", norm)?;
        }
        match noise.kind {
            NoiseKind::Relative { gamma } => positive("split.noise.gamma", gamma),
            NoiseKind::Absolute { scale } => positive("split.noise.scale", scale),
            NoiseKind::Clipped { norm, sigma } => {
                positive("split.noise.norm", norm)?;
                if sigma.is_finite() && sigma >= 0.0 {
                    return Ok(());
                }
                refuse("split.noise.sigma", sigma, "finite and at least 0")
            }
        }
    }
}

impl NoiseKind {
    /// The paper's scale in standard deviations: a normal variable's mean absolute value is
    /// `sqrt(2 / pi)` of its deviation.
    pub const ABSOLUTE: f64 = 1.2533;

    /// What it is, for people.
    pub fn describe(self) -> String {
        match self {
            Self::Relative { gamma } => {
                format!("relative, gamma {gamma}: an empirical perturbation")
            }
            Self::Clipped { norm, sigma } => {
                format!(
                    "clipped to norm {norm}, sigma {sigma}: bounded, accounted for only under [privacy]"
                )
            }
            Self::Absolute { scale } => {
                format!("absolute, scale {scale}: an empirical perturbation")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_of_its_own_keeps_its_cut_and_the_others_move() {
        let mut split = SplitConfig::new(ClientBlocks { first: 1, last: 1 });
        split.clients.insert("small".to_owned(), ClientBlocks { first: 0, last: 1 });
        split.moves =
            vec![Move { round: 5, first: 3, last: 1 }, Move { round: 3, first: 2, last: 1 }];
        let first = |name, round| split.ends_of(name, Round(round)).first;
        assert_eq!([first("other", 0), first("other", 2), first("other", 9)], [1, 2, 3]);
        assert_eq!([first("small", 0), first("small", 9)], [0, 0]);
    }

    #[test]
    fn a_cut_that_leaves_the_server_nothing_is_refused_with_its_place() {
        let mut split = SplitConfig::new(ClientBlocks { first: 1, last: 1 });
        split.moves = vec![Move { round: 4, first: 2, last: 2 }];
        let error = split.check_model(4).expect_err("no block is left").to_string();
        assert!(error.contains("first = 2, last = 2 from round 4, of 4 blocks"), "{error}");
    }
}
