//! What a private run promises, and the server's part in keeping it.
//!
//! Client-level privacy (DP-FedAvg): each update is scaled down to a norm, updates are summed, noise
//! covers everything that may learn, and the sum is divided by a number that is known beforehand.
//!
//! ```text
//! mean = ( sum over arrived k of min(1, C / |u_k|) u_k  +  sigma C z ) / M,    M = q K
//! ```
//! `K` clients are registered, a public number, and each takes part by a coin of its own with probability q. Nothing in
//! the divisor or in where there is noise depends on who took part or on what it sent: a parameter
//! that nobody sent, and a round to which nobody came, get the same noise.
//!
//! Every release is announced to the ledger, on disk, before it happens; a round that would pass the
//! budget does not begin.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use fedra_plan::{Layout, Round, Scope, Shape};
use fedra_privacy::{
    Event, Head, Ledger, NoiseMultiplier, PrivacyError, Promise, Release, Sampling, SamplingRate,
    Spent, Unit,
};
use fedra_seed::SecretKey;
use fedra_wire::{Mean, Opened};
use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::sampler::Sampler;

/// The mechanism under which updates are announced to the ledger.
const MECHANISM: &str = "client updates";

/// A promise and the noise that keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Privacy {
    /// What is promised.
    pub promise: Promise,
    /// The norm down to which a contribution is scaled.
    pub clip: f64,
    /// Deviation of the noise over that norm.
    pub noise: NoiseMultiplier,
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
            Sampler::Uniform(count) => Err(EngineError::Setting {
                key: "federation.sample",
                found: format!("{{ uniform = {count} }} under privacy"),
                expected: "{ poisson = 0.5 } or \"all\": the promise is accounted for these",
            }),
        }
    }

    /// What a round releases.
    pub fn release(&self, sampler: Sampler) -> Result<Release, EngineError> {
        let (sampling, noise) = (Self::sampling(sampler)?, self.noise);
        Ok(Release::SampledGaussian { sampling, noise, steps: std::num::NonZeroU64::MIN })
    }

    /// By what an update is scaled: its norm is at most the clip norm then.
    pub(crate) fn factor(&self, update: &Opened<'_>) -> f64 {
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
    ) -> Mean {
        let (share, deviation) = (weight / divisor, self.noise.get() * self.clip / divisor);
        let noised = |(number, id)| {
            let elements = layout.get(id).map_or(0, Shape::elements);
            let mut values: Vec<f32> = match mean.get(id) {
                None => vec![0.0; elements],
                Some(values) => {
                    values.iter().map(|value| (f64::from(value) * share) as f32).collect()
                }
            };
            key.with(number).add_normal(&mut values, 0, deviation as f32);
            (id, values)
        };
        (0..).zip(support).map(noised).collect()
    }
}

/// The ledger of a run and the file that holds it.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    ledger: Ledger,
    /// Where its lines go before anything is released; a simulation may have none.
    file: Option<PathBuf>,
    /// Whether the file holds all of it so far.
    written: bool,
}

/// What is spent after a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacyReport {
    /// Whose presence is hidden.
    pub unit: Unit,
    /// Epsilon of everything released so far, this round included.
    pub epsilon: f64,
    /// The chance with which the promise may fail.
    pub delta: f64,
}

impl Account {
    pub(crate) fn new(promise: Promise) -> Result<Self, EngineError> {
        Ok(Self { ledger: Ledger::new(promise)?, file: None, written: false })
    }

    pub(crate) fn write_to(&mut self, file: PathBuf) {
        self.file = Some(file);
        self.written = false;
    }

    pub(crate) const fn head(&self) -> Head {
        self.ledger.head()
    }

    pub(crate) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Goes on with the ledger in its file, which has to lead past the checkpoint's head.
    pub(crate) fn resume(&mut self, head: Head) -> Result<(), EngineError> {
        let Some(file) = &self.file else { return Ok(()) };
        let lines =
            std::fs::read_to_string(file).map_err(|error| failure(file, &error.to_string()))?;
        self.ledger = Ledger::replay(&lines, *self.ledger.promise(), head)
            .map_err(|error| failure(file, &error.to_string()))?;
        self.written = true;
        Ok(())
    }

    /// Announces a release of a round; refuses it where the promise would be broken.
    pub(crate) fn announce(&mut self, round: Round, release: Release) -> Result<(), EngineError> {
        let event = Event { round, mechanism: MECHANISM.to_owned(), client: None, release };
        let whole = !self.written;
        let lines = self.ledger.append(&[event])?;
        let Some(file) = &self.file else { return Ok(()) };
        let lines = if whole { self.ledger.to_lines()? } else { lines };
        let written = OpenOptions::new()
            .create(true)
            .write(true)
            .append(!whole)
            .truncate(whole)
            .open(file)
            .and_then(|mut file| {
                file.write_all(lines.as_bytes())?;
                file.sync_all()
            });
        written.map_err(|error| failure(file, &error.to_string()))?;
        self.written = true;
        Ok(())
    }

    pub(crate) fn report(&self) -> Result<PrivacyReport, EngineError> {
        let Promise { unit, delta, .. } = *self.ledger.promise();
        let Spent { pld, .. } = self.ledger.spent()?;
        Ok(PrivacyReport { unit, epsilon: pld, delta: delta.get() })
    }
}

fn failure(file: &Path, reason: &str) -> EngineError {
    EngineError::Privacy { reason: format!("{}: {reason}", file.display()) }
}

impl From<PrivacyError> for EngineError {
    fn from(error: PrivacyError) -> Self {
        Self::Privacy { reason: error.to_string() }
    }
}
