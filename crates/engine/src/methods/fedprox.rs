//! `FedProx`: clients are held near the model they received.
//!
//! Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks.
//! MLSys 2020, arXiv 1812.06127, algorithm 2.
//!
//! ```text
//! client  minimises F_k(w) + mu/2 |w - w_t|^2:   w <- w - rate (g + mu (w - w_t))
//! server  as FedAvg
//! ```

use crate::recipe::Recipe;
use crate::settings::settings;
use crate::work::LocalRule;

settings! {
    /// The method's settings.
    pub struct FedProx {
        /// The pull towards the received model; 0 is `FedAvg`.
        pub mu: f32 = 0.01,
    }
}

impl FedProx {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        base.with_local(LocalRule::Proximal { mu: self.mu })
    }
}
