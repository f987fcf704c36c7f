//! Privacy loss distributions: the accountant whose epsilon is reported.
//!
//! One step is laid on a grid that can only overstate ([`grid`]), leaned towards the losses that
//! decide ([`tilt`]), and composed with itself by powers of its Fourier transform ([`composed`]), whose rounding is
//! bounded and added. What falls outside the [`window`] is bounded and counted as lost. Every grid gives an upper bound, and its error falls
//! with the square of its width; so two coarse grids say how fine the last one must be, and stopping
//! early would cost tightness, never safety.

mod composed;
mod fourier;
mod grid;
mod tilt;
mod window;

use crate::phase::Weighted;
use composed::Composed;
use grid::{Grid, Precision};
use tilt::Tilted;
use window::{Lean, OUTSIDE, Question, Window};

/// Equal steps.
#[derive(Clone, Debug)]
pub(crate) struct EqualSteps {
    /// The worst pairs of one step, one of which is chosen in public.
    pub pairs: Vec<Weighted>,
    /// How many steps.
    pub steps: u64,
}

/// How far above its limit an epsilon may be: four ten-thousandths of it, and where it is large, no
/// more than 8e-4 or, where that would take seconds, two hundred-thousandths of it. Beyond some hundreds it
/// protects nobody, and a thousandth of it will do.
fn allowed(epsilon: f64) -> f64 {
    let share = if epsilon > 500.0 { 1e-3 } else { 2e-5 };
    (4e-4 * epsilon).min(8e-4).max(share * epsilon)
}

/// Epsilon that no grid is asked for: its window would take minutes, and it protects nobody.
const HOPELESS: f64 = 1e3;

/// The share of delta that is set aside for the rule of integration.
const ROUNDING: f64 = 1e-6;

/// The share of delta that is set aside for the rounding of one step's masses: exponentials of sums of logarithms up
/// to about 700.
const ROUNDING_OF_STEP: f64 = 4e-13;

/// The least upper bound of epsilon that holds in every direction: within a thousandth of the truth,
/// never below it. Each direction lists what a unit's change does to each phase.
/// Infinite where epsilon is beyond all use.
pub(crate) fn epsilon(directions: &[Vec<EqualSteps>], delta: f64) -> f64 {
    let least = directions.iter().map(|parts| certain(parts, delta)).fold(0.0, f64::max);
    if least > HOPELESS {
        return f64::INFINITY;
    }
    let mut searches: Vec<Search<'_>> =
        directions.iter().map(|parts| Search::begin(parts, delta)).collect();
    // All bounds hold, so only the largest need be tight.
    while let Some(worst) = searches.iter_mut().max_by(|a, b| a.bound.total_cmp(&b.bound)) {
        if worst.ended {
            // Below what is certain no bound can be: arithmetic failed.
            return if worst.bound < least { f64::INFINITY } else { worst.bound };
        }
        worst.refine();
    }
    0.0
}

/// What epsilon surely is at least, by Cantelli's inequality: a loss is above its mean less two deviations with
/// a chance of 4/5, and delta at an epsilon that is 1 below a loss is at least 1 - 1/e of that loss's chance.
fn certain(parts: &[EqualSteps], delta: f64) -> f64 {
    const LEAST_DELTA: f64 = 0.8 * 0.63;
    if delta >= LEAST_DELTA {
        return 0.0;
    }
    let (mean, variance, _) = moments(parts);
    mean - 2.0 * variance.sqrt() - 1.0
}

/// Mean and variance of the loss of all steps, and how many there are.
fn moments(parts: &[EqualSteps]) -> (f64, f64, f64) {
    let (mut mean, mut variance, mut steps) = (0.0, 0.0, 0.0);
    for part in parts {
        let count = part.steps as f64;
        let (mut first, mut second) = (0.0, 0.0);
        for Weighted { pair, weight } in &part.pairs {
            let (m, v) = pair.moments();
            first += weight * m;
            second += weight * (v + m * m);
        }
        mean += count * first;
        variance += count * (second - first * first).max(0.0);
        steps += count;
    }
    (mean, variance, steps)
}

