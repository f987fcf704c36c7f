//! How a model did, label by label: what a person reads when one number is not enough.
//!
//! Plain data, made from counts once they are complete. A summary holds it and a page shows it.

use serde::{Deserialize, Serialize};

/// Scores of each label, and which label was taken for which.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByLabel {
    /// Every label that was true or predicted somewhere, in the order of the labels.
    pub labels: Vec<OneLabel>,
    /// Absent where an example may have several labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confusion: Option<ConfusionMatrix>,
}

/// The scores of one label: a class, a code, or a type of span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneLabel {
    /// Its name.
    pub label: String,
    /// Hits among what was predicted.
    pub precision: f64,
    /// Hits among what is true.
    pub recall: f64,
    /// The harmonic mean of both.
    pub f1: f64,
    /// How often it is true.
    pub support: u64,
}

/// Which label was taken for which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfusionMatrix {
    /// The labels, of rows and of columns. For spans these are types of words, and `O` is one of them.
    pub labels: Vec<String>,
    /// A row for each true label, a column for each predicted one.
    pub counts: Vec<Vec<u64>>,
}
