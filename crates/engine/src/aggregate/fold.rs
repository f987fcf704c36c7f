//! Updates into one mean change, one at a time.
//!
//! The sum is one model of f32, the update being added is another, and that is all the memory a
//! fold takes ([`Sum`]): [`Fold::take`] checks and adds an update whose turn it is in one pass,
//! [`Fold::add`] adds one that was checked when it arrived. Weights are f64 and are
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

use fedra_plan::{ParamId, Scope};
use fedra_wire::{Expectation, Header, Mean, Opened, Sum, Taken, WireError};
use serde::{Deserialize, Serialize};

/// A running weighted sum of updates over whatever scopes they have.
#[derive(Clone, Debug, Default)]
pub struct Fold {
    denominator: Denominator,
    first: Option<Contribution>,
    sum: Sum,
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

    /// What the update's values are multiplied with.
    fn factor(self) -> f32 {
        (self.weight / self.pace) as f32
    }
}

/// The weights of a parameter's or of all updates.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weights {
    pub(crate) total: f64,
    paced: f64,
}

impl Weights {
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
    pub fn new(denominator: Denominator) -> Self {
        Self { denominator, ..Self::default() }
    }

    /// The same sum, which tells the norms of the updates that it takes, or does not.
    #[must_use]
    pub fn measuring(mut self, measures: bool) -> Self {
        self.sum.measures = measures;
        self
    }

    /// Adds an update that was checked before.
    pub fn add(&mut self, update: &Opened, contribution: Contribution) {
        let relative = self.relative(contribution);
        self.sum.add(update, relative.factor());
        self.count(&update.scope, contribution);
    }

    /// Adds more parameters of clients whose updates were added before.
    pub(crate) fn add_more(&mut self, update: &Opened, contribution: Contribution) {
        let relative = self.relative(contribution);
        self.sum.add(update, relative.factor());
        for id in &update.scope {
            self.weights.entry(id).or_default().add(relative);
        }
    }

    /// Checks a payload and adds it as its header is judged; what is refused leaves no trace.
    pub fn take<E: From<WireError>>(
        &mut self,
        payload: Vec<u8>,
        expected: &Expectation<'_>,
        judge: impl FnOnce(&Header) -> Result<Contribution, E>,
    ) -> Result<Taken, E> {
        let first = self.first;
        let mut contribution = Contribution::weighing(1.0);
        let taken = self.sum.take(payload, expected, |header| {
            contribution = judge(header)?;
            Ok::<_, E>(contribution.relative_to(first.unwrap_or(contribution)).factor())
        })?;
        self.count(&taken.scope, contribution);
        Ok(taken)
    }

    /// The mean change of every parameter that anybody sent; the others are absent.
    pub fn mean(self) -> Mean {
        let Self { denominator, sum, weights, everyone, .. } = self;
        sum.divided(|id| match denominator {
            Denominator::Participants => weights.get(&id).map_or(1.0, |own| own.divisor()),
            Denominator::Everyone => everyone.divisor(),
        })
    }

    /// Remembers the weight of an update that was added.
    fn count(&mut self, scope: &Scope, contribution: Contribution) {
        let relative = self.relative(contribution);
        self.first.get_or_insert(contribution);
        self.everyone.add(relative);
        for id in scope {
            self.weights.entry(id).or_default().add(relative);
        }
    }

    fn relative(&self, contribution: Contribution) -> Contribution {
        contribution.relative_to(self.first.unwrap_or(contribution))
    }
}
