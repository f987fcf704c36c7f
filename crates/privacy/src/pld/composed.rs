//! The leaned loss of all steps, and how far rounding may have moved it.
//!
//! The transform of a step's masses is wrong by at most `g` ([`Fourier::error`]: they sum to one), so its power of m steps
//! by at most `m a^m (g/a + 3u)` with a the found magnitude and g, and u the unit of rounding: a product of m factors, each
//! of which may be off, and m roundings. The transform back averages that over the frequencies and adds its own. Whatever
//! rests on the composed masses takes each of them for larger by the whole error: a bound where delta is
//! far below what a transform resolves, and nothing to speak of where the lean is right.

use super::fourier::{Complex, Fourier};
use super::tilt::Tilted;

/// Masses of the leaned loss around a circle.
pub struct Composed {
    /// One for each place.
    pub masses: Vec<f64>,
    /// What each may be wrong by.
    pub error: f64,
}

impl Composed {
    /// All phases together, leaned by `lambda`, on a circle of so many places.
    pub fn of(phases: &[Tilted], lambda: f64, length: usize) -> Self {
        const UNIT: f64 = 0.5 * f64::EPSILON;
        /// What was left out, and what underflows.
        const NOTHING: f64 = 1e-280;
        let fourier = Fourier::new(length);
        let places = length / 2 + 1;
        let mut spectrum = vec![Complex::ONE; places];
        // The logarithm of the most that the product can be, and the sum of the shares by which factors are off.
        let (mut logs, mut shares) = (vec![0.0; places], vec![0.0; places]);
        for phase in phases {
            let masses = phase.around(lambda, length);
            let wrong = fourier.error() * masses.iter().sum::<f64>() + NOTHING;
            let steps = phase.count;
            let factors = fourier.forward(&masses);
            for (place, factor) in factors.into_iter().enumerate() {
                let most = factor.magnitude() + wrong;
                logs[place] += steps as f64 * most.ln();
                shares[place] += steps as f64 * (wrong / most + 3.0 * UNIT);
                spectrum[place] = spectrum[place] * factor.power(steps);
            }
        }
        let composed: f64 = logs.iter().zip(&shares).map(|(log, share)| log.exp() * share).sum();
        let whole: f64 = spectrum.iter().map(|value| value.magnitude()).sum();
        // Half of the spectrum stands for all of it.
        let mean = 2.0 / length as f64;
        let error = mean * (composed + fourier.error() * whole) + NOTHING;
        Self { masses: fourier.backward(&spectrum), error: 1.01 * error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::{Change, Pair};
    use crate::phase::Weighted;
    use crate::pld::grid::{Grid, Precision};

    #[test]
    fn the_error_is_at_least_what_rounding_did_and_not_much_more() {
        // Places that cannot be reached should be empty: what stands there is rounding.
        let pair = Pair { change: Change::Add, rate: 0.2, sigma: 2.0 };
        let precision = Precision { width: 1e-3, tail: 1e-12 };
        let grid = Grid::of(&[Weighted { pair, weight: 1.0 }], precision).unwrap();
        for steps in [1, 20, 3_000] {
            let reach = steps as usize * grid.masses.len();
            let length = (2 * reach).next_power_of_two().min(1 << 20);
            let composed = Composed::of(&[Tilted::new(grid.clone(), steps)], 0.5, length);
            let peak = composed.masses.iter().copied().fold(0.0, f64::max);
            let below = composed.masses.iter().copied().fold(0.0, f64::min);
            assert!(-below <= composed.error, "{steps}: {below} {}", composed.error);
            assert!(composed.error < 1e-9 * peak, "{steps}: {} {peak}", composed.error);
        }
    }
}
