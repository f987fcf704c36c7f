//! What a server has seen of one line: its noised states, once or several times.
//!
//! The noise is the client's own ([`Perturbation`]), so an attack meets what a run sends. A server
//! that saw the same line with fresh noise each time takes the mean; with cached noise every sight is
//! the same and the mean changes nothing.

use fedra_client::{Occasion, Perturbation};
use fedra_engine::NoiseDraw;
use fedra_seed::Seed;

/// Noised states of one line.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Which line, among those that are attacked.
    pub line: usize,
    /// The rows, the mean of all sights.
    pub rows: Vec<f32>,
    width: usize,
    pub(crate) perturbation: Perturbation,
    /// How many independent draws the mean is of.
    pub(crate) draws: u32,
}

impl Observation {
    /// Sends a line's states through the noise as often as the server sees them.
    pub fn of(
        (line, states): (usize, &[f32]),
        width: usize,
        perturbation: Perturbation,
        views: u32,
    ) -> Self {
        let draws = match perturbation.noise.draw {
            NoiseDraw::Fresh => views.max(1),
            NoiseDraw::Cached => 1,
        };
        let mut sums = vec![0.0_f64; states.len()];
        for view in 0..u64::from(draws) {
            let mut rows = states.to_vec();
            let occasion = Occasion {
                message: Seed(view).with(line as u64),
                examples: &[line as u64],
                lengths: &[states.len() / width],
            };
            perturbation.hidden((&mut rows, width), occasion);
            sums.iter_mut().zip(&rows).for_each(|(sum, row)| *sum += f64::from(*row));
        }
        let rows = sums.into_iter().map(|sum| (sum / f64::from(draws)) as f32).collect();
        Self { line, rows, width, perturbation, draws }
    }

    /// How many tokens it has.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() / self.width
    }

    /// The row of a token.
    pub(crate) fn row(&self, position: usize) -> &[f32] {
        &self.rows[position * self.width..(position + 1) * self.width]
    }

    /// How likely the row at a position is, had the state been this one: the logarithm of the
    /// Gaussian density, up to a constant.
    ///
    /// Noise may grow with the state, so its deviation is that of the candidate. A millionth of the
    /// row's mean square is added to its variance: without noise the nearest state then wins, and
    /// rounding does not decide.
    pub(crate) fn log_likelihood(&self, position: usize, state: &[f32]) -> f64 {
        const ROUNDING: f64 = 1e-6;
        let row = self.row(position);
        let (factor, deviation) = self.perturbation.measure(state);
        let (mut distance, mut squares) = (0.0_f32, 0.0_f32);
        for (seen, state) in row.iter().zip(state) {
            let difference = seen - factor * state;
            distance += difference * difference;
            squares += seen * seen;
        }
        let width = self.width as f64;
        let floor = ROUNDING * f64::from(squares) / width + f64::from(f32::MIN_POSITIVE);
        let variance = deviation * deviation / f64::from(self.draws) + floor;
        -0.5 * (width * variance.ln() + f64::from(distance) / variance)
    }
}
