//! The settings of SGD, momentum and `AdamW`: what an experiment file says and what tensors are stepped by.

use serde::{Deserialize, Serialize};

/// How a gradient becomes a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "name",
    rename_all = "snake_case",
    deny_unknown_fields,
    expecting = "a table such as { name = \"adamw\", rate = 1e-3 }; names: adamw, momentum, sgd"
)]
pub enum Solver {
    /// `w -= rate (g + decay w)`.
    Sgd {
        /// Learning rate.
        rate: f32,
        /// Weight decay, added to the gradient.
        #[serde(default)]
        weight_decay: f32,
    },
    /// `m = momentum m + g + decay w; w -= rate m`.
    Momentum {
        /// Learning rate.
        rate: f32,
        /// Share of the last step that is carried over.
        #[serde(default = "usual::momentum")]
        momentum: f32,
        /// Weight decay, added to the gradient.
        #[serde(default)]
        weight_decay: f32,
    },
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
    #[serde(rename = "adamw")]
    AdamW {
        /// Learning rate.
        rate: f32,
        /// Decay of the mean.
        #[serde(default = "usual::beta1")]
        beta1: f32,
        /// Decay of the mean square.
        #[serde(default = "usual::beta2")]
        beta2: f32,
        /// Added to the root of the mean square.
        #[serde(default = "usual::epsilon")]
        epsilon: f32,
        /// Weight decay, applied to the weight itself.
        #[serde(default = "usual::weight_decay")]
        weight_decay: f32,
    },
}

/// What a file without a solver means: what `{ name = "adamw" }` with a rate of 0.001 means.
impl Default for Solver {
    fn default() -> Self {
        Self::adamw(1e-3, usual::weight_decay())
    }
}

impl Solver {
    /// `AdamW` with the usual betas, epsilon 1e-8 and the given rate and decay.
    pub const fn adamw(rate: f32, weight_decay: f32) -> Self {
        let (beta1, beta2, epsilon) = (usual::beta1(), usual::beta2(), usual::epsilon());
        Self::AdamW { rate, beta1, beta2, epsilon, weight_decay }
    }

    /// Numbers that it remembers for each that trains.
    pub const fn moments(self) -> u64 {
        match self {
            Self::Sgd { .. } => 0,
            Self::Momentum { .. } => 1,
            Self::AdamW { .. } => 2,
        }
    }

    /// The learning rate.
    pub const fn rate(self) -> f32 {
        match self {
            Self::Sgd { rate, .. } | Self::Momentum { rate, .. } | Self::AdamW { rate, .. } => rate,
        }
    }

    /// The same solver with its rate multiplied.
    #[must_use]
    pub fn scaled(mut self, factor: f32) -> Self {
        match &mut self {
            Self::Sgd { rate, .. } | Self::Momentum { rate, .. } | Self::AdamW { rate, .. } => {
                *rate *= factor;
            }
        }
        self
    }

    /// Refuses settings that make no sense.
    pub fn check(self) -> Result<(), WrongSetting> {
        let check = |key, found: f32, legal: bool, expected| {
            if legal { Ok(()) } else { Err(WrongSetting { key, found, expected }) }
        };
        let not_negative = |key, found: f32| {
            check(key, found, found.is_finite() && found >= 0.0, "a finite number, 0 or more")
        };
        let share = |key, found: f32| {
            check(key, found, (0.0..1.0).contains(&found), "a number from 0 to below 1")
        };
        not_negative("work.optimiser.rate", self.rate())?;
        match self {
            Self::Sgd { weight_decay, .. } => {
                not_negative("work.optimiser.weight_decay", weight_decay)
            }
            Self::Momentum { momentum, weight_decay, .. } => {
                share("work.optimiser.momentum", momentum)?;
                not_negative("work.optimiser.weight_decay", weight_decay)
            }
            Self::AdamW { beta1, beta2, epsilon, weight_decay, .. } => {
                share("work.optimiser.beta1", beta1)?;
                share("work.optimiser.beta2", beta2)?;
                // An element whose gradients were all zero would become 0 / 0.
                let legal = epsilon.is_finite() && epsilon > 0.0;
                check("work.optimiser.epsilon", epsilon, legal, "a finite number above 0")?;
                not_negative("work.optimiser.weight_decay", weight_decay)
            }
        }
    }
}

/// A setting of a solver that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WrongSetting {
    /// Its key in an experiment file.
    pub key: &'static str,
    /// The value as found.
    pub found: f32,
    /// What would have been accepted.
    pub expected: &'static str,
}

/// The values people mean when they say nothing.
mod usual {
    pub(super) const fn momentum() -> f32 {
        0.9
    }

    pub(super) const fn beta1() -> f32 {
        0.9
    }

    pub(super) const fn beta2() -> f32 {
        0.999
    }

    pub(super) const fn epsilon() -> f32 {
        1e-8
    }

    /// That of PyTorch's `AdamW`; its SGD has none.
    pub(super) const fn weight_decay() -> f32 {
        0.01
    }
}
