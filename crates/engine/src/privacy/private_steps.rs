//! Steps that hide single examples: DP-SGD at the client (Abadi et al., 2016).
//!
//! ```text
//! batch  each example by a coin of its own, with chance q = B / n
//! g_i    the gradient of example i, scaled down to the norm C
//! g      ( sum over the batch of g_i  +  sigma C z ) / B
//! ```
//! `B` is public, and noise is there when a batch is empty. `n` is a declared number of examples
//! ([`PrivateSteps::rows`]); without one it is the client's own, which is then treated as public: rate, steps
//! and, where `n < B`, the divisor follow from it. All that follows
//! from `g` (momentum, local rules, encodings, means, choices) costs nothing more.
//!
//! Plain data, like all of [`Work`](crate::Work): clients carry it out, the ledger hears what it releases.

use std::num::NonZeroU64;

use fedra_plan::Layer;
use fedra_privacy::calibration::beside_count;
use fedra_privacy::{NoiseMultiplier, PrivacyError, Release, Sampling, SamplingRate};
use serde::{Deserialize, Serialize};

/// How a client's steps hide its examples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivateSteps {
    /// The norm C down to which an example's gradient is scaled; where it adapts, that of the first step.
    pub clip: f64,
    /// How it is scaled.
    #[serde(default)]
    pub clipping: ClipRule,
    /// Deviation of the noise over C.
    pub noise: NoiseMultiplier,
    /// A batch of more than so many times its mean size is cut down at random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<f64>,
    /// The number of examples from which rate, steps and divisor follow, whatever the client has; its own
    /// unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<NonZeroU64>,
}

/// How an example's gradient is scaled down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClipRule {
    /// By one factor over everything that trains.
    #[default]
    Flat,
    /// Layer by layer (embedding, blocks, head), each down to `C / sqrt(layers)`.
    PerBlock,
    /// By one factor, down to a norm that follows the median norm (Andrew et al., 2021): each step counts, under
    /// noise, how many examples were within it.
    Adaptive,
}

impl ClipRule {
    /// Deviation of the noise on an adaptive step's count, over the noise multiplier.
    pub const COUNT_NOISE: f64 = 2.0;
}

impl PrivateSteps {
    /// Deviation of the noise on gradients over C. Where a step also counts, both together are one
    /// release with the noise that was agreed on, and gradients get a little more.
    pub fn gradient_noise(&self) -> Result<NoiseMultiplier, PrivacyError> {
        match self.clipping {
            ClipRule::Flat | ClipRule::PerBlock => Ok(self.noise),
            ClipRule::Adaptive => {
                beside_count(self.noise, ClipRule::COUNT_NOISE * self.noise.get())
            }
        }
    }

    /// The number of examples from which rate, steps and divisor follow, at a client that has so many.
    pub fn public_rows(&self, examples: u64) -> u64 {
        self.rows.map_or(examples, NonZeroU64::get)
    }

    /// The mean size of a batch: what a sum of gradients is divided by.
    pub fn mean_batch(&self, batch: u32, examples: u64) -> u64 {
        u64::from(batch).min(self.public_rows(examples))
    }

    /// The chance with which an example is in a batch.
    pub fn rate(&self, batch: u32, examples: u64) -> f64 {
        self.mean_batch(batch, examples) as f64 / self.public_rows(examples).max(1) as f64
    }

    /// How a client with so many examples draws its batches.
    pub fn sampling(&self, batch: u32, examples: u64) -> Result<Sampling, PrivacyError> {
        let mean = self.mean_batch(batch, examples);
        let rate = SamplingRate::new(self.rate(batch, examples))?;
        let most = self.cap.map(|cap| (cap * mean as f64).ceil() as u64);
        Ok(match (most.and_then(NonZeroU64::new), NonZeroU64::new(examples)) {
            (Some(cap), Some(population)) if cap < population => {
                Sampling::CappedPoisson { rate, cap, population }
            }
            _ => Sampling::Poisson { rate },
        })
    }

    /// What so many steps release about the examples of a client; `None` where there are none.
    pub fn release(
        &self,
        (batch, steps): (u32, u64),
        examples: u64,
    ) -> Result<Option<Release>, PrivacyError> {
        let Some(steps) = NonZeroU64::new(steps) else { return Ok(None) };
        let (sampling, noise) = (self.sampling(batch, examples)?, self.noise);
        Ok(Some(Release::SampledGaussian { sampling, noise, steps }))
    }
}

/// What a client may tell of its private steps: it follows from what they released anyway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepNoise {
    /// Layer by layer.
    pub layers: Vec<LayerNoise>,
    /// The clip norm after the last step, where it adapts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
}

/// Signal and noise at one layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNoise {
    /// The layer.
    pub layer: Layer,
    /// Numbers that learn there.
    pub numbers: u64,
    /// Mean square norm of what was released: the noised gradients of a client's steps, or the noised
    /// mean of a round.
    pub released: f64,
    /// What the noise alone is expected to have.
    pub noise: f64,
}

impl LayerNoise {
    /// The square of the signal's norm: what is left without the noise. Chance can make it negative.
    pub fn signal_square(&self) -> f64 {
        self.released - self.noise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(cap: Option<f64>) -> PrivateSteps {
        let noise = NoiseMultiplier::new(1.0).expect("legal");
        PrivateSteps { clip: 1.0, clipping: ClipRule::Flat, noise, cap, rows: None }
    }

    #[test]
    fn the_rate_is_the_mean_batch_over_the_examples_and_at_most_one() {
        let rate = |examples| steps(None).sampling(16, examples).expect("legal").rate().get();
        assert_eq!((rate(160), rate(16), rate(5)), (0.1, 1.0, 1.0));
    }

    #[test]
    fn a_declared_number_of_rows_stands_for_the_clients_own() {
        let declared = PrivateSteps { rows: NonZeroU64::new(160), ..steps(None) };
        let usual = steps(None).release((16, 10), 160).expect("legal");
        for examples in [1, 100, 159, 160, 161, 4000] {
            assert_eq!(declared.release((16, 10), examples).expect("legal"), usual);
            assert_eq!(declared.mean_batch(16, examples), 16);
        }
    }

    #[test]
    fn a_cap_is_accounted_where_it_can_be_reached() {
        let cap = |examples| match steps(Some(1.5)).sampling(16, examples) {
            Ok(Sampling::CappedPoisson { cap, population, .. }) => {
                Some((cap.get(), population.get()))
            }
            Ok(Sampling::Poisson { .. }) | Err(_) => None,
        };
        assert_eq!((cap(160), cap(24), cap(5)), (Some((24, 160)), None, None));
    }

    #[test]
    fn an_adaptive_step_pays_for_its_count_with_a_little_noise() {
        let noise = |clipping| {
            let steps = PrivateSteps { clipping, ..steps(None) };
            steps.gradient_noise().expect("legal").get()
        };
        assert_eq!(noise(ClipRule::Flat), 1.0);
        let more = noise(ClipRule::Adaptive);
        let together = more.powi(-2) + (2.0 * ClipRule::COUNT_NOISE).powi(-2);
        assert!((together - 1.0).abs() < 1e-12 && more < 1.05, "{more}");
    }
}
