//! `FedAvgM`: the server keeps a momentum over the mean changes.
//!
//! Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual
//! Classification. 2019, arXiv 1909.06335.
//!
//! ```text
//! client  as FedAvg
//! server  m <- beta m + d,   w <- w + rate m       d: the mean change
//! ```

use crate::recipe::Recipe;
use crate::settings::settings;
use fedra_wire::ServerRule;

settings! {
    /// The method's settings.
    pub struct FedAvgM {
        /// The server's learning rate.
        pub rate: f32 = 1.0,
        /// Share of the last change that is carried over; 0 is `FedAvg`.
        pub beta: f32 = 0.9,
    }
}

impl FedAvgM {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        Recipe { server: ServerRule::Momentum { rate: self.rate, beta: self.beta }, ..base }
    }
}
