//! Equal steps, and the pairs of distributions that they are compared by.

use crate::binomial;
use crate::event::Sampling;
use crate::numbers::NoiseMultiplier;
use crate::pair::{Change, Pair};

/// Equal steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Phase {
    pub sampling: Sampling,
    pub noise: NoiseMultiplier,
    pub steps: u64,
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

/// Equal keys are equal steps: the bits of the rate and of the noise, which are positive and so in the order of
/// the numbers, the cap and the population.
pub(crate) type StepKey = (u64, u64, u64, u64);

pub(crate) fn key(phase: &Phase) -> StepKey {
    let (cap, population) = match phase.sampling {
        Sampling::Poisson { .. } => (0, 0),
        Sampling::CappedPoisson { cap, population, .. } => (cap.get(), population.get()),
    };
    (phase.sampling.rate().get().to_bits(), phase.noise.get().to_bits(), cap, population)
}
