//! How a model did, label by label: what a person reads when one number is not enough.
//!
//! Plain data, made from counts once they are complete. A summary holds it and a page shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::counts::ConfusionCounts;

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

impl ByLabel {
    /// The scores of those labels that occur, truly or as a prediction.
    pub(super) fn of<'a>(
        counts: impl IntoIterator<Item = (&'a str, ConfusionCounts)>,
        confusion: Option<ConfusionMatrix>,
    ) -> Self {
        let occurring = counts.into_iter().filter(|(_, counts)| !counts.is_empty());
        let labels = occurring.map(|(label, counts)| OneLabel::of(label, counts)).collect();
        Self { labels, confusion }
    }
}

impl OneLabel {
    /// The scores that follow from counts.
    pub fn of(label: &str, counts: ConfusionCounts) -> Self {
        Self {
            label: label.to_owned(),
            precision: counts.precision(),
            recall: counts.recall(),
            f1: counts.f1(),
            support: counts.true_positives + counts.false_negatives,
        }
    }
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

/// How often each label was taken for each, by their numbers or their names: truth, then answer.
pub(super) type Pairs<L> = BTreeMap<L, BTreeMap<L, u64>>;

impl ConfusionMatrix {
    /// The matrix of the labels that occur in pairs, in the order of `labels`.
    pub(super) fn of<L: Ord>(
        pairs: &Pairs<L>,
        labels: impl IntoIterator<Item = (L, String)>,
    ) -> Self {
        let occurs = |label: &L| {
            pairs.contains_key(label) || pairs.values().any(|row| row.contains_key(label))
        };
        let occurring: Vec<(L, String)> =
            labels.into_iter().filter(|(label, _)| occurs(label)).collect();
        let row = |truth: &L| {
            let row = pairs.get(truth);
            let count = |(answer, _): &(L, String)| {
                row.and_then(|row| row.get(answer)).copied().unwrap_or(0)
            };
            occurring.iter().map(count).collect()
        };
        let counts = occurring.iter().map(|(truth, _)| row(truth)).collect();
        Self { labels: occurring.into_iter().map(|(_, name)| name).collect(), counts }
    }
}

/// Adds up pairs of two accumulators.
pub(super) fn merge_pairs<L: Ord + Clone>(into: &mut Pairs<L>, more: &Pairs<L>) {
    for (truth, row) in more {
        let mine = into.entry(truth.clone()).or_default();
        for (answer, count) in row {
            *mine.entry(answer.clone()).or_default() += count;
        }
    }
}
