//! Whether a curve of the bridge has a minimum inside, and whether that survives from student to student.
//!
//! A curve is judged as the U shape of the linear laboratory is ([`Dip`]): no world helps to choose the warm-up that
//! it then judges. A frozen run that diverged counts with the loss it began with, as if it had been thrown away. Never
//! freezing, which freezing must beat, has no such substitute: where it diverged in any world there is nothing to gain
//! on, and a minimum inside is not seen. A student *shows the trade-off* when its curves are seen at every heterogeneity
//! above zero and not at zero, where there is nothing to drift towards.

use std::fmt;

use serde::Serialize;

use super::choice::Choice;
use super::path::BridgeRun;
use super::student::Student;
use crate::dip::Dip;
use crate::study::Sweep;
use crate::verdict::mean;

/// What became of one curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// Who learned.
    pub student: Student,
    /// `h_kernel = h_value`.
    pub heterogeneity: f64,
    /// The size of its steps.
    pub rate: f64,
    /// The warm-ups that other worlds chose, and what they gain; absent where never freezing diverged in a world.
    pub dip: Option<Dip>,
    /// How many runs diverged, over all worlds and warm-ups.
    pub diverged: usize,
    /// Whether there are gains and both have a 95 % interval above zero.
    pub seen: bool,
    /// Mean final loss for each warm-up; absent where a world diverged.
    pub mean_by_warmup: Sweep,
    /// Which share of its loss never freezing still lost over the last sixth of the rounds, in the mean; absent where
    /// it diverged in a world.
    pub still_falling: Option<f64>,
}

impl Judgement {
    /// The criterion, in words.
    pub const CRITERION: &'static str = "each world is frozen after the warm-up that was best on average in the other \
         worlds; the 95 % intervals over worlds of what that gains against W = 0 and against never freezing both \
         lie above zero, and never freezing diverged in no world";

    pub(super) fn of(choice: &Choice, worlds: &[&BridgeRun]) -> Self {
        let sweeps: Vec<&Sweep> = worlds.iter().map(|run| &run.final_by_warmup).collect();
        let places = sweeps.iter().map(|sweep| sweep.len()).min().unwrap_or(0);
        let at =
            |place: usize| (sweeps[0][place].0, mean(sweeps.iter().map(|sweep| sweep[place].1)));
        let kept = |run: &&BridgeRun| -> Sweep {
            let loss = |&(warmup, loss): &(u32, Option<f64>)| (warmup, loss.or(Some(run.start)));
            run.final_by_warmup.iter().map(loss).collect()
        };
        let kept: Vec<Sweep> = worlds.iter().map(kept).collect();
        let beatable = |sweep: &&Sweep| sweep.last().is_some_and(|(_, loss)| loss.is_some());
        let judge = || Dip::of(&kept.iter().collect::<Vec<_>>());
        let dip = sweeps.iter().all(beatable).then(judge).flatten();
        let missing = |sweep: &&Sweep| sweep.iter().filter(|(_, loss)| loss.is_none()).count();
        Self {
            student: choice.student,
            heterogeneity: choice.heterogeneity,
            rate: choice.rate,
            seen: dip.as_ref().is_some_and(Dip::is_seen),
            dip,
            diverged: sweeps.iter().map(missing).sum(),
            mean_by_warmup: (0..places).map(at).collect(),
            still_falling: mean(worlds.iter().map(|run| run.still_falling)),
        }
    }
}

/// Whether the trade-off holds from linear attention to softmax to softmax with an MLP.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Survival {
    /// Whether all three students show it.
    pub survives: bool,
    /// One for each student, in the order of the bridge.
    pub students: Vec<Shown>,
}

/// Whether a student shows the trade-off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Who.
    pub student: Student,
    /// Whether it shows it.
    pub shown: bool,
    /// At how many heterogeneities above zero a minimum inside was seen.
    pub seen: usize,
    /// Out of how many.
    pub of: usize,
    /// Whether it was seen without heterogeneity too.
    pub seen_at_zero: bool,
}

impl Survival {
    /// The criterion, in words.
    pub const CRITERION: &'static str =
        "every student has a minimum inside at every h > 0 and none at h = 0";

    /// Sums up the judgements of all curves.
    pub fn of(judgements: &[Judgement]) -> Self {
        let students = Student::ALL.map(|student| {
            let mine = || judgements.iter().filter(move |judged| judged.student == student);
            let drifting = || mine().filter(|judged| judged.heterogeneity > 0.0);
            let seen = drifting().filter(|judged| judged.seen).count();
            let of = drifting().count();
            let at_zero = mine().find(|judged| judged.heterogeneity == 0.0);
            let everywhere = of > 0 && seen == of;
            Shown {
                student,
                shown: everywhere && at_zero.is_some_and(|judged| !judged.seen),
                seen,
                of,
                seen_at_zero: at_zero.is_some_and(|judged| judged.seen),
            }
        });
        Self { survives: students.iter().all(|one| one.shown), students: students.to_vec() }
    }
}

