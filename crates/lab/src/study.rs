//! The experiments of the laboratory: runs over heterogeneities, local steps, cohorts and seeds.
//!
//! Each run is one path of full training and everything that can be read off it: the profile objective of its
//! kernels, and for every warm-up `W` the run that freezes there, which costs next to nothing because stage 2
//! lives on second moments. Runs are independent jobs; threads only decide when each is done.

use fedra_seed::Seed;
use serde::Serialize;

use crate::federation::{Federation, Work};
use crate::matrix::Matrix;
use crate::network::Weights;
use crate::parallel;
use crate::setting::Setting;

/// All runs of the laboratory.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// What was asked.
    pub setting: Setting,
    /// Where its draws started.
    pub seed: u64,
    /// One run for each job.
    pub runs: Vec<Run>,
}

/// What distinguishes one run from another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Job {
    /// `h_kernel = h_value`.
    pub heterogeneity: f64,
    /// `E`.
    pub local_steps: u32,
    /// Clients in a round.
    pub cohort: usize,
    /// Which world, from 0.
    pub world: u32,
    /// Whether warm-ups are swept and every round is looked at, or only the ends are kept.
    pub detail: Detail,
}

/// How much of a run is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// Every round and every warm-up.
    Curves,
    /// Every warm-up.
    Sweep,
    /// Where the run ends, frozen and full.
    Ends,
}

/// What one run gave. A loss is absent where its run left the finite numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// The run.
    #[serde(flatten)]
    pub job: Job,
    /// Final global loss of full training.
    pub full: Option<f64>,
    /// Final global loss with the kernel frozen after the standard warm-up.
    pub frozen: Option<f64>,
    /// The curves, where they were asked for.
    pub curves: Option<Curves>,
    /// Final global loss for each warm-up, where only that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
}

/// Final global loss for each warm-up; absent where its run left the finite numbers.
pub type Sweep = Vec<(u32, Option<f64>)>;

impl Run {
    /// Final global loss for each warm-up, however much else was kept.
    pub fn by_warmup(&self) -> Option<&Sweep> {
        self.curves.as_ref().map(|curves| &curves.final_by_warmup).or(self.sweep.as_ref())
    }
}

/// Round by round, and warm-up by warm-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curves {
    /// Profile objective of full training's kernel after each round.
    pub profile: Vec<f64>,
    /// `|V - V*|` after each round of the two-stage run.
    pub tracking: Vec<f64>,
    /// `|V - V_inf|` after each round of stage 2; empty where stage 2 has no fixed point.
    pub to_fixed_point: Vec<f64>,
    /// `|V_inf - V*|`: where tracking must end when everyone takes part.
    pub floor: Option<f64>,
    /// The spectral radius of a round of stage 2.
    pub contraction: f64,
    /// The floor at the same frozen kernel for the swept local steps.
    pub floor_by_local_steps: Vec<(u32, Option<f64>)>,
    /// Final global loss for each warm-up of the sweep.
    pub final_by_warmup: Sweep,
}

impl Study {
    /// Runs everything on this many threads, and says after each run how many are done.
    pub fn run(
        setting: &Setting,
        seed: u64,
        threads: usize,
        done: impl Fn(usize, usize) + Sync,
    ) -> Self {
        let jobs = jobs(setting);
        let tick = |finished| done(finished, jobs.len());
        let runs = parallel::map(&jobs, threads, tick, |job| follow(setting, Seed(seed), *job));
        Self { setting: setting.clone(), seed, runs }
    }

    /// The runs of one kind, in the order of their worlds.
    pub fn select(&self, heterogeneity: f64, local_steps: u32, cohort: usize) -> Vec<&Run> {
        let wanted = (heterogeneity, local_steps, cohort);
        let kind =
            |run: &&Run| (run.job.heterogeneity, run.job.local_steps, run.job.cohort) == wanted;
        self.runs.iter().filter(kind).collect()
    }
}

/// Every run, the longest first so that no thread starts a long one last.
fn jobs(setting: &Setting) -> Vec<Job> {
    let mut jobs = Vec::new();
    let ends = [setting.heterogeneities.first(), setting.heterogeneities.last()];
    for cohort in [setting.clients, setting.cohort] {
        for world in 0..setting.seeds {
            for &heterogeneity in &setting.heterogeneities {
                let local_steps = setting.local_steps;
                let detail = Detail::Curves;
                jobs.push(Job { heterogeneity, local_steps, cohort, world, detail });
            }
            let is_new = |steps: &&u32| **steps != setting.local_steps;
            for &local_steps in setting.local_step_sweep.iter().filter(is_new) {
                for &heterogeneity in ends.into_iter().flatten() {
                    let detail = Detail::Ends;
                    jobs.push(Job { heterogeneity, local_steps, cohort, world, detail });
                }
            }
        }
    }
    for world in setting.seeds..setting.sweep_seeds {
        for &heterogeneity in setting.heterogeneities.iter().filter(|&&h| h > 0.0) {
            let (local_steps, cohort) = (setting.local_steps, setting.clients);
            jobs.push(Job { heterogeneity, local_steps, cohort, world, detail: Detail::Sweep });
        }
    }
    jobs.sort_by_key(|job| std::cmp::Reverse(job.local_steps as usize * job.cohort));
    jobs
}

