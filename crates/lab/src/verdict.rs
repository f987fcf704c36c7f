//! Which predicted shapes were seen, decided by stated criteria on the numbers and never by eye.
//!
//! A prediction is the paper's; its criterion is ours, written down beside it, and "not seen" is an answer. A
//! shape counts only if every world shows it, so one lucky draw proves nothing; the U shape, which is the claim, rests
//! on more worlds and a paired interval ([`crate::Dip`]).

use serde::Serialize;

use crate::dip::Dip;
use crate::study::{Curves, Run, Study, Sweep};

/// One prediction and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The shape, in a few words.
    pub shape: &'static str,
    /// What must hold for it to count.
    pub criterion: &'static str,
    /// Whether it held.
    pub seen: bool,
    /// The numbers that decided.
    pub numbers: String,
}

/// A difference between two losses that is worth a word: a tenth of a percent.
const NOTABLE: f64 = 1e-3;

impl Verdict {
    /// Judges every predicted shape, with everyone taking part and then with a share of the clients.
    pub fn all(study: &Study) -> Vec<Self> {
        vec![
            profile_falls(study),
            tracking_contracts(study),
            floor_grows_with_heterogeneity(study),
            floor_grows_with_local_steps(study),
            full_training_drifts(study),
            frozen_degrades_less(study),
            homogeneous_falls(study),
            warmup_has_a_minimum(study),
            kernel_gets_worse(study),
            best_warmup_shortens(study),
            share_raises_losses(study),
            share_keeps_the_shape(study),
        ]
    }
}

/// Curves of every world at a heterogeneity, standard local steps.
fn curves(study: &Study, heterogeneity: f64, cohort: usize) -> Vec<&Curves> {
    let runs = study.select(heterogeneity, study.setting.local_steps, cohort);
    runs.into_iter().filter_map(|run| run.curves.as_ref()).collect()
}

/// Whether it holds in every world with everyone in each round, at each of these heterogeneities.
fn everywhere(study: &Study, levels: &[f64], holds: impl Fn(&Curves) -> bool) -> bool {
    levels.iter().all(|&h| curves(study, h, study.setting.clients).into_iter().all(&holds))
}

/// Whether it holds between a share of the clients and everyone, in every world, at each of these
/// heterogeneities.
fn with_a_share(study: &Study, levels: &[f64], holds: fn(&Valley, &Valley) -> bool) -> bool {
    levels.iter().all(|&h| {
        let part = valleys(study, h, study.setting.cohort);
        let all = valleys(study, h, study.setting.clients);
        part.len() == all.len() && part.iter().zip(&all).all(|(part, all)| holds(part, all))
    })
}

