//! What a client minimises: the weights of classes, label smoothing, and the loss of preferences.
//!
//! The definitions are those of PyTorch's `CrossEntropyLoss`: with weights the loss of a step is
//! `sum of w_y loss / sum of w_y` over its targets, and smoothing takes a share of each target and gives it
//! to all classes in proportion to their weights.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, positive, refuse};

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

/// The loss of a pair of answers of which one is preferred: `work.preference`.
///
/// With `h` the difference of the two log-likelihood ratios between the model and its reference,
/// ```text
/// h    = (log p(chosen) - log p_ref(chosen)) - (log p(rejected) - log p_ref(rejected))
/// dpo    -(1 - e) log sigmoid(beta h) - e log sigmoid(-beta h)      e: label_smoothing
/// ipo    (h - 1 / (2 beta))^2                                      likelihoods as means over tokens
/// ```
/// DPO is Rafailov et al. 2023 (<https://arxiv.org/abs/2305.18290>), its smoothing Mitchell's conservative form,
/// IPO Azar et al. 2023 (<https://arxiv.org/abs/2310.12036>) with the means that TRL takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreferenceLoss {
    /// Which loss.
    pub loss: PreferenceForm,
    /// How much the model may leave its reference: the larger, the less.
    pub beta: f64,
    /// The share of pairs whose order is believed to be wrong; of DPO alone.
    pub label_smoothing: f64,
}

/// The losses of preferences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreferenceForm {
    /// Direct preference optimisation.
    #[default]
    Dpo,
    /// Identity preference optimisation.
    Ipo,
}

impl Default for PreferenceLoss {
    fn default() -> Self {
        Self { loss: PreferenceForm::Dpo, beta: 0.1, label_smoothing: 0.0 }
    }
}

impl PreferenceLoss {
    /// Refuses settings that make no sense.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        positive("work.preference.beta", self.beta)?;
        let smoothing = self.label_smoothing;
        if !(0.0..0.5).contains(&smoothing) {
            let expected = "0 or more and less than 0.5: from there on the order says nothing";
            return refuse("work.preference.label_smoothing", smoothing, expected);
        }
        if self.loss == PreferenceForm::Ipo && smoothing > 0.0 {
            let expected = "0 with ipo, which has no smoothing";
            return refuse("work.preference.label_smoothing", smoothing, expected);
        }
        Ok(())
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