/// One direction, refined as far as it needs to be.
struct Search<'a> {
    parts: &'a [EqualSteps],
    delta: f64,
    width: f64,
    /// The least bound so far.
    bound: f64,
    /// How far it is above its limit, as far as known.
    error: f64,
    /// How far to lean, once that is known.
    lean: Option<Lean>,
    ended: bool,
}

impl<'a> Search<'a> {
    /// Two coarse grids.
    fn begin(parts: &'a [EqualSteps], delta: f64) -> Self {
        /// The first grid, over the one that a normal loss would need.
        const COARSE: f64 = 8.0;
        let width = COARSE * needed_width(parts, delta);
        let mut search = Self {
            parts,
            delta,
            width,
            bound: f64::INFINITY,
            error: f64::INFINITY,
            lean: None,
            ended: false,
        };
        // A grid or a window may be too long; then a coarser one has to do.
        for _ in 0..60 {
            if search.answer(search.width) {
                break;
            }
            search.width *= 2.0;
        }
        search.ended = search.bound.is_infinite();
        search
    }

    /// One finer grid.
    fn refine(&mut self) {
        let wished = (0.7 * allowed(self.bound) / self.error).sqrt();
        let ratio = if self.error.is_finite() { wished.clamp(0.1, 0.7) } else { 0.5 };
        let before = self.bound;
        if self.width <= 0.0 || !self.answer(ratio * self.width) {
            self.ended = true;
            return;
        }
        self.width *= ratio;
        self.error = (before - self.bound).max(0.0) / (ratio.powi(-2) - 1.0);
        self.ended = self.error <= allowed(self.bound);
    }

    /// Asks the grid of this width; false if it takes too much memory.
    fn answer(&mut self, width: f64) -> bool {
        let question = Question { delta: self.delta, width, guess: self.bound };
        let found = match self.lean {
            Some(lean) => on_grid(self.parts, &question, Some(lean)),
            None => self.lean_over(question),
        };
        let Some((found, lean)) = found else { return false };
        self.lean = Some(lean);
        self.bound = self.bound.min(found);
        true
    }

    /// Finds out where epsilon lies, hence how far to lean. Where losses have a heavy tail, the first
    /// guess is far off, and so is the tilt, which then costs precision; each answer is a better guess.
    fn lean_over(&self, question: Question) -> Option<(f64, Lean)> {
        let rough = Question { width: ROUGH * question.width, ..question };
        let (mut found, mut lean) = on_grid(self.parts, &rough, None)?;
        for _ in 0..MOST_GUESSES {
            if found <= 0.0 {
                break;
            }
            let (again, leaned) =
                on_grid(self.parts, &Question { guess: found, ..question }, None)?;
            // An infinite answer after an infinite one is no better guess.
            let is_better = again < 0.98 * found;
            (found, lean) = (found.min(again), leaned);
            if !is_better {
                break;
            }
        }
        Some((found, lean))
    }
}

/// The first guess of all is made on a grid so much coarser than the first one.
const ROUGH: f64 = 4.0;

/// Guesses of epsilon after the first: each at least a fiftieth better than the one before.
const MOST_GUESSES: usize = 40;

/// The width that a normal loss would need.
fn needed_width(parts: &[EqualSteps], delta: f64) -> f64 {
    let (mean, variance, steps) = moments(parts);
    // Splitting a bin of width w adds at most w*w/6 to a step's variance and half of that to its mean.
    let guess = mean.abs() + (variance * -2.0 * delta.ln()).sqrt();
    (12.0 * allowed(guess) / (steps * (1.0 + guess / variance))).sqrt()
}

