//! What a private run promises, and the server's part in keeping it.
//!
//! Example-level privacy is kept at the clients ([`PrivateSteps`]): the server says how and keeps the
//! ledger. Client-level privacy (DP-FedAvg) is kept here: each update is scaled down to a norm, updates are summed, noise
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

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use fedra_plan::{Layout, Scope, Shape, Site};
use fedra_privacy::{
    Event, Head, Ledger, NoiseMultiplier, PrivacyError, Promise, Release, Replayed, Sampling,
    SamplingRate, Spent, Unit,
};
use fedra_seed::SecretKey;
use fedra_wire::{Mean, Opened};
use serde::{Deserialize, Serialize};

use crate::checkpoint;
use crate::durable;
use crate::error::EngineError;
use crate::private_steps::{ClipRule, PrivateSteps, SiteNoise, StepNoise};
use crate::recipe::Recipe;
use crate::sampler::Sampler;

/// The mechanism under which clients' updates are announced to the ledger.
pub(crate) const CLIENT_UPDATES: &str = "client updates";
/// The same for private steps at a client.
pub const EXAMPLE_GRADIENTS: &str = "example gradients";
/// The same for what clients measured of blocks.
pub const BLOCK_SCORES: &str = "block scores";

/// The clip norms that are taken. Weights are f32 and of the order of one: what is smaller than these
/// leaves no trace in them, and what is larger leaves nothing of them.
pub(crate) const CLIP_NORMS: RangeInclusive<f64> = 1e-6..=1e6;

/// A promise and the noise that keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Privacy {
    /// What is promised.
    pub promise: Promise,
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

/// How blocks are ranked where the promise would not cover what clients measure.
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

/// The part of a promise that concerns one unit.
impl Recipe {
    /// The promise to whole clients, where that is the unit.
    pub(crate) fn client_privacy(&self) -> Option<&Privacy> {
        self.privacy.as_ref().filter(|privacy| privacy.promise.unit == Unit::Client)
    }

    /// The steps that a client with so many examples takes in a round.
    pub fn steps(&self, examples: u64) -> u64 {
        let private = self.private_steps();
        self.work.steps(private.map_or(examples, |private| private.public_rows(examples)))
    }

    /// Whether blocks are measured in a round to which nobody comes as in any other.
    pub fn measures_unattended(&self) -> bool {
        self.client_privacy().is_some_and(|privacy| match privacy.selection {
            PrivateSelection::NoisyUpdate
            | PrivateSelection::Public
            | PrivateSelection::Gaussian { .. } => true,
            PrivateSelection::PrivateUnaccounted => false,
        })
    }

    /// How clients' steps hide examples, where these are the unit; at a cut their rows do
    /// ([`RowsAtCut`](crate::RowsAtCut)).
    pub fn private_steps(&self) -> Option<PrivateSteps> {
        let Privacy { promise, clip, clipping, noise, cap, rows, .. } = *self.privacy.as_ref()?;
        let covers = promise.unit == Unit::Example && self.split.is_none();
        covers.then_some(PrivateSteps { clip, clipping, noise, cap, rows })
    }
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

    /// What a round releases about clients.
    pub fn release(&self, sampler: Sampler) -> Result<Release, EngineError> {
        let (sampling, noise) = (Self::sampling(sampler)?, self.noise);
        Ok(Release::SampledGaussian { sampling, noise, steps: NonZeroU64::MIN })
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
    ) -> (Mean, Vec<SiteNoise>) {
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
        let mean: Mean = (0..).zip(support).map(noised).collect();
        let mut sites: BTreeMap<Site, SiteNoise> = BTreeMap::new();
        for id in support {
            let Some(values) = mean.get(id) else { continue };
            let none = SiteNoise { site: id.site, numbers: 0, released: 0.0, noise: 0.0 };
            let site = sites.entry(id.site).or_insert(none);
            for value in values.iter() {
                site.released += f64::from(value).powi(2);
                site.numbers += 1;
            }
            site.noise = site.numbers as f64 * deviation * deviation;
        }
        (mean, sites.into_values().collect())
    }
}

/// A ledger and the file that holds it: every release is on disk before it happens.
#[derive(Clone, Debug)]
pub struct Account {
    ledger: Ledger,
    /// Where its lines go before anything is released; a simulation may have none.
    file: Option<PathBuf>,
    /// Whether the file holds all of it so far.
    written: bool,
}

/// What is spent after a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacyReport {
    /// Whose presence is hidden.
    pub unit: Unit,
    /// Epsilon of everything released so far, this round included; infinite (null in a file) where
    /// something was released without a bound.
    #[serde(deserialize_with = "bound")]
    pub epsilon: f64,
    /// The chance with which the promise may fail.
    pub delta: f64,
    /// Signal and noise of what was released in this round, site by site.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteNoise>,
    /// The clip norm of the next round, where it adapts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
}

impl Account {
    pub(crate) fn new(promise: Promise) -> Result<Self, EngineError> {
        Ok(Self { ledger: Ledger::new(promise)?, file: None, written: false })
    }

