//! Where the composed loss is looked at, and how far it leans.
//!
//! The window holds epsilon and all that weighs on it. What lies outside is bounded by the sums that
//! [`super::tilt`] computes anyway and is counted as lost.

use super::composed::Composed;
use super::tilt::{Cumulants, Tilted, total};

/// The share of delta that tails outside grid and window may have.
pub const OUTSIDE: f64 = 1e-4;

/// The share of the leaned mass outside the window. It reappears at the window's other end, where it
/// can only add to delta.
const LEANED: f64 = 1e-7;

/// The longest window.
const MOST_PLACES: f64 = 4_194_304.0;

/// What is asked of one grid.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The delta at which epsilon is asked for.
    pub delta: f64,
    /// The width of a bin.
    pub width: f64,
    /// Epsilon as far as it is known; infinite at first.
    pub guess: f64,
}

/// How far the distribution leans, and the tilts that bound its tails best. Any numbers are safe, so
/// those found on a coarse grid serve the finer ones too.
#[derive(Clone, Copy, Debug)]
pub struct Lean {
    /// The tilt of the composed distribution.
    pub lambda: f64,
    /// Bounds what lies above the window.
    above: f64,
    /// Beyond `lambda`: bounds the leaned mass above.
    more: f64,
    /// Below `lambda`: bounds the leaned mass below.
    less: f64,
}

impl Lean {
    /// Towards the losses around epsilon.
    pub fn towards(phases: &[Tilted], question: &Question) -> Self {
        let Question { delta, width, guess } = *question;
        let confidence = -delta.ln();
        let bounding = deciding(phases, width, |lambda, Cumulants { value, mean }| {
            lambda * mean - value >= confidence && mean >= 0.0
        });
        let lambda = if guess.is_finite() {
            let there = deciding(phases, width, |_, Cumulants { mean, .. }| mean >= guess);
            // Less than that is precise enough, unless delta is tiny, and rare large losses weigh less.
            let share = (1.0 - 2.0 / confidence.sqrt()).max(0.6);
            (share * there).clamp(1e-3 * bounding, bounding)
        } else {
            bounding
        };
        // The best of a few is close to the best of all.
        let best = |factors: &[f64], scale: f64, bound: &dyn Fn(f64) -> f64| {
            let tilts = factors.iter().map(|factor| factor * scale);
            let rated = tilts.map(|tilt| (bound(tilt), tilt));
            let least = rated.fold((f64::INFINITY, scale), |a, b| if b.0 < a.0 { b } else { a });
            least.1
        };
        let cumulant = total(phases, lambda).value;
        Self {
            lambda,
            above: best(&[1.0, 1.1, 1.25, 1.5, 2.0], bounding, &|tilt| {
                lost_above(phases, tilt, delta)
            }),
            more: best(&[0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0], bounding, &|more| {
                leaned_beyond(total(phases, lambda + more).value - cumulant, more)
            }),
            less: best(&[0.1, 0.2, 0.35, 0.5, 0.75, 1.0], lambda, &|less| {
                leaned_beyond(total(phases, lambda - less).value - cumulant, less)
            }),
        }
    }
}

/// A loss above which less than its share of delta lies (Chernoff).
fn lost_above(phases: &[Tilted], tilt: f64, delta: f64) -> f64 {
    (total(phases, tilt).value - delta.ln() - OUTSIDE.ln()) / tilt
}

/// A loss beyond which little leaned mass lies, up or down; `growth` is that of K over `tilt`.
fn leaned_beyond(growth: f64, tilt: f64) -> f64 {
    (growth - LEANED.ln()) / tilt
}

/// Where the composed loss is looked at.
pub struct Window {
    lambda: f64,
    /// K at lambda.
    cumulant: f64,
    width: f64,
    /// In widths.
    low: i64,
    high: i64,
}

impl Window {
    /// Wide enough for all that decides.
    pub fn over(phases: &[Tilted], lean: &Lean, question: &Question) -> Self {
        let Question { delta, width, guess } = *question;
        let Lean { lambda, above, more, less } = *lean;
        let cumulant = total(phases, lambda).value;
        let lost_above = lost_above(phases, above, delta);
        // Leaned mass outside comes back at the other end. It does no harm before it reaches epsilon.
        let leaned_above = leaned_beyond(total(phases, lambda + more).value - cumulant, more);
        let leaned_below = -leaned_beyond(total(phases, lambda - less).value - cumulant, less);
        let epsilon = if guess.is_finite() { guess.min(lost_above) } else { lost_above };
        let low = (leaned_below + lost_above - epsilon).min(0.0);
        let margin = if guess.is_finite() { epsilon - low } else { 0.0 };
        let high = lost_above.max(leaned_above - margin).max(0.0);
        // However far off the tilt is, epsilon lies between 0 and the upper end.
        let (low, high) = ((low / width).floor() as i64, (high / width).ceil() as i64);
        Self { lambda, cumulant, width, low, high }
    }

    /// How many places it has, a power of two; none if that is too many.
    pub fn length(&self) -> Option<usize> {
        let places = (self.high - self.low) as f64 + 2.0;
        (places <= MOST_PLACES).then(|| (places as usize).max(8).next_power_of_two())
    }

    /// The epsilon at which delta of the composed, leaned masses falls to `target`; infinite where masses are
    /// no numbers, or more than the target may be worse than any number.
    pub fn crossing(&self, composed: &Composed, target: f64) -> f64 {
        /// More than this in one place is more than delta, whatever the places before it add.
        const PLENTY: f64 = 1e200;
        let Composed { masses, error } = composed;
        if target.is_nan() || target <= 0.0 || !error.is_finite() {
            return f64::INFINITY;
        }
        let length = masses.len().cast_signed() as i64;
        let shrink = (-self.width).exp();
        let scale = self.cumulant - target.ln();
        // P-mass above a loss, and Q-mass above it times the loss's exponential; delta is 1.
        let (mut mass, mut lower) = (0.0, 0.0);
        for index in (self.low..self.low + length).rev() {
            let loss = index as f64 * self.width;
            // Rounding may have left a place too low.
            let leaned = masses[index.rem_euclid(length) as usize] + error;
            if leaned.is_nan() {
                return f64::INFINITY;
            }
            let weight =
                if leaned > 0.0 { leaned * (scale - self.lambda * loss).exp() } else { 0.0 };
            if weight > PLENTY {
                return loss;
            }
            mass += weight;
            lower = (lower + weight) * shrink;
            if mass - lower >= 1.0 {
                let within = loss - self.width + ((mass - 1.0) / lower).ln();
                return within.min(loss);
            }
        }
        self.low as f64 * self.width
    }
}

/// The least tilt that is enough, to about a tenth of it. `enough` must stay true as the tilt grows.
/// Any tilt would be as safe, so a coarse search will do.
fn deciding(phases: &[Tilted], width: f64, enough: impl Fn(f64, Cumulants) -> bool) -> f64 {
    let enough = |lambda: f64| enough(lambda, total(phases, lambda));
    // Beyond this, leaning tells only two neighbouring places apart.
    let most = 30.0 / width;
    let mut high = 1.0_f64.min(most);
    if enough(high) {
        while high > 1e-9 && enough(0.5 * high) {
            high *= 0.5;
        }
    } else {
        while high < most && !enough(high) {
            high = (2.0 * high).min(most);
        }
    }
    let mut low = 0.5 * high;
    for _ in 0..3 {
        let middle = (low * high).sqrt();
        if enough(middle) { high = middle } else { low = middle }
    }
    high
}
