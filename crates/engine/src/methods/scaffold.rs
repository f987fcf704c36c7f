//! SCAFFOLD: control variates take the clients' drift out of their gradients.
//!
//! Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for
//! Federated Learning. ICML 2020, arXiv 1910.06378, algorithm 1 with option II.
//!
//! ```text
//! client  w <- w - rate (g - c_i + c)
//!         c_i+ = mean of g over the steps  ( = c_i - c + (w_t - w) / (K rate) under plain SGD )
//! server  w <- w + server_rate * mean (w_i - w_t)
//!         c <- c + |S| / N * mean (c_i+ - c_i)
//! ```
//!
//! The variate travels both ways beside the model, so a round moves twice the bytes of `FedAvg`.

use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;
use crate::server::ServerRule;
use crate::work::LocalRule;

/// The method's settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scaffold {
    /// The server's learning rate.
    pub rate: f32,
}

impl Default for Scaffold {
    fn default() -> Self {
        Self { rate: 1.0 }
    }
}

impl Scaffold {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let server = ServerRule::Average { rate: self.rate };
        Recipe { server, ..base }.with_local(LocalRule::Scaffold)
    }
}
