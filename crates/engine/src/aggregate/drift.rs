//! How far the clients of a round went apart, by what parameters do.
//!
//! Nothing is kept of an update but its sums of squares, so the fold still has one update in memory
//! at a time. With weights `w_k` that add up to W, changes `d_k` (divided by their pace and multiplied
//! by the mean pace, as in the fold) and their mean d:
//!
//! ```text
//! drift         sum_k w_k |d_k - d|^2 / W  =  sum_k w_k |d_k|^2 / W - |d|^2
//! disagreement  1 - |d| / ( sum_k w_k |d_k| / W )      0: all the same; near 1: they cancel out
//! ```
//!
//! Sums are f64. The mean is the fold's own, in f32, so a drift below a ten-millionth of `|d|^2` is
//! rounding and may read as zero.

use std::collections::BTreeMap;

use fedra_plan::{ParamId, Role};
use fedra_wire::{Mean, Opened};
use serde::{Deserialize, Serialize};

use crate::aggregate::attention::AttentionDrift;
use crate::aggregate::fold::{Contribution, Denominator, Weights};

/// Parameters that do the same kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleGroup {
    /// Query and key: where attention looks.
    QueryKey,
    /// Value: what it sees there.
    Value,
    /// Output projection of attention.
    Output,
    /// Feed-forward layers.
    Mlp,
    /// Embeddings, norms and the head.
    Rest,
}

impl RoleGroup {
    /// The group of a role.
    pub const fn of(role: Role) -> Self {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is all that is not listed")]
        match role {
            Role::Query | Role::Key => Self::QueryKey,
            Role::Value => Self::Value,
            Role::Output => Self::Output,
            Role::Gate | Role::Up | Role::Down => Self::Mlp,
            _ => Self::Rest,
        }
    }
}

/// What a round says about its clients' going apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriftReport {
    /// By kind of parameter; what nobody sent is absent.
    pub roles: BTreeMap<RoleGroup, RoleDrift>,
    /// Query and key of each block; blocks whose query and key nobody sent are absent.
    pub query_key_blocks: BTreeMap<u16, RoleDrift>,
    /// How attention moved, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionDrift>,
}

/// How far clients went apart in one group of parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleDrift {
    /// Mean squared distance of the clients' changes to their mean.
    pub drift: f64,
    /// One less the norm of the mean change over the mean norm of the changes.
    pub disagreement: f64,
    /// Norm of the mean change.
    pub mean_norm: f64,
}

/// Running sums over a round's updates.
#[derive(Clone, Debug, Default)]
pub struct Drift {
    denominator: Denominator,
    first: Option<Contribution>,
    everyone: Weights,
    squares: BTreeMap<ParamId, Sum>,
    roles: BTreeMap<RoleGroup, Sum>,
    blocks: BTreeMap<u16, Sum>,
}

/// A sum and the weights of those who are in it.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    weights: Weights,
    sum: f64,
}

impl Drift {
    /// No update yet.
    pub fn new(denominator: Denominator) -> Self {
        Self { denominator, ..Self::default() }
    }

    /// Adds an update that the fold counts in the same way.
    pub fn add(&mut self, update: &Opened, contribution: Contribution) {
        let first = *self.first.get_or_insert(contribution);
        let relative = contribution.relative_to(first);
        let Contribution { weight, pace } = relative;
        self.everyone.add(relative);
        let (mut roles, mut blocks) = (BTreeMap::new(), BTreeMap::new());
        for (id, square) in update.squares() {
            let sum = self.squares.entry(id).or_default();
            sum.weights.add(relative);
            sum.sum += weight / (pace * pace) * square;
            *roles.entry(RoleGroup::of(id.role)).or_insert(0.0) += square;
            if let Some(block) = query_key_block(id) {
                *blocks.entry(block).or_insert(0.0) += square;
            }
        }
        for (group, square) in roles {
            self.roles.entry(group).or_default().add_norm(relative, square);
        }
        for (block, square) in blocks {
            self.blocks.entry(block).or_default().add_norm(relative, square);
        }
    }

    /// What it comes to, given the mean change that the fold made of the same updates.
    pub fn close(&self, mean: &Mean) -> DriftReport {
        let role = |(group, norms): (&RoleGroup, &Sum)| {
            (*group, self.within(mean, norms, &|id| RoleGroup::of(id.role) == *group))
        };
        let block = |(block, norms): (&u16, &Sum)| {
            (*block, self.within(mean, norms, &|id| query_key_block(id) == Some(*block)))
        };
        DriftReport {
            roles: self.roles.iter().map(role).collect(),
            query_key_blocks: self.blocks.iter().map(block).collect(),
            attention: None,
        }
    }

    fn within(&self, mean: &Mean, norms: &Sum, inside: &dyn Fn(ParamId) -> bool) -> RoleDrift {
        let (mut spread, mut square_of_mean) = (0.0, 0.0);
        for (id, squares) in self.squares.iter().filter(|(id, _)| inside(**id)) {
            let square = mean.squares_onto(0.0, *id).unwrap_or(0.0);
            let mean_pace = self.weights(squares).mean_pace();
            spread += self.over_weights(squares) * mean_pace * mean_pace - square;
            square_of_mean += square;
        }
        let mean_norm: f64 = square_of_mean.sqrt();
        let mean_of_norms = self.over_weights(norms) * self.weights(norms).mean_pace();
        let agreement = if mean_of_norms > 0.0 { mean_norm / mean_of_norms } else { 1.0 };
        // Both are at least zero but for rounding.
        RoleDrift {
            drift: spread.max(0.0),
            disagreement: (1.0 - agreement).clamp(0.0, 1.0),
            mean_norm,
        }
    }

    fn over_weights(&self, sum: &Sum) -> f64 {
        sum.sum / self.weights(sum).total
    }

    fn weights(&self, sum: &Sum) -> Weights {
        match self.denominator {
            Denominator::Participants => sum.weights,
            Denominator::Everyone => self.everyone,
        }
    }
}

impl Sum {
    fn add_norm(&mut self, relative: Contribution, square: f64) {
        self.weights.add(relative);
        self.sum += relative.weight / relative.pace * square.sqrt();
    }
}

/// The block whose query or key this is.
fn query_key_block(id: ParamId) -> Option<u16> {
    id.layer.block().filter(|_| RoleGroup::of(id.role) == RoleGroup::QueryKey)
}
