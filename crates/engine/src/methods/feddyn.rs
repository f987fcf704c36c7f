//! `FedDyn`: a linear term at each client makes its own optimum that of the federation.
//!
//! Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama: Federated Learning Based on Dynamic
//! Regularization. ICLR 2021, arXiv 2111.04263, algorithm 1.
//!
//! ```text
//! client  minimises F_k(w) - <h_k, w> + alpha/2 |w - w_t|^2,   then h_k <- h_k - alpha (w_k - w_t)
//! server  h <- h - alpha / m sum_k (w_k - w_t),                w_t+1 = mean w_k - h / alpha
//! ```
//!
//! Clients count alike, whatever their examples, as in the paper.

use crate::recipe::{Recipe, Weighting};
use crate::settings::settings;
use crate::work::LocalRule;
use fedra_wire::ServerRule;

settings! {
    /// The method's settings.
    pub struct FedDyn {
        /// The weight of the regulariser.
        pub alpha: f32 = 0.01,
    }
}

impl FedDyn {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let alpha = self.alpha;
        Recipe {
            server: ServerRule::Dynamic { alpha },
            weighting: Weighting::Uniform,
            ..base.with_local(LocalRule::Dynamic { alpha })
        }
    }
}
