//! One step of SGD, momentum or `AdamW`, with what changes from step to step.

use crate::error::ComputeError;
use fedra_plan::{Solver, WrongSetting};

/// Refuses settings that make no sense.
pub(crate) fn check(solver: Solver) -> Result<(), ComputeError> {
    solver.check().map_err(|WrongSetting { key, found, expected }| ComputeError::Setting {
        what: key,
        found,
        expected,
    })
}

/// One solver's numbers at one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SolverStep {
    pub solver: Solver,
    /// `rate / (1 - beta1^t)` and `1 / (1 - beta2^t)`, for `AdamW`.
    pub corrected: [f32; 2],
}

impl SolverStep {
    pub(crate) fn new(solver: Solver, steps: i32) -> Self {
        let corrected = match solver {
            Solver::AdamW { rate, beta1, beta2, .. } => {
                let first = 1.0 - f64::from(beta1).powi(steps);
                let second = 1.0 - f64::from(beta2).powi(steps);
                [(f64::from(rate) / first) as f32, (1.0 / second) as f32]
            }
            Solver::Sgd { .. } | Solver::Momentum { .. } => [0.0; 2],
        };
        Self { solver, corrected }
    }

    /// Whether a weight without gradient and moments changes at all.
    pub(crate) fn decays(self) -> bool {
        match self.solver {
            Solver::Sgd { weight_decay, .. }
            | Solver::Momentum { weight_decay, .. }
            | Solver::AdamW { weight_decay, .. } => weight_decay != 0.0,
        }
    }

    /// Whether decay alone gives a weight a moment, so that every row always changes.
    pub(crate) fn decay_enters_moments(self) -> bool {
        matches!(self.solver, Solver::Momentum { weight_decay, .. } if weight_decay != 0.0)
    }
}
