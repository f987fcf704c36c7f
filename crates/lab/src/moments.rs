//! All that the value block needs to know of a client's data.

use crate::client::Client;
use crate::matrix::Matrix;
use crate::network::{Network, Weights};

/// Second moments at a kernel: what is left of the data once query and key are frozen.
#[derive(Clone, Debug)]
pub struct Moments {
    /// `S = E Z^T Z`.
    pub square: Matrix,
    /// `R = E Z^T Y`.
    pub cross: Matrix,
    /// `E |Y|^2`.
    pub energy: f64,
}

impl Moments {
    /// A client's moments at a kernel.
    pub fn of(network: &Network, weights: &Weights, client: &Client) -> Self {
        let features = network.features(weights, client);
        let share = 1.0 / features.rows() as f64;
        Self {
            square: features.transposed_times(&features).scaled(share),
            cross: features.transposed_times(&client.targets).scaled(share),
            energy: client.targets.dot(&client.targets) * share,
        }
    }

    /// The mean over clients, folded in their order.
    pub fn pooled(parts: &[(f64, Self)]) -> Self {
        let (_, first) = parts.first().expect("a federation has clients");
        let mut pooled = Self {
            square: Matrix::zeros(first.square.rows(), first.square.columns()),
            cross: Matrix::zeros(first.cross.rows(), first.cross.columns()),
            energy: 0.0,
        };
        for (weight, part) in parts {
            pooled.square.add_scaled(*weight, &part.square);
            pooled.cross.add_scaled(*weight, &part.cross);
            pooled.energy += weight * part.energy;
        }
        pooled
    }

    /// `V* = (S + lam I)^-1 R`, the best value block; none where `S + lam I` is singular.
    pub fn best_value(&self, ridge: f64) -> Option<Matrix> {
        self.square.clone().with_ridge(ridge).solve(&self.cross)
    }

    /// The loss of a value block: `1/2 (E|Y|^2 - 2 tr V^T R + tr V^T S V) + lam/2 |V|^2`.
    pub fn loss(&self, value: &Matrix, ridge: f64) -> f64 {
        let curved = value.dot(&self.square.times(value));
        0.5 * (self.energy - 2.0 * value.dot(&self.cross) + curved) + 0.5 * ridge * value.dot(value)
    }

    /// Its gradient: `(S + lam I) V - R`.
    pub fn value_gradient(&self, value: &Matrix, ridge: f64) -> Matrix {
        let mut gradient = self.square.times(value);
        gradient.add_scaled(ridge, value);
        gradient.add_scaled(-1.0, &self.cross);
        gradient
    }

    /// The profile objective `1/2 [E|Y|^2 - tr R^T (S + lam I)^-1 R]`.
    pub fn profile(&self, ridge: f64) -> Option<f64> {
        Some(0.5 * (self.energy - self.cross.dot(&self.best_value(ridge)?)))
    }
}
