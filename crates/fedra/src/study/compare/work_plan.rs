//! All runs of a comparison, laid out and checked before the first begins.

use std::path::PathBuf;

use super::variants::{Assignment, Subject, Variant, baselines, combinations, expand, folder_name};
use super::written;
use crate::config::{ConfigError, Experiment, Overrides};
use crate::error::{Context, Result};
use crate::listener::Listener;
use crate::prepare::fingerprint::Fingerprints;
use crate::run::federate;

/// What is to be compared.
#[derive(Clone, Debug, Default)]
pub struct CompareRequest {
    /// Experiment files.
    pub files: Vec<PathBuf>,
    /// What is put over every file.
    pub overrides: Overrides,
    /// How many seeds, counted up from the experiment's; the file's number, or 3, unless given.
    pub seeds: Option<u32>,
    /// Keys with several values, as `method.k=1,2,3`, in all combinations.
    pub sweeps: Vec<String>,
    /// Keys whose value each variant chooses for itself, in the same spelling.
    pub tunes: Vec<String>,
    /// What the others are held against: a variant, or one of its parts; the first unless given.
    pub baseline: Option<String>,
}

/// Every variant and seed.
#[derive(Debug)]
pub struct WorkPlan {
    /// What the comparison is called.
    pub name: String,
    /// What the command line puts over every file.
    pub overrides: Overrides,
    /// What is compared.
    pub variants: Vec<Variant>,
    /// What each is held against.
    pub baselines: Vec<Option<usize>>,
    /// With these seeds.
    pub seeds: Vec<u64>,
    /// Tuned with these.
    pub tune_seeds: Vec<u64>,
}

impl WorkPlan {
    /// Reads the files and lays out all runs; nothing is checked together yet.
    pub fn new(asked: &CompareRequest) -> Result<Self> {
        let mut subjects = Vec::new();
        let mut origin = None;
        let (mut seeds, mut tune_seeds) = (asked.seeds, None);
        let (mut first_seed, mut baseline) = (None, asked.baseline.clone());
        for file in &asked.files {
            let base = Experiment::open(file, &asked.overrides)?;
            let point = |refusal| base.origin.place(refusal);
            let table = base.compare.unwrap_or_default();
            let mut sweep = written::axes(&table.sweep, "compare.sweep").map_err(point)?;
            let mut tune = written::axes(&table.tune, "compare.tune").map_err(point)?;
            for (name, texts, axes) in
                [("sweep", &asked.sweeps, &mut sweep), ("tune", &asked.tunes, &mut tune)]
            {
                for text in texts {
                    let axis = written::axis(text, name)?;
                    // What the command line says of a key goes before what the file says.
                    axes.retain(|other| other.key != axis.key);
                    axes.push(axis);
                }
            }
            seeds = seeds.or(table.seeds);
            tune_seeds = tune_seeds.or(table.tune_seeds);
            baseline = baseline.or(table.baseline);
            first_seed = first_seed.or(Some(base.seed.0));
            let (file, name) = (file.clone(), base.name);
            origin = origin.or(Some(base.origin));
            subjects.push(Subject { file, name, variants: table.variants, sweep, tune });
        }
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
        let name = folder_name(&names.join("+"));
        // Where several files are compared, what is wrong between them is shown in the first.
        let origin = origin.unwrap_or_default();
        let point = |error| origin.point(error);
        let variants = expand(&subjects).map_err(point)?;
        let baselines = baselines(&variants, baseline.as_deref());
        // What a caller asked for is in no file.
        let baselines = if asked.baseline.is_some() {
            baselines.map_err(|refused| refused.with_key("baseline"))?
        } else {
            baselines.map_err(|refused| origin.place(refused))?
        };
        let first = first_seed.unwrap_or(1);
        ConfigError::new("seeds", 0, "at least 1").when(asked.seeds == Some(0))?;
        let count = |key: &str, wanted: Option<u32>, usual: u64| match wanted {
            Some(0) => Err(origin.place(ConfigError::new(key, 0, "at least 1"))),
            Some(some) => Ok(u64::from(some)),
            None => Ok(usual),
        };
        let seeds: Vec<u64> = (first..).take(count("compare.seeds", seeds, 3)? as usize).collect();
        let tune_seeds = count("compare.tune_seeds", tune_seeds, 1)?.min(seeds.len() as u64);
        let tune_seeds = seeds[..tune_seeds as usize].to_vec();
        let overrides = asked.overrides.clone();
        Ok(Self { name, overrides, variants, baselines, seeds, tune_seeds })
    }

    /// Refuses the whole comparison if any of its runs would be refused; otherwise what they learn
    /// from, and what a person should know about them, each note once.
    pub fn check(&self, listener: &dyn Listener) -> Result<(Fingerprints, Vec<String>)> {
        let mut notes = Vec::new();
        // Data differ by seed, and a client may be left without rows; many variants share them.
        let mut fingerprints = Fingerprints::default();
        for variant in &self.variants {
            let within = || format!("variant {}", variant.name);
            for candidate in combinations(&variant.tuned) {
                self.experiment(variant, &candidate, self.seeds[0])?;
            }
            let first = combinations(&variant.tuned).into_iter().next().unwrap_or_default();
            for (number, seed) in self.seeds.iter().enumerate() {
                let experiment = self.experiment(variant, &first, *seed)?;
                if number > 0 {
                    let seed = || format!("{}, seed {seed}", within());
                    fingerprints.heard(&experiment, listener).with_context(seed)?;
                    continue;
                }
                let run = federate::Run::heard(&experiment, listener).with_context(within)?;
                let new = run.notes().filter(|note| !notes.contains(note)).collect::<Vec<_>>();
                notes.extend(new);
                fingerprints.note(&experiment, &run.inputs)?;
                let federate::Run { prepared, recipe, .. } = &run;
                recipe.learns.check(prepared.model.layout()).with_context(within)?;
                recipe.personal.check(prepared.model.layout()).with_context(within)?;
                if variant.tuned.iter().any(|axis| axis.values.len() > 1) {
                    check_tuning(&experiment, &run).with_context(within)?;
                }
            }
        }
        Ok((fingerprints, notes))
    }

    /// Opens every experiment of the comparison once; nothing is read of its rows.
    pub fn open_all(&self) -> Result<()> {
        for variant in &self.variants {
            for candidate in combinations(&variant.tuned) {
                self.experiment(variant, &candidate, self.seeds[0])?;
            }
        }
        Ok(())
    }

    /// A variant with these values of its tuned keys and this seed.
    pub fn experiment(
        &self,
        variant: &Variant,
        candidate: &[Assignment],
        seed: u64,
    ) -> Result<Experiment> {
        let assigned = [&variant.assigned, candidate].concat();
        Experiment::open(&variant.file, &self.overrides.with(&assigned, seed))
            .with_context(|| format!("variant {}", variant.name))
    }
}

/// Refuses to tune what no validation example can be chosen by.
fn check_tuning(experiment: &Experiment, run: &federate::Run) -> Result<(), ConfigError> {
    let federate::Run { prepared, recipe, .. } = run;
    let expected = "true where values are tuned on clients' validation examples, or values that were \
                chosen on other clients";
    ConfigError::new("privacy.client_scores", false, expected)
        .when(recipe.privacy.as_ref().is_some_and(|privacy| !privacy.client_scores))?;
    let share = experiment.raw.data.shares.validation;
    ConfigError::new("data.shares.validation", share, "examples to tune by: above 0")
        .when(prepared.shards.clients.iter().all(|shard| shard.validation.is_empty()))
}
