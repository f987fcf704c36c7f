//! Everything that was released about one unit, ready for the accountants.
//!
//! Releases are put in one order and equal ones are counted, so a composition does not remember how
//! it came about: the order of rounds, and whether a thousand steps were one event or a thousand,
//! change no bit of the answer. All that is Gaussian without sampling is one number, mu.

use crate::error::PrivacyError;
use crate::event::{Release, Sampling};
use crate::numbers::{Delta, NoiseMultiplier, SamplingRate};
use crate::pair::{Change, Pair};
use crate::promise::Relation;
use crate::{binomial, gaussian, pld, rdp};

/// A multiset of releases under one relation.
#[derive(Clone, Debug, PartialEq)]
pub struct Composition {
    relation: Relation,
    /// The square of sensitivity over deviation, summed over what was not sampled.
    mu_squared: f64,
    phases: Vec<Phase>,
    unbounded: bool,
}

/// Equal steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Phase {
    pub sampling: Sampling,
    pub noise: NoiseMultiplier,
    pub steps: u64,
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
    /// Counts the releases; refuses numbers that mean nothing.
    pub fn of<'a>(
        relation: Relation,
        releases: impl IntoIterator<Item = &'a Release>,
    ) -> Result<Self, PrivacyError> {
        let mut squares: Vec<(f64, u64)> = Vec::new();
        let mut phases: Vec<Phase> = Vec::new();
        let mut unbounded = false;
        for release in releases {
            release.check()?;
            match release {
                Release::SampledGaussian { sampling, noise, steps } => {
                    phases.push(Phase { sampling: *sampling, noise: *noise, steps: steps.get() });
                }
                Release::Gaussian { sensitivity, deviation, count } => {
                    squares.push(((sensitivity / deviation).powi(2), count.get()));
                }
                Release::Tree { noise, steps, restarts } => {
                    let levels = u64::BITS - steps.get().leading_zeros();
                    let nodes = restarts.get().saturating_mul(u64::from(levels));
                    squares.push(((reach(relation) / noise.get()).powi(2), nodes));
                }
                Release::NonPrivate { .. } => unbounded = true,
            }
        }
        phases.retain(|phase| {
            let all = phase.sampling == Sampling::Poisson { rate: phase.sampling.rate() }
                && phase.sampling.rate().get() >= 1.0;
            if all {
                squares.push(((reach(relation) / phase.noise.get()).powi(2), phase.steps));
            }
            !all
        });
        squares.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Equal squares are counted before they are multiplied: k times one is one times k.
        squares.dedup_by(|next, kept| {
            let equal = next.0 == kept.0;
            if equal {
                kept.1 = kept.1.saturating_add(next.1);
            }
            equal
        });
        let mu_squared = squares.iter().map(|(square, count)| square * *count as f64).sum();
        phases.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
        phases.dedup_by(|next, kept| {
            let equal = key(next) == key(kept);
            if equal {
                kept.steps = kept.steps.saturating_add(next.steps);
            }
            equal
        });
        Ok(Self { relation, mu_squared, phases, unbounded })
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
            return gaussian::epsilon(self.mu_squared.sqrt(), delta.get());
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
        if self.unbounded {
            return (f64::INFINITY, f64::INFINITY);
        }
        let change = match self.relation {
            // The larger of the two directions: Mironov, Talwar and Zhang, 2019, theorem 5.
            Relation::AddRemove => Change::Remove,
            Relation::Replace => Change::Replace,
        };
        let steps: Vec<(Vec<Weighted>, f64)> =
            self.phases.iter().map(|phase| (phase.pairs(change), phase.steps as f64)).collect();
        let divergence = |order: f64| {
            let sampled: f64 =
                steps.iter().map(|(pairs, n)| n * rdp::divergence(pairs, order)).sum();
            sampled + 0.5 * order * self.mu_squared
        };
        orders.best(delta.get(), divergence)
    }

    /// What the change of a unit does to each phase.
    fn parts(&self, change: Change) -> Vec<pld::Part> {
        let part = |phase: &Phase| pld::Part { pairs: phase.pairs(change), steps: phase.steps };
        let mut parts: Vec<pld::Part> = self.phases.iter().map(part).collect();
        if self.mu_squared > 0.0 {
            let pair =
                Pair { change: Change::Remove, rate: 1.0, sigma: self.mu_squared.sqrt().recip() };
            parts.push(pld::Part { pairs: vec![Weighted { pair, weight: 1.0 }], steps: 1 });
        }
        parts
    }
}

/// A pair that is chosen with some chance, in public.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weighted {
    pub pair: Pair,
    pub weight: f64,
}

impl Phase {
    /// The worst pairs of one step.
    pub fn pairs(&self, change: Change) -> Vec<Weighted> {
        let (rate, sigma) = (self.sampling.rate().get(), self.noise.get());
        let uncut = Pair { change, rate, sigma };
        match self.sampling {
            Sampling::Poisson { .. } => vec![Weighted { pair: uncut, weight: 1.0 }],
            Sampling::CappedPoisson { cap, population, .. } => {
                // A cut batch that has the unit lacks another one: the sum moves by 2, either way.
                let (cap, population) = (cap.get(), population.get());
                let cut = binomial::tail(cap, population - 1, rate);
                if cut <= 0.0 {
                    return vec![Weighted { pair: uncut, weight: 1.0 }];
                }
                let kept = binomial::tail(cap.saturating_add(1), population, rate)
                    * (cap as f64 / population as f64)
                    / cut;
                let kept = kept.clamp(f64::MIN_POSITIVE, 1.0);
                let pair = Pair { change: Change::Replace, rate: kept, sigma: 0.5 * sigma };
                let whole = Weighted { pair: uncut, weight: 1.0 - cut };
                vec![Weighted { pair, weight: cut }, whole]
            }
        }
    }
}

/// How far a unit of clip norm 1 moves a sum in which it surely is.
fn reach(relation: Relation) -> f64 {
    match relation {
        Relation::AddRemove => 1.0,
        Relation::Replace => 2.0,
    }
}

/// Equal keys are equal steps.
fn key(phase: &Phase) -> (SamplingRate, NoiseMultiplier, u64, u64) {
    let (cap, population) = match phase.sampling {
        Sampling::Poisson { .. } => (0, 0),
        Sampling::CappedPoisson { cap, population, .. } => (cap.get(), population.get()),
    };
    (phase.sampling.rate(), phase.noise, cap, population)
}
