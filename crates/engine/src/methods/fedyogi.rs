//! `FedYogi`: the server takes the mean change for a gradient and steps with Yogi.
//!
//! Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization.
//! ICLR 2021, arXiv 2003.00295, algorithm 2.
//!
//! ```text
//! client  as FedAvg
//! server  m <- beta1 m + (1 - beta1) d                 d: the mean change
//!         v <- v - (1 - beta2) d^2 sign(v - d^2)
//!         w <- w + rate m / (sqrt(v) + tau)
//! ```

use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;
use crate::server::{SecondMoment, ServerRule};

/// The method's settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FedYogi {
    /// The server's learning rate.
    pub rate: f32,
    /// Decay of the mean.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// How far the rule adapts: smaller adapts more.
    pub tau: f32,
}

impl Default for FedYogi {
    fn default() -> Self {
        Self { rate: 0.01, beta1: 0.9, beta2: 0.99, tau: 1e-3 }
    }
}

impl FedYogi {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let Self { rate, beta1, beta2, tau } = self;
        let second = SecondMoment::Yogi;
        Recipe { server: ServerRule::Adaptive { second, rate, beta1, beta2, tau }, ..base }
    }
}
