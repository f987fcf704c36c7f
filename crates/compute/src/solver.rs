//! How a gradient becomes a step: the settings of SGD, momentum and `AdamW`.

use crate::error::ComputeError;

/// How a gradient becomes a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Solver {
    /// `w -= rate (g + decay w)`.
    Sgd {
        /// Learning rate.
        rate: f32,
        /// Weight decay, added to the gradient.
        weight_decay: f32,
    },
    /// `m = momentum m + g + decay w; w -= rate m`.
    Momentum {
        /// Learning rate.
        rate: f32,
        /// Share of the last step that goes on.
        momentum: f32,
        /// Weight decay, added to the gradient.
        weight_decay: f32,
    },
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
    AdamW {
        /// Learning rate.
        rate: f32,
        /// Decay of the mean.
        beta1: f32,
        /// Decay of the mean square.
        beta2: f32,
        /// Added to the root of the mean square.
        epsilon: f32,
        /// Weight decay, applied to the weight itself.
        weight_decay: f32,
    },
}

impl Solver {
    /// `AdamW` with the usual betas, epsilon 1e-8 and the given rate and decay.
    pub fn adamw(rate: f32, weight_decay: f32) -> Self {
        Self::AdamW { rate, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay }
    }

    /// How many numbers are remembered per trained element.
    pub fn moments(self) -> usize {
        match self {
            Self::Sgd { .. } => 0,
            Self::Momentum { .. } => 1,
            Self::AdamW { .. } => 2,
        }
    }

    /// The learning rate.
    pub fn rate(self) -> f32 {
        match self {
            Self::Sgd { rate, .. } | Self::Momentum { rate, .. } | Self::AdamW { rate, .. } => rate,
        }
    }

    /// The same solver with its rate multiplied.
    pub(crate) fn damped(mut self, factor: f32) -> Self {
        match &mut self {
            Self::Sgd { rate, .. } | Self::Momentum { rate, .. } | Self::AdamW { rate, .. } => {
                *rate *= factor;
            }
        }
        self
    }

    pub(crate) fn check(self) -> Result<(), ComputeError> {
        let check = |what, found: f32, expected, holds: bool| {
            if holds { Ok(()) } else { Err(ComputeError::Setting { what, found, expected }) }
        };
        let share = |what, found: f32| {
            check(what, found, "at least 0 and below 1", (0.0..1.0).contains(&found))
        };
        let positive = |what, found: f32| {
            let holds = found.is_finite() && found >= 0.0;
            check(what, found, "finite and not negative", holds)
        };
        positive("learning rate", self.rate())?;
        match self {
            Self::Sgd { weight_decay, .. } => positive("weight decay", weight_decay),
            Self::Momentum { momentum, weight_decay, .. } => {
                share("momentum", momentum)?;
                positive("weight decay", weight_decay)
            }
            Self::AdamW { beta1, beta2, epsilon, weight_decay, .. } => {
                share("beta1", beta1)?;
                share("beta2", beta2)?;
                // An element whose gradients were all zero would become 0 / 0.
                check("epsilon", epsilon, "above 0", epsilon.is_nan() || epsilon > 0.0)?;
                positive("epsilon", epsilon)?;
                positive("weight decay", weight_decay)
            }
        }
    }
}

/// One solver's numbers at one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub solver: Solver,
    /// `rate / (1 - beta1^t)` and `1 / (1 - beta2^t)`, for `AdamW`.
    pub corrected: [f32; 2],
}

impl Step {
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
