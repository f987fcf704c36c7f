//! Counts of right and wrong answers, and the ratios made of them.

use serde::{Deserialize, Serialize};

/// True and false positives and false negatives of one label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfusionCounts {
    /// Predicted and true.
    pub true_positives: u64,
    /// Predicted, not true.
    pub false_positives: u64,
    /// True, not predicted.
    pub false_negatives: u64,
}

impl ConfusionCounts {
    /// Hits among what was predicted; 0 when nothing was.
    pub fn precision(self) -> f64 {
        ratio(self.true_positives, self.true_positives + self.false_positives)
    }

    /// Hits among what is true; 0 when nothing is.
    pub fn recall(self) -> f64 {
        ratio(self.true_positives, self.true_positives + self.false_negatives)
    }

    /// Harmonic mean of precision and recall: 2 TP / (2 TP + FP + FN).
    pub fn f1(self) -> f64 {
        ratio(
            2 * self.true_positives,
            2 * self.true_positives + self.false_positives + self.false_negatives,
        )
    }

    /// Whether the label was neither predicted nor true anywhere.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(super) fn add(&mut self, other: Self) {
        self.true_positives += other.true_positives;
        self.false_positives += other.false_positives;
        self.false_negatives += other.false_negatives;
    }
}

pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

pub(super) fn total<'a>(tallies: impl IntoIterator<Item = &'a ConfusionCounts>) -> ConfusionCounts {
    tallies.into_iter().fold(ConfusionCounts::default(), |mut sum, &tally| {
        sum.add(tally);
        sum
    })
}

/// Mean F1 over these labels; one that was neither predicted nor true counts as 0.
pub(super) fn macro_f1<'a>(tallies: impl IntoIterator<Item = &'a ConfusionCounts>) -> f64 {
    let (mut sum, mut count) = (0.0, 0_u64);
    for tally in tallies {
        sum += tally.f1();
        count += 1;
    }
    if count == 0 { 0.0 } else { sum / count as f64 }
}

/// Those of the labels that occur, truly or as a prediction.
pub(super) fn occurring<'a>(
    tallies: impl IntoIterator<Item = &'a ConfusionCounts>,
) -> impl Iterator<Item = &'a ConfusionCounts> {
    tallies.into_iter().filter(|tally| !tally.is_empty())
}