/// The mean, or nothing where one is missing or there are none.
pub fn mean(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The mean over worlds with everyone in each round, at a heterogeneity.
fn mean_of(study: &Study, h: f64, value: impl Fn(&Curves) -> Option<f64>) -> Option<f64> {
    mean(curves(study, h, study.setting.clients).into_iter().map(value))
}

/// Losses and distances are near one; what is a million times that is on its way to infinity.
const DIVERGED: f64 = 1e6;

fn shown(value: Option<f64>) -> String {
    let value = value.filter(|value| value.abs() < DIVERGED);
    value.map_or_else(|| "diverged".to_owned(), |value| format!("{value:.4}"))
}

fn each<T>(items: impl IntoIterator<Item = T>, show: impl Fn(T) -> String) -> String {
    items.into_iter().map(show).collect::<Vec<_>>().join("; ")
}

fn profile_falls(study: &Study) -> Verdict {
    let warmup = study.setting.warmup as usize;
    let ends = |curves: &Curves| Some((*curves.profile.first()?, *curves.profile.get(warmup)?));
    let fell = |curves: &Curves| ends(curves).is_some_and(|(before, after)| after < before);
    let levels = &study.setting.heterogeneities;
    Verdict {
        shape: "warm-up improves the kernel",
        criterion: "the profile objective is lower after warm-up than before it, in every world",
        seen: everywhere(study, levels, fell),
        numbers: each(levels, |&h| {
            let before = mean_of(study, h, |curves| ends(curves).map(|ends| ends.0));
            let after = mean_of(study, h, |curves| ends(curves).map(|ends| ends.1));
            format!("h {h}: {} -> {}", shown(before), shown(after))
        }),
    }
}

fn tracking_contracts(study: &Study) -> Verdict {
    /// Distances below this, or below this share of the first, are rounding.
    const ROUNDING: f64 = 1e-10;
    let settled = |curves: &Curves| {
        let distance = &curves.to_fixed_point;
        let Some(first) = distance.first().copied() else { return false };
        let contracts = distance
            .windows(2)
            .filter(|pair| pair[0] > ROUNDING * first)
            .all(|pair| pair[1] <= pair[0] * curves.contraction * (1.0 + 1e-6));
        let ends = match (curves.tracking.last(), curves.floor) {
            (Some(last), Some(floor)) => (last - floor).abs() <= (0.01 * floor).max(ROUNDING),
            (None, _) | (_, None) => false,
        };
        contracts && ends && curves.contraction < 1.0
    };
    let levels = &study.setting.heterogeneities;
    Verdict {
        shape: "in stage 2 the tracking error shrinks geometrically to the fixed point's floor",
        criterion: "each round brings V nearer to V_inf by at least the predicted spectral radius, and |V - V*| \
                    ends within 1 % of |V_inf - V*|, in every world",
        seen: everywhere(study, levels, settled),
        numbers: each(levels, |&h| {
            let radius = shown(mean_of(study, h, |curves| Some(curves.contraction)));
            let last = shown(mean_of(study, h, |curves| curves.tracking.last().copied()));
            let floor = shown(mean_of(study, h, |curves| curves.floor));
            format!("h {h}: radius {radius}, ends at {last}, floor {floor}")
        }),
    }
}

fn rising(values: &[Option<f64>]) -> bool {
    values.windows(2).all(|pair| matches!(pair, [Some(a), Some(b)] if a < b))
}

fn floor_grows_with_heterogeneity(study: &Study) -> Verdict {
    let levels = &study.setting.heterogeneities;
    let everyone = study.setting.clients;
    let floors = |world: usize| -> Vec<Option<f64>> {
        levels.iter().map(|&h| curves(study, h, everyone).get(world)?.floor).collect()
    };
    Verdict {
        shape: "the bias floor grows with heterogeneity",
        criterion: "|V_inf - V*| rises from each heterogeneity to the next, in every world",
        seen: (0..study.setting.seeds as usize).all(|world| rising(&floors(world))),
        numbers: each(levels, |&h| {
            format!("h {h}: {}", shown(mean_of(study, h, |curves| curves.floor)))
        }),
    }
}

fn floor_grows_with_local_steps(study: &Study) -> Verdict {
    let levels = &study.setting.heterogeneities;
    let floors = |curves: &Curves| -> Vec<Option<f64>> {
        curves.floor_by_local_steps.iter().map(|(_, floor)| *floor).collect()
    };
    let last = levels.last().copied().unwrap_or_default();
    Verdict {
        shape: "the bias floor grows with local steps",
        criterion: "at one frozen kernel |V_inf - V*| rises from each E to the next, at every heterogeneity",
        seen: everywhere(study, levels, |curves| rising(&floors(curves))),
        numbers: each(study.setting.local_step_sweep.iter().enumerate(), |(place, steps)| {
            let floor = mean_of(study, last, |curves| floors(curves)[place]);
            format!("h {last}, E {steps}: {}", shown(floor))
        }),
    }
}

/// Losses over the sweep of local steps, for one world at the last heterogeneity.
fn by_local_steps(study: &Study, world: usize, loss: fn(&Run) -> Option<f64>) -> Vec<Option<f64>> {
    let setting = &study.setting;
    let h = setting.heterogeneities.last().copied().unwrap_or_default();
    let at =
        |&steps: &u32| study.select(h, steps, setting.clients).get(world).and_then(|run| loss(run));
    setting.local_step_sweep.iter().map(at).collect()
}

/// How much worse the last entry is than the best one; infinitely where it diverged.
fn rise(losses: &[Option<f64>]) -> f64 {
    let best = losses.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    losses.last().copied().flatten().map_or(f64::INFINITY, |last| last / best - 1.0)
}

fn worlds(study: &Study) -> std::ops::Range<usize> {
    0..study.setting.seeds as usize
}

fn full_training_drifts(study: &Study) -> Verdict {
    let full = |world| by_local_steps(study, world, |run| run.full);
    let steps = &study.setting.local_step_sweep;
    Verdict {
        shape: "with many local steps full training drifts",
        criterion: "at the largest heterogeneity the final loss of full training at the largest E lies more than \
                    0.1 % above its best over E, in every world",
        seen: worlds(study).all(|world| rise(&full(world)) > NOTABLE),
        numbers: each(steps.iter().enumerate(), |(place, steps)| {
            format!("E {steps}: {}", shown(mean(worlds(study).map(|world| full(world)[place]))))
        }),
    }
}

fn frozen_degrades_less(study: &Study) -> Verdict {
    let full = |world| by_local_steps(study, world, |run| run.full);
    let frozen = |world| by_local_steps(study, world, |run| run.frozen);
    Verdict {
        shape: "frozen degrades less with local steps than full",
        criterion: "full training drifts (as above), and the frozen run's rise over its best is smaller, in every \
                    world",
        seen: worlds(study)
            .all(|world| rise(&full(world)) > NOTABLE && rise(&frozen(world)) < rise(&full(world))),
        numbers: each(worlds(study), |world| {
            let (full, frozen) = (full(world), frozen(world));
            format!(
                "world {world}: full rises {:.2} %, frozen {:.2} % (ends {} and {})",
                100.0 * rise(&full),
                100.0 * rise(&frozen),
                shown(full.last().copied().flatten()),
                shown(frozen.last().copied().flatten()),
            )
        }),
    }
}

/// Where final loss by warm-up is lowest, the loss there, and at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Valley {
    /// The best warm-up.
    pub best: u32,
    /// Whether it beats both ends by more than a tenth of a percent.
    pub inside: bool,
    /// The loss there.
    pub lowest: f64,
    /// The loss without warm-up.
    pub never: Option<f64>,
    /// The loss when the kernel is never frozen.
    pub always: Option<f64>,
}

