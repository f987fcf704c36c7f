//! `FedAdagrad`: the server takes the mean change for a gradient and steps with Adagrad.
//!
//! Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization.
//! ICLR 2021, arXiv 2003.00295, algorithm 2.
//!
//! ```text
//! client  as FedAvg
//! server  m <- beta1 m + (1 - beta1) d                 d: the mean change
//!         v <- v + d^2
//!         w <- w + rate m / (sqrt(v) + tau)
//! ```

use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;
use crate::server::{SecondMoment, ServerRule};

/// The method's settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FedAdagrad {
    /// The server's learning rate.
    pub rate: f32,
    /// Decay of the mean.
    pub beta1: f32,
    /// How far the rule adapts: smaller adapts more.
    pub tau: f32,
}

impl Default for FedAdagrad {
    fn default() -> Self {
        Self { rate: 0.03, beta1: 0.9, tau: 1e-3 }
    }
}

impl FedAdagrad {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        // v of Adagrad has no decay.
        let (Self { rate, beta1, tau }, beta2) = (self, 1.0);
        let second = SecondMoment::Adagrad;
        Recipe { server: ServerRule::Adaptive { second, rate, beta1, beta2, tau }, ..base }
    }
}
