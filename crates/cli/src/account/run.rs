//! A private run as typed, and the same checked.

use std::num::NonZeroU64;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use fedra_privacy::{
    Composition, Delta, NoiseMultiplier, PrivacyError, Relation, Release, Sampling, SamplingRate,
    Unit,
};

use crate::flags::one_of;

const RELATIONS: [(&str, Relation); 2] =
    [("add-remove", Relation::AddRemove), ("replace", Relation::Replace)];
const UNITS: [(&str, Unit); 2] = [("example", Unit::Example), ("client", Unit::Client)];

/// What is sampled, how often, and what is guaranteed; the noise is each command's own business.
#[derive(Args)]
pub struct Typed {
    /// Sampling rate: the probability that a unit takes part in a step
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    q: Option<f64>,
    /// Number of steps
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// A further part of the run, such as q=0.01,sigma=1,steps=100 (and cap=150); may be repeated
    #[arg(long, value_name = "PHASE")]
    phase: Vec<String>,
    /// Delta; less than one over the number of units
    #[arg(long, allow_negative_numbers = true)]
    delta: f64,
    /// How neighbouring datasets differ; `replace` costs up to about twice as much
    #[arg(long, default_value = "add-remove", value_parser = one_of(RELATIONS))]
    relation: Relation,
    /// The unit that is hidden: one row, or a client with all its rows
    #[arg(long, default_value = "example", value_parser = one_of(UNITS))]
    unit: Unit,
    /// Number of units; delta is then checked against it
    #[arg(long, visible_alias = "clients", value_name = "N")]
    examples: Option<u64>,
    /// Largest batch: a larger one is cut down at random
    #[arg(long, value_name = "N", requires = "examples")]
    cap: Option<u64>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// The same, checked.
pub struct Checked {
    /// The chance with which the guarantee may fail.
    pub delta: Delta,
    /// How neighbouring datasets differ.
    pub relation: Relation,
    /// Whose presence is hidden.
    pub unit: Unit,
    /// The phases whose noise is known.
    pub phases: Vec<Release>,
    /// How the batches of `--q` are drawn, if it was given.
    pub sampling: Option<Sampling>,
    /// `--steps`, if it was given.
    pub steps: Option<NonZeroU64>,
}

impl Typed {
    /// Checks every number.
    pub fn check(&self) -> Result<Checked> {
        let delta = typed("--delta", Delta::new(self.delta))?;
        if let Some(examples) = self.examples {
            typed("--delta", delta.below_one_of(at_least_one("--examples", examples)?.get()))?;
        }
        if self.cap.is_some() && self.q.is_none() {
            bail!("--cap applies only with --q; a phase takes cap=N");
        }
        let sampling =
            self.q.map(|q| self.sampling(("--q", q), ("--cap", self.cap))).transpose()?;
        let steps = self.steps.map(|steps| at_least_one("--steps", steps)).transpose()?;
        let phases = self.phase.iter().map(|text| self.phase(text));
        let phases = phases.collect::<Result<Vec<_>>>()?;
        let Self { relation, unit, .. } = *self;
        Ok(Checked { delta, relation, unit, phases, sampling, steps })
    }

    fn sampling(
        &self,
        (name, q): (&str, f64),
        (name_of_cap, cap): (&str, Option<u64>),
    ) -> Result<Sampling> {
        let rate = typed(name, SamplingRate::new(q))?;
        let Some(cap) = cap else { return Ok(Sampling::Poisson { rate }) };
        let cap = at_least_one(name_of_cap, cap)?;
        let Some(population) = self.examples.and_then(NonZeroU64::new) else {
            bail!(
                "{name_of_cap} needs --examples, the number of units: how often a batch is cut depends on it"
            );
        };
        Ok(Sampling::CappedPoisson { rate, cap, population })
    }

    fn phase(&self, text: &str) -> Result<Release> {
        let (mut q, mut sigma, mut steps, mut cap) = (1.0, None, None, None);
        for pair in text.split(',') {
            let wrong = |expected: &str| anyhow!("--phase: found {pair:?}, expected {expected}");
            let Some((key, value)) = pair.split_once('=') else {
                return Err(wrong("KEY=VALUE, as in q=0.01,sigma=1,steps=100"));
            };
            let number = || value.trim().parse::<f64>().map_err(|_| wrong("a number"));
            let whole = || value.trim().parse::<u64>().map_err(|_| wrong("a whole number"));
            match key.trim() {
                "q" => q = number()?,
                "sigma" => sigma = Some(number()?),
                "steps" => steps = Some(whole()?),
                "cap" => cap = Some(whole()?),
                _ => return Err(wrong("one of the keys q, sigma, steps and cap")),
            }
        }
        let missing =
            |key| anyhow!("--phase {text}: {key} is missing; a phase needs sigma and steps");
        Ok(Release::SampledGaussian {
            sampling: self.sampling(("--phase q", q), ("--phase cap", cap))?,
            noise: typed(
                "--phase sigma",
                NoiseMultiplier::new(sigma.ok_or_else(|| missing("sigma"))?),
            )?,
            steps: at_least_one("--phase steps", steps.ok_or_else(|| missing("steps"))?)?,
        })
    }
}

impl Checked {
    /// All phases and, where `--q` and `--steps` name one, the main one with this noise.
    pub fn composition(&self, noise: Option<NoiseMultiplier>) -> Result<Composition, PrivacyError> {
        let main = noise.zip(self.sampling.zip(self.steps));
        let main = main.map(|(noise, (sampling, steps))| Release::SampledGaussian {
            sampling,
            noise,
            steps,
        });
        Composition::of(self.relation, self.phases.iter().chain(&main))
    }

    /// Refuses a run whose main part is not whole.
    pub fn main(&self, command: &str) -> Result<(Sampling, NonZeroU64)> {
        self.sampling
            .zip(self.steps)
            .ok_or_else(|| anyhow!("fedra account {command} needs --q and --steps"))
    }

    /// What the guarantee says besides its epsilon.
    pub fn words(&self) -> String {
        let sampling = match self.sampling {
            Some(Sampling::CappedPoisson { cap, .. }) => {
                format!("Poisson sampling capped at {cap}")
            }
            Some(Sampling::Poisson { .. }) | None => "Poisson sampling".to_owned(),
        };
        let neighbours = match self.relation {
            Relation::AddRemove => "added or removed",
            Relation::Replace => "replaced by another",
        };
        let (unit, delta) = (self.unit, self.delta);
        format!("{unit}-level: one {unit} {neighbours}; delta {delta}; {sampling} is assumed")
    }
}

/// A number that was typed behind a flag; what is wrong with it is said of the flag.
pub fn typed<T>(flag: &str, read: Result<T, PrivacyError>) -> Result<T> {
    read.map_err(|error| {
        if let PrivacyError::Number { found, expected, .. } = &error {
            return anyhow!("{flag}: found {found}, expected {expected}");
        }
        error.into()
    })
}

fn at_least_one(name: &str, value: u64) -> Result<NonZeroU64> {
    NonZeroU64::new(value).ok_or_else(|| anyhow!("{name}: found 0, expected at least 1"))
}