/// The valley of a sweep, from no warm-up to nothing but warm-up; none where every run diverged.
pub fn valley(sweep: &[(u32, Option<f64>)]) -> Option<Valley> {
    let known = sweep.iter().filter_map(|(warmup, loss)| Some((*warmup, (*loss)?)));
    let (best, lowest) = known.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (never, always) = (sweep.first()?.1, sweep.last()?.1);
    let above = |end: Option<f64>| end.is_none_or(|end| end > lowest * (1.0 + NOTABLE));
    Some(Valley { best, inside: above(never) && above(always), lowest, never, always })
}

fn valleys(study: &Study, heterogeneity: f64, cohort: usize) -> Vec<Valley> {
    let curves = curves(study, heterogeneity, cohort).into_iter();
    curves.filter_map(|curves| valley(&curves.final_by_warmup)).collect()
}

fn valley_numbers(study: &Study, levels: &[f64], cohort: usize) -> String {
    each(levels, |&h| {
        let valleys = valleys(study, h, cohort);
        let at: Vec<String> = valleys.iter().map(|valley| valley.best.to_string()).collect();
        format!(
            "h {h}: W 0 {}, best {} at W {}, W {} {}",
            shown(mean(valleys.iter().map(|valley| valley.never))),
            shown(mean(valleys.iter().map(|valley| Some(valley.lowest)))),
            at.join(" and "),
            study.setting.rounds,
            shown(mean(valleys.iter().map(|valley| valley.always))),
        )
    })
}

fn heterogeneous(study: &Study) -> Vec<f64> {
    study.setting.heterogeneities.iter().copied().filter(|&h| h > 0.0).collect()
}

fn homogeneous_falls(study: &Study) -> Verdict {
    let everyone = study.setting.clients;
    let falls = |curves: &Curves| {
        curves.final_by_warmup.windows(2).all(|pair| match (pair[0].1, pair[1].1) {
            (Some(before), Some(after)) => after <= before * (1.0 + NOTABLE),
            (None, _) | (_, None) => false,
        })
    };
    Verdict {
        shape: "without heterogeneity a longer warm-up never hurts",
        criterion: "at h 0 the final loss does not rise by more than 0.1 % from any warm-up to the next, in every \
                    world",
        seen: everywhere(study, &[0.0], falls),
        numbers: valley_numbers(study, &[0.0], everyone),
    }
}

fn warmup_has_a_minimum(study: &Study) -> Verdict {
    let levels = heterogeneous(study);
    let dips: Vec<Option<Dip>> = levels
        .iter()
        .map(|&h| {
            let runs = study.select(h, study.setting.local_steps, study.setting.clients);
            let sweeps: Option<Vec<&Sweep>> = runs.into_iter().map(Run::by_warmup).collect();
            Dip::of(&sweeps?)
        })
        .collect();
    Verdict {
        shape: "with heterogeneity the final loss by warm-up is U-shaped",
        criterion: "each world is frozen after the warm-up that was best on average in the other worlds; the 95 % \
                    intervals over worlds of what that gains against W = 0 and against never freezing both lie \
                    above zero, at every h > 0",
        seen: dips.iter().all(|dip| dip.as_ref().is_some_and(Dip::is_seen)),
        numbers: each(levels.iter().zip(&dips), |(h, dip)| match dip {
            Some(dip) => format!("h {h}: {dip}"),
            None => format!("h {h}: some world diverged"),
        }),
    }
}