    /// Goes on with the ledger in a file, or begins it. Both files are there from the start, so a ledger
    /// without its end may have been shortened: it is refused.
    pub fn open(promise: Promise, file: PathBuf) -> Result<Self, EngineError> {
        let mut account = Self::new(promise)?;
        if file.exists() && end_of(&file)?.is_none() {
            let end = file.with_extension(END);
            return Err(failure(
                &file,
                &format!(
                    "found no {} beside it, expected both: nobody can say whether entries were removed",
                    end.display()
                ),
            ));
        }
        account.write_to(file);
        account.resume_unfinished()?;
        if !account.written {
            // The promise is there before anything is released under it.
            account.announce(&[])?;
        }
        Ok(account)
    }

    /// Keeps it in a file. Its end is kept in another beside it, so that a ledger that was shortened is
    /// noticed, beyond the last checkpoint too.
    pub(crate) fn write_to(&mut self, file: PathBuf) {
        self.file = Some(file);
        self.written = false;
    }

    pub(crate) const fn head(&self) -> Head {
        self.ledger.head()
    }

    /// What was promised and released.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Goes on with the ledger that a run without a checkpoint left, if it left one: what it announced
    /// may have been seen.
    pub(crate) fn resume_unfinished(&mut self) -> Result<(), EngineError> {
        let Some(file) = &self.file else { return Ok(()) };
        let begun = file.exists() || end_of(file)?.is_some();
        if begun { self.resume(self.ledger.head()) } else { Ok(()) }
    }

    /// Goes on with the ledger in its file, which has to lead past the checkpoint's head and past its own end.
    pub(crate) fn resume(&mut self, head: Head) -> Result<(), EngineError> {
        let Some(file) = &self.file else { return Ok(()) };
        let heads: Vec<Head> = end_of(file)?.into_iter().chain([head]).collect();
        let promise = *self.ledger.promise();
        let read = Ledger::replay_file(open(file)?, promise, &heads);
        let Replayed { ledger, is_torn } =
            read.map_err(|error| failure(file, &error.to_string()))?;
        // A torn last line is written over.
        (self.ledger, self.written) = (ledger, !is_torn);
        Ok(())
    }

    /// Reads the ledger in a file, to look at it; refuses one that was edited, and one that does not lead past
    /// the end that was written down beside it, or, without that, past the checkpoint beside it.
    pub fn read_ledger(file: &Path) -> Result<Ledger, EngineError> {
        // The end first: a run that is at work writes its ledger before its end.
        let end = match end_of(file)? {
            None => checkpoint::ledger_head(&file.with_file_name(""))?,
            end => end,
        };
        Ledger::read(open(file)?, end).map_err(|error| failure(file, &error.to_string()))
    }

    /// Announces releases; refuses them where the promise would be broken.
    pub fn announce(&mut self, events: &[Event]) -> Result<(), EngineError> {
        let lines = self.ledger.append(events)?;
        let Some(file) = &self.file else { return Ok(()) };
        // What is cut short by a full disk is written over by the next attempt.
        let whole = !std::mem::take(&mut self.written);
        let written = if whole {
            durable::write(file, self.ledger.to_lines()?.as_bytes())
        } else {
            durable::append(file, lines.as_bytes())
        };
        written.map_err(|error| EngineError::disk(WRITING, file, error))?;
        self.written = true;
        self.keep_end()
    }

    /// Writes down where the ledger ends; one that is longer is as good.
    fn keep_end(&self) -> Result<(), EngineError> {
        let Some(file) = &self.file else { return Ok(()) };
        let end = file.with_extension(END);
        let text = serde_json::to_vec(&self.head());
        let text = text.map_err(|error| failure(&end, &error.to_string()))?;
        durable::write(&end, &text).map_err(|error| EngineError::disk(WRITING, &end, error))
    }

    pub(crate) fn report(&self, noise: StepNoise) -> Result<PrivacyReport, EngineError> {
        let Promise { unit, delta, .. } = *self.ledger.promise();
        let Spent { pld, .. } = self.ledger.spent()?;
        let StepNoise { sites, clip } = noise;
        Ok(PrivacyReport { unit, epsilon: pld, delta: delta.get(), sites, clip })
    }
}

/// What is being done to a ledger that cannot be written.
const WRITING: &str = "privacy: writing";
/// The ending of the file that tells where a ledger ends.
const END: &str = "end";

/// Where a ledger ended when it was last written; `None` where nobody noted it.
fn end_of(ledger: &Path) -> Result<Option<Head>, EngineError> {
    let end = ledger.with_extension(END);
    match std::fs::read(&end) {
        Ok(bytes) => {
            let read = serde_json::from_slice::<Head>(&bytes);
            read.map(Some).map_err(|error| failure(&end, &error.to_string()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failure(&end, &error.to_string())),
    }
}

/// A number, or null, which is how JSON writes one without a bound.
fn bound<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

fn open(file: &Path) -> Result<BufReader<File>, EngineError> {
    let opened = File::open(file).map_err(|error| {
        if error.kind() == ErrorKind::NotFound {
            let reason = "found no ledger of this private run, expected the one that it wrote: what was \
                          released is not known without it";
            return failure(file, reason);
        }
        failure(file, &error.to_string())
    });
    opened.map(BufReader::new)
}

fn failure(file: &Path, reason: &str) -> EngineError {
    EngineError::Privacy { reason: format!("{}: {reason}", file.display()) }
}

impl From<PrivacyError> for EngineError {
    fn from(error: PrivacyError) -> Self {
        let reason = error.to_string();
        if matches!(error, PrivacyError::OverBudget { .. }) {
            Self::OverBudget { reason }
        } else {
            Self::Privacy { reason }
        }
    }
}
