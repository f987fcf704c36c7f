//! Rounds as columns: one each, or several together where there are too many to see.

use std::ops::Range;

/// Columns that can still be told apart on a phone.
const MOST: usize = 60;

/// Rounds as columns.
pub(super) struct Columns {
    /// The rounds of each.
    pub ranges: Vec<Range<usize>>,
    /// Their names: the round, counted from 1, or the first of several.
    pub names: Vec<String>,
    /// How many rounds a column holds.
    pub each: usize,
}

impl Columns {
    pub(super) fn of<T>(rounds: &[T]) -> Self {
        let each = rounds.len().div_ceil(MOST).max(1);
        let ranges: Vec<Range<usize>> = (0..rounds.len())
            .step_by(each)
            .map(|start| start..(start + each).min(rounds.len()))
            .collect();
        let names = ranges.iter().map(|range| (range.start + 1).to_string()).collect();
        Self { ranges, names, each }
    }

    /// The mean over the rounds of each column.
    pub(super) fn mean<T>(&self, rounds: &[T], value: impl Fn(&T) -> f64) -> Vec<f64> {
        let mean = |range: &Range<usize>| {
            rounds[range.clone()].iter().map(&value).sum::<f64>() / range.len() as f64
        };
        self.ranges.iter().map(mean).collect()
    }

    /// What a column is, for the axis.
    pub(super) fn in_words(&self) -> String {
        match self.each {
            1 => "round".to_owned(),
            each => format!("round (columns of {each}, their mean)"),
        }
    }
}
