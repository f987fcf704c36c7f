//! `FedNova`: changes are divided by the steps behind them, so that busy clients do not pull the model
//! towards themselves.
//!
//! Wang, Liu, Liang, Joshi, Poor: Tackling the Objective Inconsistency Problem in Heterogeneous
//! Federated Optimization. NeurIPS 2020, arXiv 2007.07481, equations 6 to 8.
//!
//! ```text
//! client  as FedAvg, in tau_i steps that are worth a_i
//! server  w <- w + tau_eff sum_i p_i (w_i - w_t) / a_i,    tau_eff = sum_i p_i a_i
//! ```
//!
//! `a_i` is the number of steps under SGD and `AdamW`, and the paper's closed forms under momentum
//! and under SGD with a proximal term.

use serde::{Deserialize, Serialize};

use crate::recipe::{Recipe, StepNormalisation};

/// The method; it has no settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedNova {}

impl FedNova {
    pub(super) fn recipe(self, base: Recipe) -> Recipe {
        let Self {} = self;
        Recipe { pace: StepNormalisation::Normalised, ..base }
    }
}
