//! Everything that was released about one unit, ready for the accountants.
//!
//! Releases are put in one order and equal ones are counted, so a composition does not remember how
//! it came about: the order of rounds, and whether a thousand steps were one event or a thousand,
//! change no bit of the answer. All that is Gaussian without sampling is one number, mu.

use crate::error::PrivacyError;
use crate::event::{Release, Sampling};
use crate::guarantee::Relation;
use crate::numbers::Delta;
use crate::pair::{Change, Pair};
use crate::phase::{Phase, Weighted, key};
use crate::{gaussian, pld, rdp};

/// A multiset of releases under one relation.
#[derive(Clone, Debug, PartialEq)]
pub struct Composition {
    pub(crate) relation: Relation,
    /// Squares of sensitivity over deviation of what was not sampled, in rising order, and how often each.
    squares: Vec<(f64, u64)>,
    /// In the order of their keys, which differ.
    phases: Vec<Phase>,
    unbounded: bool,
}

/// What the accountants found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    /// Epsilon by privacy loss distributions, or the other where that is less: the one to report.
    pub pld: f64,
    /// Epsilon by Rényi divergences alone: usually looser.
    pub rdp: f64,
    /// The order at which `rdp` is smallest.
    pub order: f64,
}

impl Composition {
    /// Nothing was released.
    pub const fn nothing(relation: Relation) -> Self {
        Self { relation, squares: Vec::new(), phases: Vec::new(), unbounded: false }
    }

