//! Distributions leaned towards the losses that decide.
//!
//! Epsilon at a delta of 1e-9 depends on losses that hardly ever happen, and a Fourier transform is
//! exact only in proportion to what happens often. Multiplying each mass by exp(lambda * loss) makes
//! the deciding losses the usual ones, commutes with composition, and is undone afterwards. So the
//! result has the same relative precision at every delta, and its window can be narrow. The same
//! sums, K(lambda), bound every tail (Chernoff), so nothing outside the window goes uncounted.

use super::grid::Grid;

/// Equal steps on a grid.
pub struct Tilted {
    grid: Grid,
    logs: Vec<f64>,
    pub count: u64,
    steps: f64,
}

/// The logarithm of a distribution's exponential moment, and two derivatives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cumulants {
    /// log E[exp(lambda * loss)].
    pub value: f64,
    /// Mean of the loss in the leaned distribution.
    pub mean: f64,
}

impl Tilted {
    /// Takes the logarithms once.
    pub fn new(grid: Grid, steps: u64) -> Self {
        let logs = grid.masses.iter().map(|mass| mass.ln()).collect();
        Self { grid, logs, count: steps, steps: steps as f64 }
    }

    /// K and its derivative over all steps.
    pub fn cumulants(&self, lambda: f64) -> Cumulants {
        let per_bin = lambda * self.grid.width;
        let start = lambda * self.loss(0);
        let log = |index: usize, log: f64| log + start + per_bin * index as f64;
        let mut largest = f64::NEG_INFINITY;
        for (index, value) in self.logs.iter().enumerate() {
            largest = largest.max(log(index, *value));
        }
        let (mut mass, mut first) = (0.0, 0.0);
        for (index, value) in self.logs.iter().enumerate() {
            let exponent = log(index, *value) - largest;
            if exponent > -45.0 {
                let share = exponent.exp();
                mass += share;
                first += share * index as f64;
            }
        }
        let mean = self.loss(0) + self.grid.width * first / mass;
        Cumulants { value: self.steps * (largest + mass.ln()), mean: self.steps * mean }
    }

    /// The leaned masses of one step, laid around a circle of `length` bins.
    pub fn around(&self, lambda: f64, length: usize) -> Vec<f64> {
        let norm = self.cumulants(lambda).value / self.steps;
        let mut circle = vec![0.0; length];
        let start = self.grid.first.rem_euclid(length.cast_signed() as i64) as usize;
        for (index, log) in self.logs.iter().enumerate() {
            let exponent = log + lambda * self.loss(index) - norm;
            if exponent > -700.0 {
                circle[(start + index) % length] += exponent.exp();
            }
        }
        circle
    }

    /// Mass without any bound, over all steps.
    pub fn infinite(&self) -> f64 {
        self.steps * self.grid.infinite
    }

    fn loss(&self, index: usize) -> f64 {
        (self.grid.first as f64 + index as f64) * self.grid.width
    }
}

/// K of several phases together.
pub fn total(phases: &[Tilted], lambda: f64) -> Cumulants {
    phases.iter().map(|phase| phase.cumulants(lambda)).fold(Cumulants::default(), |sum, one| {
        Cumulants { value: sum.value + one.value, mean: sum.mean + one.mean }
    })
}
