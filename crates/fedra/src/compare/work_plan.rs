//! All runs of a comparison: checked before the first begins, then carried out in two waves.
//!
//! The first wave tunes: every candidate of every variant, with the tuning seeds. The second runs
//! every variant with what was chosen for it, with all seeds; a candidate that already ran is
//! copied, not repeated.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::job::{Ending, Job, News};
use super::listener::CompareListener;
use super::tune::{self, Trial};
use super::variants::{Assignment, Subject, Variant, combinations, expand, folder_name, label};
use super::workers::Workers;
use super::written;
use crate::error::{Context, Result};
use crate::experiment::{Complaint, Experiment, Overrides};
use crate::federate;
use crate::fingerprint::Fingerprints;
use crate::folder::{Folder, Standing};

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
        let (mut seeds, mut tune_seeds) = (asked.seeds, None);
        let (mut first_seed, mut baseline) = (None, asked.baseline.clone());
        for file in &asked.files {
            let base = Experiment::open(file, &asked.overrides)?;
            let table = base.compare.unwrap_or_default();
            let mut sweep = written::axes(&table.sweep, "compare.sweep")?;
            let mut tune = written::axes(&table.tune, "compare.tune")?;
            for (flag, texts, axes) in
                [("--sweep", &asked.sweeps, &mut sweep), ("--tune", &asked.tunes, &mut tune)]
            {
                for text in texts {
                    let axis = written::axis(text, flag)?;
                    // What the command line says of a key goes before what the file says.
                    axes.retain(|other| other.key != axis.key);
                    axes.push(axis);
                }
            }
            seeds = seeds.or(table.seeds);
            tune_seeds = tune_seeds.or(table.tune_seeds);
            baseline = baseline.or(table.baseline);
            first_seed = first_seed.or(Some(base.draft.seed));
            let (file, name) = (file.clone(), base.name);
            subjects.push(Subject { file, name, variants: table.variants, sweep, tune });
        }
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
        let name = folder_name(&names.join("+"));
        let variants = expand(&subjects)?;
        let baselines = super::variants::baselines(&variants, baseline.as_deref())?;
        let first = first_seed.unwrap_or(1);
        let count = |key: &str, wanted: Option<u32>, usual: u64| match wanted {
            Some(0) => Err(Complaint::new(key, 0, "at least 1")),
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
    pub fn check(&self) -> Result<(Fingerprints, Vec<String>)> {
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
                    fingerprints.of(&experiment).with_context(seed)?;
                }
                if number == 0 {
                    let run = federate::Run::prepare(&experiment).with_context(within)?;
                    notes.extend(
                        run.notes().filter(|note| !notes.contains(note)).collect::<Vec<_>>(),
                    );
                    fingerprints.note(&experiment, run.inputs())?;
                    let (prepared, recipe) = run.parts();
                    recipe.learns.check(prepared.model.layout()).with_context(within)?;
                    recipe.personal.check(prepared.model.layout()).with_context(within)?;
                    let clients = &prepared.shards.clients;
                    let tuned = variant.tuned.iter().any(|axis| axis.values.len() > 1);
                    if tuned && clients.iter().all(|shard| shard.validation.is_empty()) {
                        let expected = "examples to tune by: above 0";
                        let shares = experiment.draft.data.shares.validation;
                        let complaint = Complaint::new("data.shares.validation", shares, expected);
                        return Err(complaint).with_context(within);
                    }
                }
            }
        }
        Ok((fingerprints, notes))
    }

    fn experiment(
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

/// What came of it.
#[derive(Debug, Default)]
pub struct Done {
    /// The folder of each complete run, by variant and seed.
    pub folders: Vec<BTreeMap<u64, PathBuf>>,
    /// The tuned values of each variant, in words.
    pub chosen: Vec<Vec<String>>,
    /// Runs that broke down, in words.
    pub failures: Vec<String>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// A plan being carried out.
pub struct Progression<'a> {
    plan: &'a WorkPlan,
    out: &'a Path,
    fingerprints: Fingerprints,
    listener: &'a dyn CompareListener,
    done: Done,
}

/// A run with its experiment.
struct Task {
    name: String,
    folder: PathBuf,
    experiment: Experiment,
}

impl<'a> Progression<'a> {
    /// Nothing done yet.
    pub fn new(
        plan: &'a WorkPlan,
        (out, fingerprints): (&'a Path, Fingerprints),
        listener: &'a dyn CompareListener,
    ) -> Self {
        Self { plan, out, fingerprints, listener, done: Done::default() }
    }

    /// Carries out what is missing; `None` when interrupted.
    pub fn run(&mut self, workers: &Workers<'_>) -> Result<Option<Done>> {
        let Some(chosen) = self.tune(workers)? else { return Ok(None) };
        let (plan, mut tasks) = (self.plan, Vec::new());
        for (variant, chosen) in plan.variants.iter().zip(&chosen) {
            self.done.chosen.push(spoken(chosen.as_deref().unwrap_or_default()));
            // Without one candidate that ran to its end there is nothing to run.
            let Some(chosen) = chosen else { continue };
            for seed in &plan.seeds {
                let experiment = plan.experiment(variant, chosen, *seed)?;
                let folder = self.folder(variant, None, *seed);
                let tried = self.folder(variant, Some(chosen.as_slice()), *seed);
                let inputs = self.fingerprints.of(&experiment)?;
                if Folder::standing(&folder, &experiment, &inputs) != Standing::Complete
                    && Folder::standing(&tried, &experiment, &inputs) == Standing::Complete
                {
                    let _held = Folder::create(&folder, &experiment)?;
                    Folder::copy(&tried, &folder)?;
                }
                let name = format!("{} seed {seed}", variant.name);
                tasks.push(Task { name, folder, experiment });
            }
        }
        if !self.wave("run", &tasks, workers)? {
            return Ok(None);
        }
        for variant in &plan.variants {
            let mut folders = BTreeMap::new();
            for seed in &plan.seeds {
                let folder = self.folder(variant, None, *seed);
                if Folder::summary_of(&folder).is_file() {
                    folders.insert(*seed, folder);
                }
            }
            self.done.folders.push(folders);
        }
        let failures = self.done.failures.iter().map(|failure| format!("failed: {failure}"));
        self.done.notes.extend(failures);
        let jobs = workers.at_a_time();
        if jobs > 1 {
            self.done
                .notes
                .push(format!("{jobs} runs shared the machine: times are longer for it"));
        }
        Ok(Some(std::mem::take(&mut self.done)))
    }

    /// The values chosen for each variant, `None` where all candidates failed.
    fn tune(&mut self, workers: &Workers<'_>) -> Result<Option<Vec<Option<Vec<Assignment>>>>> {
        let (plan, mut tasks) = (self.plan, Vec::new());
        for variant in &plan.variants {
            let candidates = combinations(&variant.tuned);
            for candidate in candidates.iter().filter(|_| candidates.len() > 1) {
                for seed in &plan.tune_seeds {
                    let experiment = plan.experiment(variant, candidate, *seed)?;
                    let folder = self.folder(variant, Some(candidate.as_slice()), *seed);
                    let name =
                        format!("{} {} seed {seed}", variant.name, spoken(candidate).join(" "));
                    tasks.push(Task { name, folder, experiment });
                }
            }
        }
        if !self.wave("tune", &tasks, workers)? {
            return Ok(None);
        }
        let mut all = Vec::new();
        for variant in &plan.variants {
            all.push(self.choose(variant));
        }
        if !tasks.is_empty() {
            let seeds: Vec<String> = plan.tune_seeds.iter().map(u64::to_string).collect();
            let seeds = seeds.join(", ");
            self.done.notes.push(format!(
                "tuned values were chosen on the clients' validation examples with seed {seeds}; the \
                 test set was not looked at"
            ));
        }
        Ok(Some(all))
    }

    fn choose(&mut self, variant: &Variant) -> Option<Vec<Assignment>> {
        let candidates = combinations(&variant.tuned);
        if let [only] = candidates.as_slice() {
            return Some(only.clone());
        }
        let mut trials = Vec::new();
        for assigned in candidates {
            let score = |seed: &u64| {
                let folder = self.folder(variant, Some(assigned.as_slice()), *seed);
                tune::validation_score(&Folder::summary_of(&folder)).ok()
            };
            let scores: Option<Vec<f64>> = self.plan.tune_seeds.iter().map(score).collect();
            let validation = scores.map(|scores| scores.iter().sum::<f64>() / scores.len() as f64);
            trials.push(Trial { assigned, validation });
        }
        let Some(best) = tune::best(&trials) else {
            self.done.notes.push(format!("{}: no candidate ran to its end", variant.name));
            return None;
        };
        let chosen = trials.swap_remove(best).assigned;
        for key in tune::at_edge(&variant.tuned, &chosen) {
            self.done.notes.push(format!(
                "{}: the best {key} is at the edge of its grid: widen the grid and run again",
                variant.name
            ));
        }
        Some(chosen)
    }

    fn folder(&self, variant: &Variant, candidate: Option<&[Assignment]>, seed: u64) -> PathBuf {
        let own = self.out.join(&variant.name);
        let own = match candidate {
            Some(candidate) => own.join("tune").join(folder_name(&spoken(candidate).join(" "))),
            None => own,
        };
        own.join(format!("seed-{seed}"))
    }

    /// Carries out the runs that are not complete; says whether it was left undisturbed.
    fn wave(&mut self, what: &str, tasks: &[Task], workers: &Workers<'_>) -> Result<bool> {
        let (mut jobs, mut rounds) = (Vec::new(), Vec::new());
        for task in tasks {
            let inputs = self.fingerprints.of(&task.experiment)?;
            let why = match Folder::standing(&task.folder, &task.experiment, &inputs) {
                Standing::Complete => continue,
                Standing::Unfinished => None,
                Standing::Absent => Some(None),
                Standing::OtherExperiment => Some(Some("the experiment has changed".to_owned())),
                Standing::OtherLog => Some(Some("its log of rounds was changed".to_owned())),
                Standing::OtherInputs(changes) if changes.is_empty() => {
                    Some(Some("what it learned from is not known".to_owned()))
                }
                Standing::OtherInputs(changes) => {
                    let names: Vec<&str> = changes.iter().map(|change| change.what).collect();
                    Some(Some(format!("it learned from other {}", names.join(" and "))))
                }
            };
            if let Some(why) = why {
                if let Some(why) = why {
                    self.listener.note(&format!("{}: {why}, runs anew", task.name));
                }
                drop(Folder::create(&task.folder, &task.experiment)?);
            }
            let (name, folder) = (task.name.clone(), task.folder.clone());
            jobs.push(Job { name, folder, threads: task.experiment.draft.threads });
            rounds.push(u64::from(task.experiment.rounds));
        }
        if tasks.is_empty() {
            return Ok(true);
        }
        let (all, missing) = (tasks.len(), jobs.len());
        let listener = self.listener;
        listener.note(&format!("{what}: {all} runs, {} complete already", all - missing));
        listener.begin(what, rounds.iter().sum());
        let mut failures = Vec::new();
        let mut last = vec![String::new(); jobs.len()];
        let tell = &mut |place: usize, news| match news {
            News::Round(told) => {
                listener.round(&jobs[place].name, &told);
                last[place] = told;
            }
            News::Over(Ending::Complete) => listener.complete(&jobs[place].name, &last[place]),
            News::Over(Ending::Interrupted) => {}
            News::Over(Ending::Failed(reason)) => {
                listener.failed(&jobs[place].name, &reason);
                failures.push(format!("{}: {reason}", jobs[place].name));
            }
        };
        let undisturbed = workers.run(&jobs, &|| listener.stops(), tell);
        listener.end();
        self.done.failures.extend(failures);
        Ok(undisturbed)
    }
}

/// Assignments as `rate=0.001`.
fn spoken(assigned: &[Assignment]) -> Vec<String> {
    assigned.iter().map(|one| label(one, assigned)).collect()
}
