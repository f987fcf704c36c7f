//! Accuracy and F1 where every example has one class.

use serde::{Deserialize, Serialize};

use super::{Tally, macro_f1, ratio};

/// Accuracy, macro and micro F1 of single-label predictions.
///
/// ```
/// use fedra_data::ClassScore;
/// let mut score = ClassScore::new(3);
/// for (truth, guess) in [(0, 0), (1, 2), (2, 2), (0, 0)] {
///     score.add(truth, guess);
/// }
/// assert_eq!(score.accuracy(), 0.75);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassScore {
    tallies: Vec<Tally>,
    right: u64,
    seen: u64,
}

impl ClassScore {
    /// Nothing seen yet, of so many classes.
    pub fn new(classes: usize) -> Self {
        Self { tallies: vec![Tally::default(); classes], right: 0, seen: 0 }
    }

    /// Counts one example.
    ///
    /// # Panics
    /// When a class is not below the number of classes.
    pub fn add(&mut self, truth: u32, guess: u32) {
        self.seen += 1;
        if truth == guess {
            self.right += 1;
            self.tallies[truth as usize].hits += 1;
        } else {
            self.tallies[truth as usize].misses += 1;
            self.tallies[guess as usize].alarms += 1;
        }
    }

    /// Adds what another accumulator has counted.
    ///
    /// # Panics
    /// When the other has a different number of classes.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.tallies.len(), other.tallies.len(), "scores of different class counts");
        self.tallies.iter_mut().zip(&other.tallies).for_each(|(tally, more)| tally.add(*more));
        self.right += other.right;
        self.seen += other.seen;
    }

    /// The share of examples that are right; also the micro F1 when every example has one class.
    pub fn accuracy(&self) -> f64 {
        ratio(self.right, self.seen)
    }

    /// F1 of the pooled counts.
    pub fn micro_f1(&self) -> f64 {
        super::total(&self.tallies).f1()
    }

    /// Mean F1 over the classes that occur.
    pub fn macro_f1(&self) -> f64 {
        macro_f1(&self.tallies)
    }

    /// The counts of each class.
    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// How many examples were counted.
    pub fn seen(&self) -> u64 {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_match_the_published_scikit_learn_example() {
        // sklearn.metrics.f1_score: y_true = [0,1,2,0,1,2], y_pred = [0,2,1,0,0,1]:
        // macro 0.26..., micro 0.33...
        let mut score = ClassScore::new(3);
        for (truth, guess) in [(0, 0), (1, 2), (2, 1), (0, 0), (1, 0), (2, 1)] {
            score.add(truth, guess);
        }
        assert!((score.macro_f1() - 0.8 / 3.0).abs() < 1e-15);
        assert!((score.micro_f1() - 1.0 / 3.0).abs() < 1e-15);
        assert_eq!(score.micro_f1(), score.accuracy());
    }

    #[test]
    fn a_class_that_never_occurs_does_not_lower_the_macro() {
        let mut score = ClassScore::new(5);
        score.add(1, 1);
        assert_eq!(score.macro_f1(), 1.0);
        assert_eq!(ClassScore::new(5).macro_f1(), 0.0);
    }
}