fn kernel_gets_worse(study: &Study) -> Verdict {
    let levels = heterogeneous(study);
    let turn = |curves: &Curves| {
        let lowest = curves.profile.iter().copied().fold(f64::INFINITY, f64::min);
        let last = curves.profile.last().copied().unwrap_or(f64::INFINITY);
        last / lowest - 1.0
    };
    Verdict {
        shape: "drift makes the kernel itself worse after its best round",
        criterion: "full training's profile objective ends more than 0.1 % above its lowest, at every h > 0 and in \
                    every world",
        seen: everywhere(study, &levels, |curves| turn(curves) > NOTABLE),
        numbers: each(&levels, |&h| {
            let turns = mean_of(study, h, |curves| Some(turn(curves))).unwrap_or(f64::NAN);
            format!("h {h}: ends {:.2} % above its lowest", 100.0 * turns)
        }),
    }
}

fn best_warmup_shortens(study: &Study) -> Verdict {
    let everyone = study.setting.clients;
    let best = |h: f64| {
        mean(valleys(study, h, everyone).iter().map(|valley| Some(f64::from(valley.best))))
    };
    let levels = &study.setting.heterogeneities;
    let (first, last) =
        (levels.first().copied().and_then(best), levels.last().copied().and_then(best));
    Verdict {
        shape: "the more heterogeneous the clients, the shorter the best warm-up",
        criterion: "the mean best warm-up does not rise with heterogeneity, and is shorter at the largest than at h 0",
        seen: levels.windows(2).all(|pair| best(pair[1]) <= best(pair[0])) && last < first,
        numbers: each(levels, |&h| {
            best(h).map_or("no run ended".to_owned(), |best| format!("h {h}: W {best:.0}"))
        }),
    }
}

fn share_raises_losses(study: &Study) -> Verdict {
    let setting = &study.setting;
    let levels = heterogeneous(study);
    let lowest = |h: f64, cohort: usize| {
        mean(valleys(study, h, cohort).iter().map(|valley| Some(valley.lowest)))
    };
    Verdict {
        shape: "a share of the clients per round raises the curves",
        criterion: "the lowest final loss over warm-ups is higher with a share than with everyone, at every h > 0 \
                    and in every world",
        seen: with_a_share(study, &levels, |part, all| part.lowest > all.lowest),
        numbers: each(&levels, |&h| {
            let (all, part) = (lowest(h, setting.clients), lowest(h, setting.cohort));
            format!("h {h}: {} -> {}", shown(all), shown(part))
        }),
    }
}

fn share_keeps_the_shape(study: &Study) -> Verdict {
    let setting = &study.setting;
    Verdict {
        shape: "a share of the clients per round keeps the shape",
        criterion: "the minimum over warm-ups is inside (or at an end) with a share exactly where it is so with \
                    everyone, at every h and in every world",
        seen: with_a_share(study, &setting.heterogeneities, |part, all| part.inside == all.inside),
        numbers: valley_numbers(study, &setting.heterogeneities, setting.cohort),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valley_needs_two_higher_ends_and_a_diverged_end_is_high() {
        let inside = |losses: &[Option<f64>]| {
            let sweep: Vec<_> = (0..).zip(losses.iter().copied()).collect();
            valley(&sweep).map(|valley| (valley.best, valley.inside))
        };
        assert_eq!(inside(&[Some(3.0), Some(1.0), Some(2.0)]), Some((1, true)));
        assert_eq!(inside(&[Some(3.0), Some(1.0), None]), Some((1, true)));
        assert_eq!(inside(&[Some(3.0), Some(1.0), Some(1.0005)]), Some((1, false)), "too shallow");
        assert_eq!(inside(&[Some(3.0), Some(2.0), Some(1.0)]), Some((2, false)));
        assert_eq!(inside(&[None, None]), None);
    }

    #[test]
    fn what_left_for_infinity_is_a_word_and_not_fifty_digits() {
        assert_eq!([None, Some(5e45), Some(0.25)].map(shown), ["diverged", "diverged", "0.2500"]);
    }

    #[test]
    fn a_rise_is_measured_from_the_best_and_divergence_is_the_worst() {
        assert!((rise(&[Some(2.0), Some(1.0), Some(1.5)]) - 0.5).abs() < 1e-12);
        assert_eq!(rise(&[Some(2.0), Some(1.0)]), 0.0);
        assert_eq!(rise(&[Some(2.0), None]), f64::INFINITY);
        assert_eq!(mean([Some(1.0), None]), None);
        assert!(rising(&[Some(1.0), Some(2.0)]) && !rising(&[Some(1.0), None]));
    }
}
