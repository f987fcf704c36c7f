//! The bridge from the laboratory towards a Transformer: one federated task, three students.
//!
//! Linear attention has closed forms; softmax attention keeps a quadratic problem in the value block; softmax
//! with an MLP keeps neither. All three get the same clients, and for each warm-up `W` the kernel of round `W`
//! is frozen while everything else continues. If the trade-off of the theory is about attention rather than about
//! linearity, the three curves have the same shape.
//!
//! Two kinds of worlds keep the judgement honest: one chooses every student's step size and judges nothing
//! ([`Choice`]), the others judge and choose nothing for themselves ([`Judgement`]).

mod choice;
mod judgement;
mod path;
mod setting;
mod student;

use fedra_seed::Seed;
use serde::Serialize;

pub use choice::{Choice, Trial};
pub use judgement::{Judgement, Shown, Survival};
pub use path::BridgeRun;
use path::{Path, Task};
pub use setting::{BridgeError, BridgeSetting, Teacher, TunedAt};
pub use student::Student;

use crate::parallel;

/// All runs of the bridge.
#[derive(Clone, Debug, Serialize)]
pub struct Bridge {
    /// What was asked.
    pub setting: BridgeSetting,
    /// The step size of each curve, and what it was chosen from.
    pub choices: Vec<Choice>,
    /// One for each student, heterogeneity and world.
    pub runs: Vec<BridgeRun>,
}

impl Bridge {
    /// Chooses step sizes, then runs everything, on this many threads; says after each run how many are done.
    pub fn run(
        setting: &BridgeSetting,
        threads: usize,
        done: impl Fn(usize, usize) + Sync,
    ) -> Result<Self, BridgeError> {
        setting.check()?;
        let attempts = choice::attempts(setting);
        let mut jobs = Vec::new();
        // The slowest student first, so that no thread starts a long run last.
        for student in Student::ALL.into_iter().rev() {
            for &heterogeneity in &setting.heterogeneities {
                jobs.extend((0..setting.worlds).map(|world| (student, heterogeneity, world)));
            }
        }
        let (before, all) = (attempts.len(), attempts.len() + jobs.len());
        let tick = |finished| done(finished, all);
        let trials =
            parallel::map(&attempts, threads, tick, |attempt| Trial::of(setting, *attempt));
        let choices = choice::choose(setting, &attempts, &trials);
        let tick = |finished| done(before + finished, all);
        let runs = parallel::map(&jobs, threads, tick, |&(student, heterogeneity, world)| {
            let is_chosen = |choice: &&Choice| {
                (choice.student, choice.heterogeneity) == (student, heterogeneity)
            };
            let chosen = choices.iter().find(is_chosen).expect("one for every curve");
            let seed = Seed(setting.seed).of("bridge").with(u64::from(world));
            let path =
                Path::follow(setting, Task { student, heterogeneity, rate: chosen.rate, seed });
            BridgeRun {
                student,
                heterogeneity,
                world,
                final_by_warmup: path.sweep(),
                start: path.start(),
                still_falling: path.still_falling(),
            }
        });
        Ok(Self { setting: setting.clone(), choices, runs })
    }

    /// The runs of one curve, in the order of their worlds.
    pub fn select(&self, student: Student, heterogeneity: f64) -> Vec<&BridgeRun> {
        let wanted =
            |run: &&BridgeRun| (run.student, run.heterogeneity) == (student, heterogeneity);
        self.runs.iter().filter(wanted).collect()
    }

    /// How many paths of training are behind the numbers, those that chose steps included.
    pub fn paths(&self) -> usize {
        choice::attempts(&self.setting).len() + self.runs.len()
    }

    /// What becomes of every curve, student by student with rising heterogeneity.
    pub fn judge(&self) -> Vec<Judgement> {
        self.choices
            .iter()
            .map(|choice| Judgement::of(choice, &self.select(choice.student, choice.heterogeneity)))
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::network::Sizes;

    pub(super) fn small() -> BridgeSetting {
        BridgeSetting {
            seed: 1,
            worlds: 2,
            sizes: Sizes { width: 4, key_width: 2, tokens: 3, outputs: 2 },
            teacher: Teacher::Softmax,
            clients: 3,
            samples: 4,
            noise: 0.1,
            ridge: 0.05,
            hidden: 3,
            rounds: 4,
            local_steps: 2,
            cohort: 2,
            heterogeneities: vec![0.0, 1.0],
            warmups: vec![0, 2, 4],
            rates: vec![0.02, 0.05],
            tuned_at: TunedAt::Own,
        }
    }

    #[test]
    fn the_bridge_does_not_depend_on_the_number_of_threads() {
        let one = Bridge::run(&small(), 1, |_, _| {}).unwrap();
        let three = Bridge::run(&small(), 3, |_, _| {}).unwrap();
        assert_eq!((&one.choices, &one.runs), (&three.choices, &three.runs));
        assert_eq!((one.choices.len(), one.runs.len(), one.paths()), (6, 12, 24));
        let losses = one.runs.iter().flat_map(|run| &run.final_by_warmup);
        assert!(losses.clone().all(|(_, loss)| loss.is_some_and(f64::is_finite)));
        assert_eq!(losses.count(), 36);
    }

    #[test]
    fn every_run_is_counted_once_and_the_last_count_is_all() {
        let counts = std::sync::Mutex::new(Vec::new());
        Bridge::run(&small(), 2, |done, all| counts.lock().unwrap().push((done, all))).unwrap();
        let mut counts = counts.into_inner().unwrap();
        counts.sort_unstable();
        // Three students, two heterogeneities: two rates to try, two worlds to judge.
        assert_eq!(counts, (1..=24).map(|done| (done, 24)).collect::<Vec<_>>());
    }

    #[test]
    fn a_run_that_ends_above_where_it_began_has_no_loss_and_without_never_freezing_no_gain() {
        let setting = BridgeSetting { rates: vec![50.0], ..small() };
        let bridge = Bridge::run(&setting, 2, |_, _| {}).unwrap();
        let linear = bridge.select(Student::Linear, 1.0);
        assert!(
            linear.iter().all(|run| run.final_by_warmup.iter().all(|(_, loss)| loss.is_none()))
        );
        let judged = bridge.judge().into_iter().find(|judged| judged.heterogeneity == 1.0).unwrap();
        assert_eq!((judged.student, judged.diverged, judged.seen), (Student::Linear, 6, false));
        assert_eq!((judged.dip, judged.still_falling), (None, None));
    }
}
