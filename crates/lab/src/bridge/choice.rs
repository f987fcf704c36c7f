//! Which step size a student takes, chosen in a world that judges nothing.
//!
//! Students differ in curvature, so a step by hand would favour one of them. Every student tries the same steps, and
//! takes the one with which *never freezing* ends lowest: freezing has to beat the best full training, not a badly
//! tuned one. A step with which any warm-up of the sweep diverges is out, because freezing fixes the curvature and
//! some steps survive only while the kernel can give way.

use fedra_seed::Seed;
use serde::Serialize;

use super::path::{Path, Task};
use super::setting::{BridgeSetting, TunedAt};
use super::student::Student;

/// The step size of one curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Who learns.
    pub student: Student,
    /// `h_kernel = h_value` of the curve.
    pub heterogeneity: f64,
    /// The step.
    pub rate: f64,
    /// What it was chosen from; empty where there was one step alone.
    pub trials: Vec<Trial>,
}

/// What became of one step size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// The step.
    pub rate: f64,
    /// Final global loss of never freezing; absent where it diverged.
    pub never_frozen: Option<f64>,
    /// Whether no warm-up of the sweep diverged.
    pub holds: bool,
}

/// Everything to try, the slowest student first; nothing where there is nothing to choose.
pub(super) fn attempts(setting: &BridgeSetting) -> Vec<Task> {
    if setting.rates.len() == 1 {
        return Vec::new();
    }
    let levels: &[f64] = match setting.tuned_at {
        TunedAt::Own => &setting.heterogeneities,
        TunedAt::Zero => &[0.0],
    };
    let seed = Seed(setting.seed).of("bridge").of("choice");
    let mut attempts = Vec::new();
    for student in Student::ALL.into_iter().rev() {
        for &heterogeneity in levels {
            let attempt = |&rate: &f64| Task { student, heterogeneity, rate, seed };
            attempts.extend(setting.rates.iter().map(attempt));
        }
    }
    attempts
}

impl Trial {
    /// What becomes of it in the world that judges nothing.
    pub(super) fn of(setting: &BridgeSetting, task: Task) -> Self {
        let sweep = Path::follow(setting, task).sweep();
        let never_frozen = sweep.last().and_then(|(_, loss)| *loss);
        let holds = sweep.iter().all(|(_, loss)| loss.is_some());
        Self { rate: task.rate, never_frozen, holds }
    }
}

/// The step of every curve, student by student with rising heterogeneity. Where every step diverged the smallest
/// is taken, and the judges will say what became of it.
pub(super) fn choose(setting: &BridgeSetting, attempts: &[Task], made: &[Trial]) -> Vec<Choice> {
    let mut choices = Vec::new();
    for student in Student::ALL {
        for &heterogeneity in &setting.heterogeneities {
            let tuned = match setting.tuned_at {
                TunedAt::Own => heterogeneity,
                TunedAt::Zero => 0.0,
            };
            let trials: Vec<Trial> = attempts
                .iter()
                .zip(made)
                .filter(|(attempt, _)| (attempt.student, attempt.heterogeneity) == (student, tuned))
                .map(|(_, trial)| *trial)
                .collect();
            let holding = trials.iter().filter(|trial| trial.holds);
            let known = holding.filter_map(|trial| Some((trial.rate, trial.never_frozen?)));
            let best = known.min_by(|left, right| left.1.total_cmp(&right.1));
            let rate = best.map_or(setting.rates[0], |(rate, _)| rate);
            choices.push(Choice { student, heterogeneity, rate, trials });
        }
    }
    choices
}

#[cfg(test)]
mod tests {
    use super::super::{Bridge, tests::small};
    use super::*;

    fn choices(rates: &[f64], tuned_at: TunedAt) -> Vec<Choice> {
        let setting = BridgeSetting { rates: rates.to_vec(), tuned_at, ..small() };
        Bridge::run(&setting, 2, |_, _| {}).unwrap().choices
    }

    #[test]
    fn the_step_with_which_never_freezing_ends_lowest_is_taken() {
        for choice in choices(&[0.001, 0.05, 1e4], TunedAt::Own) {
            let losses: Vec<_> = choice.trials.iter().map(|trial| trial.never_frozen).collect();
            assert!(
                losses[1].unwrap() < losses[0].unwrap(),
                "a thousandth is too slow: {losses:?}"
            );
            assert_eq!((losses[2], choice.rate), (None, 0.05), "ten thousand diverges");
            assert!(choice.trials[1].holds && !choice.trials[2].holds);
        }
    }

    #[test]
    fn a_step_with_which_some_warm_up_diverges_is_out_however_well_never_freezing_does() {
        let setting =
            BridgeSetting { rates: vec![0.1, 0.2], heterogeneities: vec![0.0], ..small() };
        let made = [
            Trial { rate: 0.1, never_frozen: Some(0.5), holds: true },
            Trial { rate: 0.2, never_frozen: Some(0.4), holds: false },
        ];
        let choices = choose(&setting, &attempts(&setting), &made.repeat(3));
        assert!(choices.iter().all(|choice| choice.rate == 0.1 && choice.trials == made));
    }

    #[test]
    fn at_zero_a_student_has_one_step_for_all_its_curves_and_at_its_own_each_tries_anew() {
        let zero = choices(&[0.02, 0.05], TunedAt::Zero);
        let own = choices(&[0.02, 0.05], TunedAt::Own);
        for pair in [0, 2, 4] {
            assert_eq!(zero[pair].trials, zero[pair + 1].trials);
            assert_eq!(own[pair].trials, zero[pair].trials, "its own heterogeneity is zero");
            assert_ne!(own[pair].trials, own[pair + 1].trials);
        }
    }

    #[test]
    fn one_step_alone_is_taken_without_a_trial() {
        let taken = choices(&[0.03], TunedAt::Own);
        assert!(taken.iter().all(|choice| choice.rate == 0.03 && choice.trials.is_empty()));
    }
}
