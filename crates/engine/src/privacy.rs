//! What a private run guarantees, and the server's part in keeping it.
//!
//! Example-level privacy is kept at the clients ([`PrivateSteps`](crate::PrivateSteps)): the server says how and keeps the
//! ledger. Client-level privacy (DP-FedAvg) is kept here: each update is scaled down to a norm, updates are summed, noise
//! covers everything that may learn, and the sum is divided by a number that is known beforehand.
//!
//! ```text
//! mean = ( sum over arrived k of min(1, C / |u_k|) u_k  +  sigma C z ) / M,    M = q K
//! ```
//! `K` clients are registered, a public number, and each takes part by a coin of its own with probability q. Nothing in
//! the divisor or in where there is noise depends on who took part or on what it sent: a parameter
//! that nobody sent, and a round to which nobody came, get the same noise.

pub(crate) mod account;
pub(crate) mod private_steps;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use fedra_plan::{Layer, Layout, Scope, Shape};
use fedra_privacy::{Guarantee, NoiseMultiplier, PrivacyError, Release, Sampling, SamplingRate};
use fedra_seed::SecretKey;
use fedra_wire::{Mean, Opened};
use serde::{Deserialize, Serialize};

use self::private_steps::{ClipRule, LayerNoise};
use crate::cohort::sampler::Sampler;
use crate::error::{EngineError, refuse};

/// The mechanism under which clients' updates are announced to the ledger.
pub(crate) const CLIENT_UPDATES: &str = "client updates";
/// The same for private steps at a client.
pub const EXAMPLE_GRADIENTS: &str = "example gradients";
/// The same for block scores that clients measured.
pub const BLOCK_SCORES: &str = "block scores";

/// The clip norms that are taken. Weights are f32 and of the order of one: what is smaller than these
/// leaves no trace in them, and what is larger leaves nothing of them.
pub(crate) const CLIP_NORMS: RangeInclusive<f64> = 1e-6..=1e6;

/// A guarantee and the noise that keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Privacy {
    /// What is guaranteed.
    pub guarantee: Guarantee,
    /// The norm down to which a contribution is scaled.
    pub clip: f64,
    /// How an example's contribution is scaled; a client's is always scaled as a whole.
    #[serde(default)]
    pub clipping: ClipRule,
    /// Deviation of the noise over that norm.
    pub noise: NoiseMultiplier,
    /// Batches of more than so many times their mean size are cut down; only for examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<f64>,
    /// The number of training examples from which every client's rate and steps follow, in place of its own;
    /// only for examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<NonZeroU64>,
    /// Where the ranking of blocks comes from, where a method would let clients measure.
    #[serde(default)]
    pub selection: PrivateSelection,
    /// Whether clients score the model on examples of their own, which nothing hides.
    #[serde(default)]
    pub client_scores: bool,
}

/// How blocks are ranked where the guarantee would not cover what clients measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "snake_case",
    deny_unknown_fields,
    expecting = "\"noisy_update\", \"public\", { gaussian = { noise = 5.0 } } or \"private_unaccounted\""
)]
pub enum PrivateSelection {
    /// By what was released anyway: the norm of each block's noised update, less what noise adds, from the
    /// last round in which the block learned.
    #[default]
    NoisyUpdate,
    /// By what the server measures on public text.
    Public,
    /// By what clients measure, under noise of its own.
    Gaussian {
        /// Its deviation over the most that one unit can change the scores.
        noise: NoiseMultiplier,
    },
    /// By what clients measure, as it is; the ledger says that no bound holds.
    PrivateUnaccounted,
}

/// What noised scores of blocks release about a client that looked at so many examples. The scores of an
/// example are from 0 to 1, so one of them moves the mean by at most `sqrt(blocks) / examples`.
pub fn noised_scores(
    noise: NoiseMultiplier,
    (blocks, examples): (u16, u64),
    count: NonZeroU64,
) -> Release {
    let sensitivity = f64::from(blocks).sqrt() / examples.max(1) as f64;
    Release::Gaussian { sensitivity, deviation: noise.get() * sensitivity, count }
}

/// The noise of two releases about the same units that are taken as one.
pub fn joint_noise(
    one: NoiseMultiplier,
    other: NoiseMultiplier,
) -> Result<NoiseMultiplier, PrivacyError> {
    let joint = (one.get().powi(-2) + other.get().powi(-2)).powf(-0.5);
    NoiseMultiplier::new(joint).map_err(|_| PrivacyError::Number {
        name: "privacy.noise and privacy.selection.gaussian.noise of one round",
        found: format!("{one} and {other}, as little as {joint:.1e} alone"),
        expected: "together as much as 0.001 alone",
    })
}

impl Privacy {
    /// How a cohort is drawn, as an accountant reads it; refuses draws that it cannot account.
    pub fn sampling(sampler: Sampler) -> Result<Sampling, EngineError> {
        Ok(Sampling::Poisson { rate: SamplingRate::new(Self::rate(sampler)?)? })
    }

    /// The chance with which a client takes part in a round.
    pub(crate) fn rate(sampler: Sampler) -> Result<f64, EngineError> {
        match sampler {
            Sampler::All => Ok(1.0),
            Sampler::Poisson(rate) => Ok(rate),
            Sampler::Uniform(count) => refuse(
                "federation.sample",
                format!("{{ uniform = {count} }} with [privacy]"),
                "{ poisson = 0.5 } or \"all\": privacy is accounted only for these",
            ),
        }
    }

    /// What a round releases about clients.
    pub fn release(&self, sampler: Sampler) -> Result<Release, EngineError> {
        let (sampling, noise) = (Self::sampling(sampler)?, self.noise);
        Ok(Release::SampledGaussian { sampling, noise, steps: NonZeroU64::MIN })
    }

    /// By what an update is scaled: its norm is at most the clip norm then.
    pub(crate) fn factor(&self, update: &Opened) -> f64 {
        let norm = update.squares().map(|(_, square)| square).sum::<f64>().sqrt();
        if norm <= self.clip { 1.0 } else { self.clip / norm }
    }

    /// The private mean: the clipped updates' mean as it was folded, which weighs so much, made a sum
    /// again, with noise over the whole support and the public divisor.
    pub(crate) fn noised(
        &self,
        (mean, weight): (&Mean, f64),
        (support, layout): (&Scope, &Layout),
        (divisor, key): (f64, &SecretKey),
    ) -> (Mean, Vec<LayerNoise>) {
        let (share, deviation) = (weight / divisor, self.noise.get() * self.clip / divisor);
        let elements = |id| layout.get(id).map_or(0, Shape::elements);
        let noised = |(number, id)| {
            let mut values = mean.scaled(id, share).unwrap_or_else(|| vec![0.0; elements(id)]);
            key.with(number).add_normal(&mut values, 0, deviation as f32);
            (id, values)
        };
        let mean: Mean = (0..).zip(support).map(noised).collect();
        let mut layers: BTreeMap<Layer, LayerNoise> = BTreeMap::new();
        for id in support {
            let none = LayerNoise { layer: id.layer, numbers: 0, released: 0.0, noise: 0.0 };
            let layer = layers.entry(id.layer).or_insert(none);
            layer.released = mean.squares_onto(layer.released, id).unwrap_or(layer.released);
            layer.numbers += elements(id) as u64;
            layer.noise = layer.numbers as f64 * deviation * deviation;
        }
        (mean, layers.into_values().collect())
    }
}
