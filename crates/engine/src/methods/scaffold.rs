//! SCAFFOLD: control variates take the clients' drift out of their gradients.
//!
//! Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for
//! Federated Learning. ICML 2020, arXiv 1910.06378, algorithm 1 with option II.
//!
//! ```text
//! client  w <- w - rate (g - c_i + c)
//!         c_i+ = mean of g over the steps  ( = c_i - c + (w_t - w) / (K rate) under plain SGD )
//! server  w <- w + server_rate * sum_S p_i (w_i - w_t) / P,    P = sum_S p_i
//!         c <- c + P * ( sum_S p_i (c_i+ - c_i) / P )
//! ```
//!
//! `p_i` is client i's share of the objective `sum_i p_i f_i`, over **all** clients: `n_i / n` by
//! examples, as our `FedAvg` has it, or `1 / N`, the paper's choice. Model and variates have to be
//! weighed alike. At a fixed point a client stands still where `g_i - c_i + c = 0`, that is with
//! `c_i = g_i` where `c = 0`. So c has to be the mean of the variates by the weights of the
//! objective, `c = sum_i p_i c_i`: then `c = 0` says `sum_i p_i g_i = 0`, the optimum that `FedAvg`
//! aims at. With another mean it is the optimum of another objective.
//!
//! Partial participation keeps that sum: `c_i` changes for i in S alone, hence c changes by
//! `sum_S p_i (c_i+ - c_i)`, which is the mean over S times `P`, the share of all weight that
//! arrived (`|S| / N` when all count alike). A client that did not train a parameter has not changed
//! its variate there, so it is in that mean with zero.
//!
//! The variate travels both ways beside the model, so a round moves twice the bytes of `FedAvg`.

use crate::recipe::{Recipe, Weighting};
use crate::settings::settings;
use crate::work::LocalRule;
use fedra_wire::ServerRule;

settings! {
    /// The method's settings.
    pub struct Scaffold {
        /// The server's learning rate.
        pub rate: f32 = 1.0,
        /// How much a client counts, in the model and in the variate; uniform is the paper's.
        pub weighting: Weighting = Weighting::Examples,
    }
}

impl Scaffold {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let server = ServerRule::Average { rate: self.rate };
        let weighting = self.weighting;
        Recipe { weighting, server, ..base }.with_local(LocalRule::ControlVariate)
    }
}