impl fmt::Display for Survival {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |shown: bool| -> Vec<&str> {
            let kind = self.students.iter().filter(|one| one.shown == shown);
            kind.map(|one| one.student.name()).collect()
        };
        let (with, without) = (names(true), names(false));
        let agreed = |names: &[&str], one: &'static str, several: &'static str| {
            if names.len() == 1 { one } else { several }
        };
        let (show, do_not) = (agreed(&with, "shows", "show"), agreed(&without, "does", "do"));
        let (with, without) = (with.join(" and "), without.join(" and "));
        let linear = self.students.first().is_some_and(|one| one.shown);
        match (self.survives, linear, with.is_empty()) {
            (true, ..) => write!(
                formatter,
                "The trade-off holds from linear attention to softmax to softmax with an MLP: all three show it."
            ),
            (false, _, true) => {
                write!(formatter, "No student shows the trade-off.")
            }
            (false, true, false) => write!(
                formatter,
                "The trade-off does not hold for all students: {with} {show} it, {without} {do_not} not."
            ),
            (false, false, false) => write!(
                formatter,
                "The trade-off does not carry over from linear attention, which does not show it here: shown by \
                 {with}, not by {without}."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(student: Student, heterogeneity: f64, seen: bool) -> Judgement {
        Judgement {
            student,
            heterogeneity,
            rate: 0.1,
            dip: None,
            diverged: 0,
            seen,
            mean_by_warmup: Vec::new(),
            still_falling: None,
        }
    }

    /// Seen at h = 0, 0.5 and 1, for each student.
    fn survival(seen: [[bool; 3]; 3]) -> Survival {
        let curves = Student::ALL.into_iter().zip(seen).flat_map(|(student, seen)| {
            [0.0, 0.5, 1.0].into_iter().zip(seen).map(move |(h, seen)| judged(student, h, seen))
        });
        Survival::of(&curves.collect::<Vec<_>>())
    }

    #[test]
    fn a_student_shows_the_trade_off_at_every_heterogeneity_above_zero_and_not_at_zero() {
        let found = survival([[false, true, true], [true, true, true], [false, false, true]]);
        let shown: Vec<bool> = found.students.iter().map(|one| one.shown).collect();
        assert_eq!(shown, [true, false, false]);
        assert!(!found.survives);
        assert_eq!((found.students[2].seen, found.students[2].of), (1, 2));
    }

    #[test]
    fn a_student_that_was_not_judged_without_heterogeneity_does_not_show_the_trade_off() {
        let curves = [0.5, 1.0].map(|h| judged(Student::Linear, h, true));
        let linear = Survival::of(&curves).students[0];
        assert_eq!((linear.shown, linear.seen, linear.of), (false, 2, 2));
    }

    #[test]
    fn the_sentence_names_who_shows_it() {
        let (yes, no) = ([false, true, true], [false, false, true]);
        let check = |seen, start: &str, end: &str| {
            let sentence = survival(seen).to_string();
            assert!(sentence.starts_with(start) && sentence.ends_with(end), "{sentence}");
        };
        check([yes, yes, yes], "The trade-off holds", "all three show it.");
        check([no, no, no], "No student", "No student shows the trade-off.");
        check(
            [yes, no, no],
            "The trade-off does not hold for all students: linear attention shows it",
            "softmax attention and softmax attention with MLP do not.",
        );
        check(
            [yes, yes, no],
            "The trade-off does not hold for all students: linear attention and softmax attention show it",
            "softmax attention with MLP does not.",
        );
        check(
            [no, yes, no],
            "The trade-off does not carry over",
            "not by linear attention and softmax attention with MLP.",
        );
    }

    /// Three worlds with a valley at the warm-up 5.
    fn valleys() -> [BridgeRun; 3] {
        [(0, [2.0, 1.0, 1.25]), (1, [2.0, 1.0, 1.26]), (2, [2.0, 1.0, 1.24])].map(
            |(world, losses)| BridgeRun {
                student: Student::Softmax,
                heterogeneity: 1.0,
                world,
                final_by_warmup: [0, 5, 10].into_iter().zip(losses.map(Some)).collect(),
                start: 3.0,
                still_falling: Some(0.5),
            },
        )
    }

    fn judgement(worlds: &[BridgeRun]) -> Judgement {
        let choice =
            Choice { student: Student::Softmax, heterogeneity: 1.0, rate: 0.2, trials: Vec::new() };
        Judgement::of(&choice, &worlds.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_curve_is_judged_by_the_warm_up_that_the_other_worlds_choose() {
        let judged = judgement(&valleys());
        assert!(judged.seen);
        assert_eq!(judged.dip.unwrap().chosen, [5, 5, 5]);
        assert_eq!(judged.mean_by_warmup, [(0, Some(2.0)), (5, Some(1.0)), (10, Some(1.25))]);
        assert_eq!((judged.rate, judged.still_falling), (0.2, Some(0.5)));
        assert_eq!(judged.diverged, 0);
    }

    #[test]
    fn a_frozen_run_that_diverged_is_worth_what_training_began_with() {
        let mut worlds = valleys();
        worlds[1].final_by_warmup[0].1 = None;
        let judged = judgement(&worlds);
        let gain = judged.dip.unwrap().against_none.mean;
        assert!((gain - (0.5 + 2.0 / 3.0 + 0.5) / 3.0).abs() < 1e-12);
        assert_eq!((judged.diverged, judged.mean_by_warmup[0]), (1, (0, None)));
    }

    #[test]
    fn where_never_freezing_diverged_there_is_no_gain_and_nothing_is_seen() {
        for diverged in [vec![1], vec![0, 1, 2]] {
            let mut worlds = valleys();
            for &world in &diverged {
                worlds[world].final_by_warmup[2].1 = None;
            }
            let judged = judgement(&worlds);
            assert_eq!((judged.dip, judged.seen, judged.diverged), (None, false, diverged.len()));
        }
    }
}