/// Epsilon on one grid, and how far it leant; none if it takes too much memory.
fn on_grid(parts: &[EqualSteps], question: &Question, lean: Option<Lean>) -> Option<(f64, Lean)> {
    let Question { delta, width, .. } = *question;
    if !(width > 0.0 && width.is_finite()) {
        return None;
    }
    let steps: f64 = parts.iter().map(|part| part.steps as f64).sum();
    let precision = Precision { width, tail: OUTSIDE * delta / steps };
    let mut phases = Vec::with_capacity(parts.len());
    for part in parts {
        phases.push(Tilted::new(Grid::of(&part.pairs, precision)?, part.steps));
    }
    let lean = lean.unwrap_or_else(|| Lean::towards(&phases, question));
    let window = Window::over(&phases, &lean, question);
    let length = window.length()?;
    let composed = Composed::of(&phases, lean.lambda, length);
    let infinite: f64 = phases.iter().map(Tilted::infinite).sum();
    let share = 1.0 - ROUNDING - OUTSIDE - steps * ROUNDING_OF_STEP;
    Some((window.crossing(&composed, delta * share - infinite).max(0.0), lean))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gaussian;
    use crate::pair::{Change, Pair};

    fn steps(pair: Pair, steps: u64) -> Vec<EqualSteps> {
        vec![EqualSteps { pairs: vec![Weighted { pair, weight: 1.0 }], steps }]
    }

    #[test]
    fn composed_gaussian_steps_are_never_below_their_closed_form_and_close_to_it() {
        for (sigma, count, delta) in [
            (1.0, 1, 1e-5),
            (5.0, 100, 1e-5),
            (100.0, 10_000, 1e-9),
            (3_000.0, 100_000, 1e-5),
            (100_000.0, 100, 1e-6),
            (2.0, 1_000, 1e-5),
        ] {
            let truth = gaussian::epsilon((count as f64).sqrt() / sigma, delta);
            let directions = [
                steps(Pair { change: Change::Remove, rate: 1.0, sigma }, count),
                steps(Pair { change: Change::Add, rate: 1.0, sigma }, count),
            ];
            let found = epsilon(&directions, delta);
            assert!(found >= truth, "{sigma} {count}: found {found}, truly {truth}");
            assert!(found <= truth * 1.0005, "{sigma} {count}: found {found}, truly {truth}");
        }
    }

    #[test]
    fn where_arithmetic_ends_the_answer_is_never_small() {
        let hopeless = |rate: f64, sigma: f64, count: u64| {
            let directions = [
                steps(Pair { change: Change::Remove, rate, sigma }, count),
                steps(Pair { change: Change::Add, rate, sigma }, count),
            ];
            epsilon(&directions, 1e-5)
        };
        // About 5e7, 1.4e5 and 17: a grid that is too coarse has widths whose exponential is no number.
        assert!(hopeless(0.9, 0.3, 10_000_000) > 4e7);
        assert!(hopeless(0.9, 0.06, 1000) > 1.2e5);
        assert!((15.0..20.0).contains(&hopeless(1e-4, 0.2, 100)));
        let wide = Grid::of(
            &[Weighted {
                pair: Pair { change: Change::Remove, rate: 0.5, sigma: 0.02 },
                weight: 1.0,
            }],
            Precision { width: 2000.0, tail: 1e-12 },
        );
        let masses = wide.expect("a small grid").masses;
        assert!((masses.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{masses:?}");
    }

    #[test]
    fn finer_grids_approach_their_limit_from_above() {
        let pair = Pair { change: Change::Remove, rate: 0.01, sigma: 1.0 };
        let parts = steps(pair, 1000);
        let on = |width: f64| {
            let question = Question { delta: 1e-5, width, guess: 1.83 };
            on_grid(&parts, &question, None).expect("a small grid").0
        };
        let found = [8e-3, 4e-3, 2e-3, 1e-3, 5e-4].map(on);
        assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
        // Each halving takes away three quarters of the error.
        let ratio = (found[2] - found[3]) / (found[3] - found[4]);
        assert!((3.5..4.5).contains(&ratio), "{ratio}");
    }
}
