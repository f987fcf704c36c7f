//! Updates into one mean change, one at a time.
//!
//! The sum is one model of f32, the update being added is another, and that is all the memory a
//! fold takes: values go straight from the payload's bytes into the sum. Weights are f64 and are
//! taken relative to the first update's, so that equal weights are exactly one and a single update
//! comes out as it went in.
//!
//! For parameter p and the clients k that sent it, with weight `w_k` and pace `a_k`:
//! ```text
//! mean_p = ( sum_k w_k a_k / W ) * ( sum_k (w_k / a_k) change_kp ) / W,    W = sum_k w_k
//! ```
//! which is the plain weighted mean when all paces are equal, and `FedNova`'s update otherwise.
//! Updates have to be added in client order: float addition is not associative.

use std::collections::BTreeMap;

use fedra_plan::ParamId;
use fedra_wire::{Opened, Tensors};
use serde::{Deserialize, Serialize};

/// A running weighted sum of updates over whatever scopes they have.
#[derive(Clone, Debug)]
pub struct Fold {
    denominator: Denominator,
    first: Option<Contribution>,
    sum: Tensors,
    weights: BTreeMap<ParamId, Weights>,
    everyone: Weights,
}

/// By whose weights a parameter's sum is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Denominator {
    /// Those who sent the parameter.
    #[default]
    Participants,
    /// All who sent anything: an unsent parameter counts as no change.
    Everyone,
}

/// How much an update counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contribution {
    /// Its weight, such as the number of examples; finite and above zero.
    pub weight: f64,
    /// By how many steps it is to be divided; finite and above zero. All alike: no effect.
    pub pace: f64,
}

impl Contribution {
    /// An update that counts so much, whatever its steps.
    pub const fn weighing(weight: f64) -> Self {
        Self { weight, pace: 1.0 }
    }

    /// The same in units of another.
    pub(crate) fn relative_to(self, first: Self) -> Self {
        Self { weight: self.weight / first.weight, pace: self.pace / first.pace }
    }
}

/// The weights of a parameter's or of all updates.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weights {
    pub(crate) total: f64,
    paced: f64,
}

impl Weights {
    pub(crate) const NONE: Self = Self { total: 0.0, paced: 0.0 };

    pub(crate) fn add(&mut self, contribution: Contribution) {
        self.total += contribution.weight;
        self.paced += contribution.weight * contribution.pace;
    }

    pub(crate) fn mean_pace(self) -> f64 {
        self.paced / self.total
    }

    /// What the sum is divided by; exactly the total when every pace is one.
    fn divisor(self) -> f32 {
        (self.total / self.mean_pace()) as f32
    }
}

impl Fold {
    /// An empty sum.
    pub const fn new(denominator: Denominator) -> Self {
        Self {
            denominator,
            first: None,
            sum: Tensors::new(),
            weights: BTreeMap::new(),
            everyone: Weights::NONE,
        }
    }

    /// Adds an update.
    pub fn add(&mut self, update: &Opened<'_>, contribution: Contribution) {
        let first = *self.first.get_or_insert(contribution);
        let relative = contribution.relative_to(first);
        self.everyone.add(relative);
        for id in update.scope() {
            self.weights.entry(id).or_default().add(relative);
        }
        update.add_to(&mut self.sum, (relative.weight / relative.pace) as f32);
    }

    /// The mean change of every parameter that anybody sent; the others are absent.
    pub fn mean(self) -> Tensors {
        let Self { denominator, mut sum, weights, everyone, .. } = self;
        for (id, values) in sum.iter_mut() {
            let divisor = match denominator {
                Denominator::Participants => weights.get(&id).map_or(1.0, |own| own.divisor()),
                Denominator::Everyone => everyone.divisor(),
            };
            if divisor != 1.0 {
                for value in values {
                    *value /= divisor;
                }
            }
        }
        sum
    }
}
