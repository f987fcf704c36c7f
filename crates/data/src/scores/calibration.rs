//! Whether probabilities mean what they say: of the answers given with 80 %, are 80 % right?
//!
//! The expected calibration error puts answers into bins of equal width by their probability, and is
//! the mean distance between a bin's probability and its share of right answers, weighted by answers.
//! The Brier score is the mean square distance between probabilities and truth. Both are 0 for an
//! oracle that is sure.
//!
//! ```text
//! ECE    sum over bins of  n_b / n * | right_b / n_b - mean probability_b |
//! Brier  one label: mean over rows of  sum_k (p_k - y_k)^2
//!        several:   mean over rows and labels of  (p - y)^2
//! ```

use serde::{Deserialize, Serialize};

/// Bins of a reliability diagram, as most publications have them.
const BINS: usize = 15;

/// An accumulator of answers with their probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationScore {
    bins: [Bin; BINS],
    square_sum: f64,
    squares: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    count: u64,
    right: u64,
    probability_sum: f64,
}

/// What the answers came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Expected calibration error.
    pub expected_error: f64,
    /// Brier score.
    pub brier: f64,
    /// The bins that have answers, from the least probability on.
    pub bins: Vec<CalibrationBin>,
}

/// Answers of like probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationBin {
    /// Probabilities of the bin are above this.
    pub above: f64,
    /// And at most this.
    pub up_to: f64,
    /// How many answers.
    pub count: u64,
    /// Their mean probability.
    pub probability: f64,
    /// The share of them that is right.
    pub right: f64,
}

impl Default for CalibrationScore {
    fn default() -> Self {
        Self { bins: [Bin::default(); BINS], square_sum: 0.0, squares: 0 }
    }
}

impl CalibrationScore {
    /// Counts an answer with exactly one label: all probabilities, and which label is true. The
    /// likeliest label is the answer, the first of equals.
    ///
    /// # Panics
    /// When the true label has no probability.
    pub fn add_class(&mut self, probabilities: &[f64], truth: usize) {
        let mut answer = 0;
        for (label, probability) in probabilities.iter().enumerate() {
            if *probability > probabilities[answer] {
                answer = label;
            }
        }
        self.bin(probabilities[answer], answer == truth);
        let square = |(label, probability): (usize, &f64)| {
            let apart = probability - f64::from(u8::from(label == truth));
            apart * apart
        };
        self.square_sum += probabilities.iter().enumerate().map(square).sum::<f64>();
        self.squares += 1;
    }

    /// Counts the probability of one of several labels, and whether it is true.
    pub fn add_label(&mut self, probability: f64, is_true: bool) {
        self.bin(probability, is_true);
        let apart = probability - f64::from(u8::from(is_true));
        self.square_sum += apart * apart;
        self.squares += 1;
    }

    /// Adds what another accumulator has counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, more) in self.bins.iter_mut().zip(&other.bins) {
            mine.count += more.count;
            mine.right += more.right;
            mine.probability_sum += more.probability_sum;
        }
        self.square_sum += other.square_sum;
        self.squares += other.squares;
    }

    /// What they came to; `None` where nothing was counted.
    pub fn calibration(&self) -> Option<Calibration> {
        let all: u64 = self.bins.iter().map(|bin| bin.count).sum();
        if all == 0 {
            return None;
        }
        let shown = |(place, bin): (usize, &Bin)| {
            let mean = |sum: f64| sum / bin.count as f64;
            (bin.count > 0).then(|| CalibrationBin {
                above: place as f64 / BINS as f64,
                up_to: (place + 1) as f64 / BINS as f64,
                count: bin.count,
                probability: mean(bin.probability_sum),
                right: mean(bin.right as f64),
            })
        };
        let bins: Vec<CalibrationBin> = self.bins.iter().enumerate().filter_map(shown).collect();
        let error = |bin: &CalibrationBin| bin.count as f64 * (bin.right - bin.probability).abs();
        let expected_error = bins.iter().map(error).sum::<f64>() / all as f64;
        Some(Calibration { expected_error, brier: self.square_sum / self.squares as f64, bins })
    }

    fn bin(&mut self, probability: f64, is_right: bool) {
        // The upper end of a bin is in it, and 0 is in the first.
        let place = (probability * BINS as f64).ceil() as usize;
        let bin = &mut self.bins[place.clamp(1, BINS) - 1];
        bin.count += 1;
        bin.right += u64::from(is_right);
        bin.probability_sum += probability;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_and_the_brier_score_are_those_computed_by_hand() {
        let mut score = CalibrationScore::default();
        assert_eq!(score.calibration(), None);
        score.add_class(&[0.9, 0.1], 0);
        score.add_class(&[0.9, 0.1], 1);
        score.add_class(&[0.3, 0.7], 1);
        let found = score.calibration().unwrap();
        // One bin of two with 0.9 of which one is right, one bin of one with 0.7 that is right.
        assert!((found.expected_error - (2.0 * 0.4 + 0.3) / 3.0).abs() < 1e-12, "{found:?}");
        assert!((found.brier - (0.02 + 1.62 + 0.18) / 3.0).abs() < 1e-12, "{found:?}");
        assert_eq!(found.bins.len(), 2);
        assert_eq!((found.bins[1].count, found.bins[1].right), (2, 0.5));
    }

    #[test]
    fn several_labels_count_one_by_one_and_parts_add_up() {
        let (mut whole, mut part) = (CalibrationScore::default(), CalibrationScore::default());
        for (probability, is_true) in [(0.0, false), (1.0, true), (0.25, true)] {
            whole.add_label(probability, is_true);
        }
        part.add_label(0.0, false);
        let mut rest = CalibrationScore::default();
        rest.add_label(1.0, true);
        rest.add_label(0.25, true);
        part.merge(&rest);
        assert_eq!(part, whole);
        let found = whole.calibration().unwrap();
        assert!((found.brier - 0.5625 / 3.0).abs() < 1e-12);
        assert!((found.expected_error - 0.25).abs() < 1e-12);
    }
}