    /// Counts the releases; refuses numbers that mean nothing.
    pub fn of<'a>(
        relation: Relation,
        releases: impl IntoIterator<Item = &'a Release>,
    ) -> Result<Self, PrivacyError> {
        let mut all = Self::nothing(relation);
        for release in releases {
            all.add(release)?;
        }
        Ok(all)
    }

    /// Counts one more release.
    pub fn add(&mut self, release: &Release) -> Result<(), PrivacyError> {
        release.check()?;
        // How far a unit of clip norm 1 moves a sum in which it surely is.
        let reach = match self.relation {
            Relation::AddRemove => 1.0,
            Relation::Replace => 2.0,
        };
        match release {
            Release::SampledGaussian { sampling, noise, steps } => match sampling {
                Sampling::Poisson { rate } if rate.get() >= 1.0 => {
                    self.add_square((reach / noise.get()).powi(2), steps.get());
                }
                Sampling::Poisson { .. } | Sampling::CappedPoisson { .. } => {
                    let (sampling, noise, steps) = (*sampling, *noise, steps.get());
                    self.add_phase(Phase { sampling, noise, steps });
                }
            },
            Release::Gaussian { sensitivity, deviation, count } => {
                self.add_square((sensitivity / deviation).powi(2), count.get());
            }
            Release::NonPrivate { .. } => self.unbounded = true,
        }
        Ok(())
    }

    /// Counts all that another one counted under the same relation.
    pub(crate) fn add_all(&mut self, other: &Self) {
        other.squares.iter().for_each(|(square, count)| self.add_square(*square, *count));
        other.phases.iter().for_each(|phase| self.add_phase(*phase));
        self.unbounded |= other.unbounded;
    }

    /// Equal squares are counted before they are multiplied: k times one is one times k.
    fn add_square(&mut self, square: f64, count: u64) {
        match self.squares.binary_search_by(|(known, _)| known.total_cmp(&square)) {
            Ok(place) => self.squares[place].1 = self.squares[place].1.saturating_add(count),
            Err(place) => self.squares.insert(place, (square, count)),
        }
    }

    fn add_phase(&mut self, phase: Phase) {
        match self.phases.binary_search_by(|known| key(known).cmp(&key(&phase))) {
            Ok(place) => {
                self.phases[place].steps = self.phases[place].steps.saturating_add(phase.steps);
            }
            Err(place) => self.phases.insert(place, phase),
        }
    }

    /// Equal for equal compositions, and only for them, under one relation.
    pub(crate) fn fingerprint(&self) -> Vec<u64> {
        let squares = self.squares.iter().flat_map(|(square, count)| [square.to_bits(), *count]);
        let phases = self.phases.iter().flat_map(|phase| {
            let (rate, noise, cap, population) = key(phase);
            [rate, noise, cap, population, phase.steps]
        });
        let lengths = [u64::from(self.unbounded), self.squares.len() as u64];
        lengths.into_iter().chain(squares).chain(phases).collect()
    }

    /// The square of sensitivity over deviation, summed over what was not sampled.
    fn mu_squared(&self) -> f64 {
        self.squares.iter().map(|(square, count)| square * *count as f64).sum()
    }

    /// Epsilon at this delta, by both accountants.
    pub fn spent(&self, delta: Delta) -> Spent {
        let (rdp, order) = self.rdp(delta, &rdp::Orders::default());
        Spent { pld: self.by_grid(delta).min(rdp), rdp, order }
    }

    /// Epsilon by privacy loss distributions: at most a thousandth above the truth, never below it. Where it is
    /// so large that nobody is protected, it may be that of Rényi divergences, which hold as well.
    pub fn pld(&self, delta: Delta) -> f64 {
        /// Beyond this, precision is worth nothing.
        const FAR: f64 = 50.0;
        let found = self.by_grid(delta);
        if found < FAR { found } else { found.min(self.rdp(delta, &rdp::Orders::default()).0) }
    }

    /// Epsilon by privacy loss distributions alone; infinite where their arithmetic ends.
    fn by_grid(&self, delta: Delta) -> f64 {
        /// Below this a step alone costs hundreds, and its grid millions of panels.
        const LEAST_NOISE: f64 = 0.05;
        /// A transform that is taken to a higher power is not exact enough to be a bound.
        const MOST_STEPS: u64 = 1_000_000_000;
        if self.unbounded {
            return f64::INFINITY;
        }
        if self.phases.is_empty() {
            return gaussian::epsilon(self.mu_squared().sqrt(), delta.get());
        }
        let steps = self.phases.iter().fold(0_u64, |sum, phase| sum.saturating_add(phase.steps));
        if steps > MOST_STEPS || self.phases.iter().any(|phase| phase.noise.get() < LEAST_NOISE) {
            return f64::INFINITY;
        }
        let changes: &[Change] = match self.relation {
            Relation::AddRemove => &[Change::Remove, Change::Add],
            Relation::Replace => &[Change::Replace],
        };
        let directions: Vec<_> = changes.iter().map(|change| self.parts(*change)).collect();
        pld::epsilon(&directions, delta.get())
    }

    /// Epsilon by Rényi divergences, and the order at which it was found.
    pub fn rdp(&self, delta: Delta, orders: &rdp::Orders) -> (f64, f64) {
        self.rdp_with(delta, &mut rdp::Curves::over(orders.clone()))
    }

    /// The same with the divergences of steps that were looked at before.
    pub(crate) fn rdp_with(&self, delta: Delta, curves: &mut rdp::Curves) -> (f64, f64) {
        if self.unbounded {
            return (f64::INFINITY, f64::INFINITY);
        }
        let change = match self.relation {
            // The larger of the two directions: Mironov, Talwar and Zhang, 2019, theorem 5.
            Relation::AddRemove => Change::Remove,
            Relation::Replace => Change::Replace,
        };
        let mut sums = vec![0.0; curves.orders.len()];
        for phase in &self.phases {
            let curve = curves.of((change, key(phase)), || phase.pairs(change));
            for (sum, divergence) in sums.iter_mut().zip(curve.iter()) {
                *sum += phase.steps as f64 * divergence;
            }
        }
        let mu_squared = self.mu_squared();
        for (sum, order) in sums.iter_mut().zip(curves.orders.iter()) {
            *sum += 0.5 * order * mu_squared;
        }
        curves.orders.best(delta.get(), &sums)
    }

    /// What the change of a unit does to each phase.
    fn parts(&self, change: Change) -> Vec<pld::EqualSteps> {
        let part =
            |phase: &Phase| pld::EqualSteps { pairs: phase.pairs(change), steps: phase.steps };
        let mut parts: Vec<pld::EqualSteps> = self.phases.iter().map(part).collect();
        let mu_squared = self.mu_squared();
        if mu_squared > 0.0 {
            let pair = Pair { change: Change::Remove, rate: 1.0, sigma: mu_squared.sqrt().recip() };
            parts.push(pld::EqualSteps { pairs: vec![Weighted { pair, weight: 1.0 }], steps: 1 });
        }
        parts
    }
}
