//! How good predictions are, as counts that add up.
//!
//! Each score is an accumulator of integers: feed it examples, [`merge`](SpanScore::merge) it with
//! the same score of another batch, thread or client, and read a ratio at the end. Integers add in
//! any order to the same sum, so a score never depends on who came first.

mod labels;
mod spans;

pub use labels::LabelScore;
pub use spans::{Span, SpanScore, spans};

use serde::{Deserialize, Serialize};

/// Hits, false alarms and misses of one label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Predicted and true.
    pub hits: u64,
    /// Predicted, not true.
    pub alarms: u64,
    /// True, not predicted.
    pub misses: u64,
}

impl Tally {
    /// Hits among what was predicted; 0 when nothing was.
    pub fn precision(self) -> f64 {
        ratio(self.hits, self.hits + self.alarms)
    }

    /// Hits among what is true; 0 when nothing is.
    pub fn recall(self) -> f64 {
        ratio(self.hits, self.hits + self.misses)
    }

    /// Harmonic mean of precision and recall: 2 hits / (2 hits + alarms + misses).
    pub fn f1(self) -> f64 {
        ratio(2 * self.hits, 2 * self.hits + self.alarms + self.misses)
    }

    /// Whether the label was neither predicted nor true anywhere.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.alarms += other.alarms;
        self.misses += other.misses;
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn total<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Tally {
    tallies.into_iter().fold(Tally::default(), |mut sum, &tally| {
        sum.add(tally);
        sum
    })
}

/// Mean F1 over these labels; one that was neither predicted nor true counts as 0.
fn macro_f1<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> f64 {
    let (mut sum, mut count) = (0.0, 0_u64);
    for tally in tallies {
        sum += tally.f1();
        count += 1;
    }
    if count == 0 { 0.0 } else { sum / count as f64 }
}

/// Those of the labels that occur, truly or as a prediction.
fn occurring<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> impl Iterator<Item = &'a Tally> {
    tallies.into_iter().filter(|tally| !tally.is_empty())
}
