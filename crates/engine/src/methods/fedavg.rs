//! `FedAvg`: the mean of the clients' models, weighted by their examples.
//!
//! McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep
//! Networks from Decentralized Data. AISTATS 2017, arXiv 1602.05629, algorithm 1.
//!
//! ```text
//! client  w <- w - rate g                        for each batch of each epoch
//! server  w_t+1 = w_t + sum_k n_k / n (w_k - w_t)
//! ```

use crate::recipe::Recipe;
use crate::settings::settings;
use fedra_wire::ServerRule;

settings! {
    /// The method's settings.
    pub struct FedAvg {
        /// The server's learning rate; 1 is the paper's.
        pub rate: f32 = 1.0,
    }
}

impl FedAvg {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        Recipe { server: ServerRule::Average { rate: self.rate }, ..base }
    }
}
