//! What a client minimises: the weights of classes, and label smoothing.
//!
//! The definitions are those of PyTorch's `CrossEntropyLoss`: with weights the loss of a step is
//! `sum of w_y loss / sum of w_y` over its targets, and smoothing takes a share of each target and gives it
//! to all classes in proportion to their weights.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, refuse};

/// What a target counts by its class: `work.class_weights`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "snake_case",
    expecting = "expected \"balanced\", or a table of labels and their weights"
)]
pub enum ClassWeights {
    /// `n / (k n_c)` for a class with `n_c` of a client's `n` training targets in `k` classes. Each client
    /// counts its own, and tells nobody.
    Balanced,
    /// By label; any other counts 1.
    #[serde(untagged)]
    ByLabel(BTreeMap<String, f32>),
}

impl ClassWeights {
    /// Refuses weights with which a loss is no mean.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let Self::ByLabel(weights) = self else { return Ok(()) };
        if weights.is_empty() {
            return refuse("work.class_weights", "an empty table", "at least one label");
        }
        match weights.iter().find(|(_, weight)| !(weight.is_finite() && **weight > 0.0)) {
            None => Ok(()),
            Some((label, weight)) => {
                let found = format!("{weight} for {label:?}");
                refuse("work.class_weights", found, "finite numbers above 0")
            }
        }
    }
}

/// Whether an optimiser's moments live on from one round of a client to its next: `work.moments`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MomentsLife {
    /// They start at 0 in every round.
    #[default]
    Fresh,
    /// A client keeps them as a part of its state.
    Kept,
}
