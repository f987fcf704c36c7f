//! The noise, or the number of steps, that a wished epsilon allows.
//!
//! Epsilon falls with noise and grows with steps, so halving finds the answer; it is read off the
//! side on which the guarantee holds, by the accountant that will be asked later.

use std::num::NonZeroU64;

use crate::composition::Composition;
use crate::error::PrivacyError;
use crate::event::{Release, Sampling};
use crate::guarantee::Relation;
use crate::numbers::{Budget, Delta, NoiseMultiplier};

/// A run whose noise is not yet known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// How batches are drawn.
    pub sampling: Sampling,
    /// How many.
    pub steps: NonZeroU64,
    /// How neighbouring datasets differ.
    pub relation: Relation,
    /// The chance with which the guarantee may fail.
    pub delta: Delta,
}

impl Schedule {
    /// The run with this noise.
    pub const fn release(&self, noise: NoiseMultiplier) -> Release {
        Release::SampledGaussian { sampling: self.sampling, noise, steps: self.steps }
    }

    fn epsilon(&self, noise: NoiseMultiplier) -> Result<f64, PrivacyError> {
        Ok(Composition::of(self.relation, [&self.release(noise)])?.pld(self.delta))
    }
}

/// Noise is found to this share of itself.
const NOISE_PRECISION: f64 = 1e-4;

/// The least noise under which the whole schedule stays within `epsilon`.
pub fn noise(epsilon: Budget, schedule: &Schedule) -> Result<NoiseMultiplier, PrivacyError> {
    smallest(epsilon, |noise| schedule.epsilon(noise))
}

/// The least noise at which `spent` stays within `epsilon`; `spent` must fall as noise grows.
pub fn smallest(
    epsilon: Budget,
    spent: impl Fn(NoiseMultiplier) -> Result<f64, PrivacyError>,
) -> Result<NoiseMultiplier, PrivacyError> {
    const MOST: f64 = 1e6;
    let holds = |sigma: f64| Ok(spent(NoiseMultiplier::new(sigma)?)? <= epsilon.get());
    let mut high = 1.0;
    while !holds(high)? {
        high *= 2.0;
        if high > MOST {
            let reason = format!("even noise of {MOST} times the clip norm is not enough");
            return Err(PrivacyError::Unreachable { wish: format!("epsilon {epsilon}"), reason });
        }
    }
    let mut low = 0.5 * high;
    while low > 2e-3 && holds(low)? {
        (low, high) = (0.5 * low, low);
    }
    while high - low > NOISE_PRECISION * high {
        let middle = 0.5 * (low + high);
        if holds(middle)? { high = middle } else { low = middle }
    }
    NoiseMultiplier::new(high)
}

/// Steps are counted up to here.
pub const MOST_STEPS: u64 = 1 << 40;

/// The most steps with this noise that stay within `epsilon`, at most [`MOST_STEPS`]; `schedule.steps` is not read.
pub fn steps(
    epsilon: Budget,
    noise: NoiseMultiplier,
    schedule: &Schedule,
) -> Result<NonZeroU64, PrivacyError> {
    let holds = |steps: u64| {
        let Some(steps) = NonZeroU64::new(steps) else { return Ok(true) };
        Ok(Schedule { steps, ..*schedule }.epsilon(noise)? <= epsilon.get())
    };
    let (mut low, mut high) = (0, 1);
    while high <= MOST_STEPS && holds(high)? {
        (low, high) = (high, 2 * high);
    }
    while low < MOST_STEPS && high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle)? { low = middle } else { high = middle }
    }
    NonZeroU64::new(low).ok_or_else(|| PrivacyError::Unreachable {
        wish: format!("epsilon {epsilon}"),
        reason: format!("a single step with noise {noise} already exceeds it"),
    })
}

/// The noise for a sum, if `whole` is to pay for it and for a count of the same batch.
///
/// The count is of halves, as adaptive clipping asks for: who is clipped counts 1/2, who is not -1/2,
/// so a unit moves it by 1/2. Andrew et al., "Differentially Private Learning with Adaptive Clipping", 2021, theorem 1.
pub fn beside_count(
    whole: NoiseMultiplier,
    count_deviation: f64,
) -> Result<NoiseMultiplier, PrivacyError> {
    let left = whole.get().powi(-2) - (2.0 * count_deviation).powi(-2);
    if left > 0.0 {
        return NoiseMultiplier::new(left.powf(-0.5));
    }
    Err(PrivacyError::Unreachable {
        wish: format!("noise {whole} for a sum and a count"),
        reason: format!("the count alone, with deviation {count_deviation}, uses all of it"),
    })
}
