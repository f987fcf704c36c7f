//! `FedAdam`, `FedYogi` and `FedAdagrad`: the server takes the mean change for a gradient and steps with an
//! adaptive optimiser.
//!
//! Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization.
//! ICLR 2021, arXiv 2003.00295, algorithm 2.
//!
//! ```text
//! client  as FedAvg
//! server  m <- beta1 m + (1 - beta1) d                 d: the mean change
//!         v <- v + d^2                                 FedAdagrad
//!         v <- v - (1 - beta2) d^2 sign(v - d^2)       FedYogi
//!         v <- beta2 v + (1 - beta2) d^2               FedAdam
//!         w <- w + rate m / (sqrt(v) + tau)
//! ```
//!
//! There is no bias correction, and v starts at tau^2, as in the paper. `FedAdam` with beta1 = 0, beta2 = 1 and
//! rate = 2 tau is `FedAvg`.

use crate::recipe::Recipe;
use crate::settings::settings;
use fedra_wire::{SecondMoment, ServerRule};

settings! {
    /// The settings of `FedAdam`.
    pub struct FedAdam {
        /// The server's learning rate.
        pub rate: f32 = 0.01,
        /// Decay of the mean.
        pub beta1: f32 = 0.9,
        /// Decay of the second moment.
        pub beta2: f32 = 0.99,
        /// How far the rule adapts: smaller adapts more.
        pub tau: f32 = 1e-3,
    }
}

impl FedAdam {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let Self { rate, beta1, beta2, tau } = self;
        let second = SecondMoment::Adam;
        Recipe { server: ServerRule::Adaptive { second, rate, beta1, beta2, tau }, ..base }
    }
}

settings! {
    /// The settings of `FedYogi`.
    pub struct FedYogi {
        /// The server's learning rate.
        pub rate: f32 = 0.01,
        /// Decay of the mean.
        pub beta1: f32 = 0.9,
        /// Decay of the second moment.
        pub beta2: f32 = 0.99,
        /// How far the rule adapts: smaller adapts more.
        pub tau: f32 = 1e-3,
    }
}

impl FedYogi {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let Self { rate, beta1, beta2, tau } = self;
        let second = SecondMoment::Yogi;
        Recipe { server: ServerRule::Adaptive { second, rate, beta1, beta2, tau }, ..base }
    }
}

settings! {
    /// The settings of `FedAdagrad`.
    pub struct FedAdagrad {
        /// The server's learning rate.
        pub rate: f32 = 0.03,
        /// Decay of the mean.
        pub beta1: f32 = 0.9,
        /// How far the rule adapts: smaller adapts more.
        pub tau: f32 = 1e-3,
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
