//! A comparison that is being carried out, in two waves.
//!
//! The first wave tunes: every candidate of every variant, with the tuning seeds. The second runs
//! every variant with what was chosen for it, with all seeds; a candidate that already ran is
//! copied, not repeated.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::comparison::Entry;
use super::listener::{CompareListener, RunEvent};
use super::process_pool::{Ending, Job, News};
use super::results::RunResult;
use super::tune::{self, Trial};
use super::variants::{Assignment, Variant, combinations, folder_name, label};
use super::work_plan::WorkPlan;
use super::workers::Workers;

use crate::error::Result;
use crate::folder::run_folder::{Folder, Standing};
use crate::folder::{lock, round_log};
use crate::prepare::fingerprint::Fingerprints;
use crate::run_files::{ROUNDS, SUMMARY};
use crate::text::grid::counted;

/// How often it is looked whether a run that another process holds is free.
const GLANCE: Duration = Duration::from_millis(100);

/// What came of it.
#[derive(Debug, Default)]
pub struct Done {
    /// Each variant with its complete runs.
    pub entries: Vec<Entry>,
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
            // Without one candidate that ran to its end there is nothing to run.
            let Some(chosen) = chosen else { continue };
            for seed in &plan.seeds {
                let experiment = plan.experiment(variant, chosen, *seed)?;
                let folder = self.folder(variant, None, *seed);
                let tried = self.folder(variant, Some(chosen.as_slice()), *seed);
                let name = format!("{} seed {seed}", variant.name);
                if !self.wait_for(&name, &folder) {
                    return Ok(None);
                }
                let inputs = self.fingerprints.of(&experiment)?;
                if Folder::standing(&folder, &experiment, &inputs) != Standing::Complete
                    && Folder::standing(&tried, &experiment, &inputs) == Standing::Complete
                {
                    let _held = Folder::create(&folder, &experiment)?;
                    Folder::copy(&tried, &folder)?;
                }
                tasks.push(Job { name, folder, experiment });
            }
        }
        if !self.wave("run", &tasks, workers)? {
            return Ok(None);
        }
        for (place, (variant, chosen)) in plan.variants.iter().zip(&chosen).enumerate() {
            let folders = plan.seeds.iter().map(|seed| (*seed, self.folder(variant, None, *seed)));
            let complete = folders.filter(|(_, folder)| folder.join(SUMMARY).is_file());
            let runs = complete.map(|(seed, folder)| Ok((seed, RunResult::read(&folder)?)));
            self.done.entries.push(Entry {
                name: variant.name.clone(),
                tuned: spoken(chosen.as_deref().unwrap_or_default()),
                baseline: plan.baselines[place],
                runs: runs.collect::<Result<_>>()?,
            });
        }
        let failures = self.done.failures.iter().map(|failure| format!("failed: {failure}"));
        self.done.notes.extend(failures);
        let is_private = |task: &&Job| task.experiment.recipe.privacy.is_some();
        let tried = plan.variants.iter().any(|variant| !variant.tuned.is_empty());
        if tasks.iter().filter(is_private).count() > usize::from(!tried) {
            self.done.notes.push(
                "epsilon is that of a single run: the epsilons of private runs on the same rows, including \
                 tuning candidates, add up (docs/privacy.md)"
                    .to_owned(),
            );
        }
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
                    tasks.push(Job { name, folder, experiment });
                }
            }
        }
        if !self.wave("tune", &tasks, workers)? {
            return Ok(None);
        }
        let all = plan.variants.iter().map(|variant| self.choose(variant)).collect();
        if !tasks.is_empty() {
            let seeds: Vec<String> = plan.tune_seeds.iter().map(u64::to_string).collect();
            let seeds = seeds.join(", ");
            self.done.notes.push(format!(
                "tuned values were chosen on the clients' validation examples with seed {seeds}; the test set \
                 was not used"
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
                tune::validation_score(&folder.join(SUMMARY)).ok()
            };
            let scores: Option<Vec<f64>> = self.plan.tune_seeds.iter().map(score).collect();
            let validation = scores.map(|scores| scores.iter().sum::<f64>() / scores.len() as f64);
            trials.push(Trial { assigned, validation });
        }
        let Some(best) = tune::best(&trials) else {
            self.done.notes.push(format!("{}: no candidate was completed", variant.name));
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

    /// Waits until nobody is at work in a run's folder; says whether it was left undisturbed. A comparison that
    /// was killed leaves its runs behind, which notice that and end after their step.
    fn wait_for(&self, name: &str, folder: &Path) -> bool {
        let mut told = false;
        while let Some(holder) = lock::holder(folder) {
            if self.listener.stops() {
                return false;
            }
            if !told {
                let shown = folder.display();
                self.listener.preparation().note(&format!(
                    "{name}: waiting for {holder}, which is still running in {shown}"
                ));
                told = true;
            }
            std::thread::sleep(GLANCE);
        }
        true
    }

    /// Carries out the runs that are not complete; says whether it was left undisturbed.
    fn wave(&mut self, what: &str, tasks: &[Job], workers: &Workers<'_>) -> Result<bool> {
        let (mut jobs, mut rounds, mut done) = (Vec::new(), 0, 0);
        for task in tasks {
            if !self.wait_for(&task.name, &task.folder) {
                return Ok(false);
            }
            let inputs = self.fingerprints.of(&task.experiment)?;
            let all = u64::from(task.experiment.rounds);
            rounds += all;
            let standing = Folder::standing(&task.folder, &task.experiment, &inputs);
            let why = match &standing {
                Standing::Complete => {
                    done += all;
                    continue;
                }
                Standing::Unfinished | Standing::Absent => None,
                Standing::OtherExperiment => Some("the experiment has changed".to_owned()),
                Standing::OtherLog => Some("its round log was changed".to_owned()),
                Standing::OtherInputs(changes) if changes.is_empty() => {
                    Some("its inputs are unknown".to_owned())
                }
                Standing::OtherInputs(changes) => {
                    let names: Vec<&str> = changes.iter().map(|change| change.what).collect();
                    Some(format!("its {} changed", names.join(" and ")))
                }
            };
            if let Some(why) = why {
                let note = format!("{}: {why}, so it runs again", task.name);
                self.listener.preparation().note(&note);
            }
            if standing != Standing::Unfinished {
                drop(Folder::create(&task.folder, &task.experiment)?);
            }
            done += round_log::lines(&task.folder.join(ROUNDS)).min(all);
            jobs.push(task);
        }
        if tasks.is_empty() {
            return Ok(true);
        }
        let (all, missing) = (tasks.len(), jobs.len());
        let listener = self.listener;
        let (runs, complete) = (counted(all as u64, "run"), (all - missing) as u64);
        let note = format!("{what}: {runs}, {complete} complete already");
        listener.preparation().note(&note);
        listener.hear(RunEvent::Begin { what, complete, rounds, done });
        let mut failures = Vec::new();
        let mut last = vec![String::new(); jobs.len()];
        let tell = &mut |place: usize, news| match news {
            News::Round(told) => {
                listener.hear(RunEvent::Round(&jobs[place].name, &told));
                last[place] = told;
            }
            News::Within(told) => listener.hear(RunEvent::Within(&jobs[place].name, &told)),
            News::Over(Ending::Complete) => {
                listener.hear(RunEvent::Complete(&jobs[place].name, &last[place]));
            }
            News::Over(Ending::Interrupted) => {}
            News::Over(Ending::Failed(reason)) => {
                listener.hear(RunEvent::Failed(&jobs[place].name, &reason));
                failures.push(format!("{}: {reason}", jobs[place].name));
            }
        };
        let undisturbed = workers.run(&jobs, &|| listener.stops(), tell);
        listener.hear(RunEvent::End);
        self.done.failures.extend(failures);
        Ok(undisturbed)
    }
}

/// Assignments as `rate=0.001`.
fn spoken(assigned: &[Assignment]) -> Vec<String> {
    assigned.iter().map(|one| label(one, assigned)).collect()
}
