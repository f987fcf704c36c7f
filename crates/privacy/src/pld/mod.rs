//! Privacy loss distributions: the accountant whose epsilon is reported.
//!
//! One step is laid on a grid that can only overstate ([`grid`]), leaned towards the losses that
//! decide ([`tilt`]), and composed with itself by powers of its Fourier transform. What falls outside
//! the [`window`] is bounded and counted as lost. Every grid gives an upper bound, and its error falls
//! with the square of its width; so two coarse grids say how fine the last one must be, and stopping
//! early would cost tightness, never safety.

mod fourier;
mod grid;
mod tilt;
mod window;

use crate::composition::Weighted;
use fourier::{Complex, Fourier};
use grid::{Grid, Precision};
use tilt::Tilted;
use window::{OUTSIDE, Question, Window};

/// Equal steps.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The worst pairs of one step, one of which is chosen in public.
    pub pairs: Vec<Weighted>,
    /// How many steps.
    pub steps: u64,
}

/// Refining ends when epsilon is at most this share above its limit.
const TIGHT: f64 = 2e-4;

/// The share of delta that is set aside for rounding and for the rule of integration.
const ROUNDING: f64 = 1e-6;

/// The least upper bound of epsilon that holds in every direction: within a thousandth of the truth,
/// never below it. Each direction lists what a unit's change does to each phase.
pub(crate) fn epsilon(directions: &[Vec<Part>], delta: f64) -> f64 {
    let mut searches: Vec<Search<'_>> =
        directions.iter().map(|parts| Search::begin(parts, delta)).collect();
    // All bounds hold, so only the largest need be tight.
    while let Some(worst) = searches.iter_mut().max_by(|a, b| a.bound.total_cmp(&b.bound)) {
        if worst.ended {
            return worst.bound;
        }
        worst.refine();
    }
    0.0
}

/// One direction, refined as far as it needs to be.
struct Search<'a> {
    parts: &'a [Part],
    delta: f64,
    width: f64,
    /// The least bound so far.
    bound: f64,
    /// How far it is above its limit, as far as known.
    error: f64,
    ended: bool,
}

impl<'a> Search<'a> {
    /// Two coarse grids.
    fn begin(parts: &'a [Part], delta: f64) -> Self {
        /// The first grid, over the one that a normal loss would need.
        const COARSE: f64 = 8.0;
        let width = COARSE * needed_width(parts, delta);
        let mut search =
            Self { parts, delta, width, bound: f64::INFINITY, error: f64::INFINITY, ended: false };
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
        let wished = (0.7 * TIGHT * self.bound / self.error).sqrt();
        let ratio = if self.error.is_finite() { wished.clamp(0.1, 0.7) } else { 0.5 };
        let before = self.bound;
        if self.width <= 0.0 || !self.answer(ratio * self.width) {
            self.ended = true;
            return;
        }
        self.width *= ratio;
        self.error = (before - self.bound).max(0.0) / (ratio.powi(-2) - 1.0);
        self.ended = self.error <= TIGHT * self.bound;
    }

    /// Asks the grid of this width; false if it takes too much memory.
    fn answer(&mut self, width: f64) -> bool {
        let question = Question { delta: self.delta, width, guess: self.bound };
        let Some(mut found) = on_grid(self.parts, &question) else { return false };
        // Where losses have a heavy tail, the first guess of where epsilon lies is far off, and so is
        // the tilt, which then costs precision. Each answer is a better guess.
        while self.bound.is_infinite() && found > 0.0 {
            let Some(again) = on_grid(self.parts, &Question { guess: found, ..question }) else {
                break;
            };
            let settled = again > 0.98 * found;
            found = found.min(again);
            if settled {
                break;
            }
        }
        self.bound = self.bound.min(found);
        true
    }
}

/// The width that a normal loss would need.
fn needed_width(parts: &[Part], delta: f64) -> f64 {
    let (mut mean, mut variance, mut steps) = (0.0, 0.0, 0.0);
    for part in parts {
        let count = part.steps as f64;
        for Weighted { pair, weight } in &part.pairs {
            let (m, v) = pair.moments();
            mean += count * weight * m;
            variance += count * weight * v;
        }
        steps += count;
    }
    // Splitting a bin of width w adds at most w*w/6 to a step's variance and half of that to its mean.
    let guess = mean.abs() + (variance * -2.0 * delta.ln()).sqrt();
    (12.0 * TIGHT * guess / (steps * (1.0 + guess / variance))).sqrt()
}

/// Epsilon on one grid; none if it takes too much memory.
fn on_grid(parts: &[Part], question: &Question) -> Option<f64> {
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
    let window = Window::over(&phases, question);
    let length = window.length()?;
    let fourier = Fourier::new(length);
    let mut spectrum = vec![Complex::ONE; length / 2 + 1];
    for (phase, part) in phases.iter().zip(parts) {
        let one = fourier.forward(&phase.around(window.lambda, length));
        for (product, factor) in spectrum.iter_mut().zip(one) {
            *product = *product * factor.power(part.steps);
        }
    }
    let composed = fourier.backward(&spectrum);
    let infinite: f64 = phases.iter().map(Tilted::infinite).sum();
    let target = delta * (1.0 - ROUNDING - OUTSIDE) - infinite;
    Some(window.crossing(&composed, target).max(0.0))
}