/// One run. Worlds are drawn by their number alone: the same clients meet every local work and every cohort.
fn follow(setting: &Setting, seed: Seed, job: Job) -> Run {
    let seed = seed.of("world").with(u64::from(job.world));
    let network = setting.network();
    let federation = Federation {
        clients: setting.world(job.heterogeneity).clients(seed),
        network,
        work: Work { local_steps: job.local_steps, rate: setting.rate, cohort: job.cohort },
        seed,
    };
    let start = network.start(setting.sizes, seed.of("student"));
    let path = federation.train(start, setting.rounds);
    let full = path.get(setting.rounds as usize).map(|last| federation.loss(last));
    let frozen = final_loss(&federation, &path, setting.warmup, setting.rounds);
    let (curves, sweep) = match job.detail {
        Detail::Ends => (None, None),
        Detail::Sweep => (None, Some(sweep(setting, &federation, &path))),
        Detail::Curves => (Some(curves(setting, &federation, &path)), None),
    };
    Run { job, full: full.filter(|loss| loss.is_finite()), frozen, curves, sweep }
}

fn sweep(setting: &Setting, federation: &Federation, path: &[Weights]) -> Sweep {
    let at = |&warmup: &u32| (warmup, final_loss(federation, path, warmup, setting.rounds));
    setting.warmup_sweep.iter().map(at).collect()
}

/// The loss of a student without an MLP at the end, frozen after some rounds of a path.
pub(crate) fn final_loss(
    federation: &Federation,
    path: &[Weights],
    warmup: u32,
    rounds: u32,
) -> Option<f64> {
    let at = path.get(warmup as usize)?;
    let frozen = federation.freeze(at);
    let values = frozen.train(at.value.clone(), warmup, rounds);
    let last = values.get((rounds - warmup) as usize)?;
    Some(frozen.loss(last)).filter(|loss| loss.is_finite())
}

fn curves(setting: &Setting, federation: &Federation, path: &[Weights]) -> Curves {
    let distance = |from: &Matrix, to: &Matrix| from.minus(to).norm();
    let warmup = (setting.warmup as usize).min(path.len() - 1);
    let mut profile = Vec::new();
    let mut tracking = Vec::new();
    for (round, weights) in path.iter().enumerate() {
        let frozen = federation.freeze(weights);
        profile.extend(frozen.profile());
        if round < warmup {
            tracking.extend(frozen.best_value().map(|best| distance(&weights.value, &best)));
        }
    }
    let at = &path[warmup];
    let frozen = federation.freeze(at);
    let values = frozen.train(at.value.clone(), warmup as u32, setting.rounds);
    let (best, fixed_point) = (frozen.best_value(), frozen.fixed_point());
    tracking.extend(values.iter().filter_map(|value| Some(distance(value, best.as_ref()?))));
    let floor_of = |federation: &Federation| {
        let frozen = federation.freeze(at);
        Some(distance(&frozen.fixed_point()?, &frozen.best_value()?))
    };
    let with_steps = |local_steps: u32| {
        let work = Work { local_steps, ..federation.work };
        floor_of(&Federation { work, ..federation.clone() })
    };
    Curves {
        profile,
        tracking,
        to_fixed_point: fixed_point
            .iter()
            .flat_map(|end| values.iter().map(|value| distance(value, end)))
            .collect(),
        floor: floor_of(federation),
        contraction: frozen.contraction(),
        floor_by_local_steps: setting
            .local_step_sweep
            .iter()
            .map(|&steps| (steps, with_steps(steps)))
            .collect(),
        final_by_warmup: sweep(setting, federation, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        let setting = Setting {
            clients: 3,
            samples: 4,
            cohort: 2,
            rounds: 4,
            warmup: 2,
            warmup_sweep: vec![0, 2, 4],
            seeds: 1,
            sweep_seeds: 2,
            ..Setting::quick()
        };
        let one = Study::run(&setting, 5, 1, |_, _| {});
        let three = Study::run(&setting, 5, 3, |_, _| {});
        assert_eq!(one.runs, three.runs);
        assert_ne!(one.runs, Study::run(&setting, 6, 2, |_, _| {}).runs);
        let run = one.select(0.5, 5, 3)[0];
        let curves = run.curves.as_ref().unwrap();
        assert_eq!((curves.profile.len(), curves.tracking.len()), (5, 5));
        assert_eq!(curves.final_by_warmup[1].1, run.frozen, "the standard warm-up is in the sweep");
        let (swept, full) = (curves.final_by_warmup[2].1.unwrap(), run.full.unwrap());
        assert!((swept - full).abs() < 1e-12, "freezing after the last round changes nothing");
        // The further world has its sweep alone, and only where clients differ.
        let further = one.select(0.5, 5, 3)[1];
        assert!(further.curves.is_none() && further.by_warmup().is_some());
        assert_ne!(further.by_warmup(), run.by_warmup());
        assert_eq!(one.select(0.0, 5, 3).len(), 1);
    }
}
