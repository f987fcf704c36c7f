//! F1 where an example has one class or any number of codes.
//!
//! One accumulator for both: a class is a set of one code, and the share of sets that are right is
//! then the accuracy. Where the two differ, they differ as in scikit-learn: the macro F1 of classes
//! is a mean over those that occur, the one of codes a mean over all.

use serde::{Deserialize, Serialize};

use super::by_label::{ByLabel, ConfusionMatrix, Pairs, merge_pairs};
use super::counts::{ConfusionCounts, macro_f1, occurring, ratio, total};
use crate::LabelSet;

/// Micro and macro F1 of labels, and the share of examples that are right.
///
/// ```
/// use fedra_data::LabelScore;
/// let mut codes = LabelScore::new(4);
/// codes.add(&[0, 3], &[0, 2]);
/// assert_eq!(codes.micro_f1(), 0.5);
///
/// let mut classes = LabelScore::new(3);
/// for (truth, guess) in [(0, 0), (1, 2), (2, 2), (0, 0)] {
///     classes.add(&[truth], &[guess]);
/// }
/// assert_eq!(classes.exact(), 0.75);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelScore {
    tallies: Vec<ConfusionCounts>,
    exact: u64,
    seen: u64,
    /// Which label was taken for which, of examples with one label and one answer.
    pairs: Pairs<u32>,
}

impl LabelScore {
    /// Nothing seen yet, of so many labels.
    pub fn new(labels: usize) -> Self {
        let tallies = vec![ConfusionCounts::default(); labels];
        Self { tallies, exact: 0, seen: 0, pairs: Pairs::new() }
    }

    /// Counts one example; the order of labels does not matter and a repeat counts once.
    ///
    /// # Panics
    /// When a label is not below the number of labels.
    pub fn add(&mut self, truth: &[u32], guess: &[u32]) {
        let mut same = true;
        for (place, &label) in truth.iter().enumerate() {
            let is_hit = guess.contains(&label);
            same &= is_hit;
            if !truth[..place].contains(&label) {
                let tally = &mut self.tallies[label as usize];
                *(if is_hit { &mut tally.true_positives } else { &mut tally.false_negatives }) += 1;
            }
        }
        for (place, label) in guess.iter().enumerate() {
            if !truth.contains(label) && !guess[..place].contains(label) {
                same = false;
                self.tallies[*label as usize].false_positives += 1;
            }
        }
        if let ([truth], [guess]) = (truth, guess) {
            *self.pairs.entry(*truth).or_default().entry(*guess).or_default() += 1;
        }
        self.exact += u64::from(same);
        self.seen += 1;
    }

    /// Adds what another accumulator has counted.
    ///
    /// # Panics
    /// When the other has a different number of labels.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.tallies.len(), other.tallies.len(), "scores of different label counts");
        self.tallies.iter_mut().zip(&other.tallies).for_each(|(tally, more)| tally.add(*more));
        self.exact += other.exact;
        self.seen += other.seen;
        merge_pairs(&mut self.pairs, &other.pairs);
    }

    /// All labels pooled.
    pub fn total(&self) -> ConfusionCounts {
        total(&self.tallies)
    }

    /// F1 of the pooled counts.
    pub fn micro_f1(&self) -> f64 {
        self.total().f1()
    }

    /// Mean F1 over the labels that occur, truly or as a guess: the macro F1 of classes, as
    /// scikit-learn takes it from two lists of classes.
    pub fn macro_f1(&self) -> f64 {
        macro_f1(occurring(&self.tallies))
    }

    /// Mean F1 over all labels, those that never occur as 0: the macro F1 of codes, as scikit-learn
    /// takes it from two indicator matrices (`zero_division=0`).
    pub fn macro_f1_of_all(&self) -> f64 {
        macro_f1(&self.tallies)
    }

    /// The share of examples whose whole set is right: the accuracy, where each has one class.
    pub fn exact(&self) -> f64 {
        ratio(self.exact, self.seen)
    }

    /// Each label's own scores, where an example has one class, and which was taken for which.
    ///
    /// # Panics
    /// When the names are of another number of labels.
    pub fn by_class(&self, labels: &LabelSet) -> ByLabel {
        let names = (0..).zip(labels.names().iter().cloned());
        ByLabel { confusion: Some(ConfusionMatrix::of(&self.pairs, names)), ..self.by_code(labels) }
    }

    /// Each label's own scores, where an example has any number of codes.
    ///
    /// # Panics
    /// When the names are of another number of labels.
    pub fn by_code(&self, labels: &LabelSet) -> ByLabel {
        assert_eq!(self.tallies.len(), labels.len(), "one name a label");
        let names = labels.names().iter().map(String::as_str);
        ByLabel::of(names.zip(self.tallies.iter().copied()), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micro_and_macro_differ_as_computed_by_hand() {
        let mut score = LabelScore::new(3);
        score.add(&[0, 1], &[0]);
        score.add(&[0], &[0, 2]);
        score.add(&[], &[]);
        // Pooled: 2 true positives, 1 false positive, 1 false negative. By code: 1, 0, 0.
        assert!((score.micro_f1() - 4.0 / 6.0).abs() < 1e-15);
        assert!((score.macro_f1() - 1.0 / 3.0).abs() < 1e-15);
        assert!((score.exact() - 1.0 / 3.0).abs() < 1e-15);
    }

    #[test]
    fn each_class_has_its_scores_and_the_matrix_has_those_that_occur() {
        let labels = LabelSet::new(["a", "b", "c", "d"].map(String::from));
        let mut score = LabelScore::new(4);
        for (truth, guess) in [(0, 0), (0, 1), (1, 1), (3, 1)] {
            score.add(&[truth], &[guess]);
        }
        let mut twice = score.clone();
        twice.merge(&score);
        let by_label = twice.by_class(&labels);
        let names: Vec<&str> = by_label.labels.iter().map(|label| label.label.as_str()).collect();
        assert_eq!(names, ["a", "b", "d"]);
        let b = &by_label.labels[1];
        assert_eq!((b.precision, b.recall, b.support), (1.0 / 3.0, 1.0, 2));
        let confusion = by_label.confusion.unwrap();
        assert_eq!(confusion.labels, ["a", "b", "d"]);
        assert_eq!(confusion.counts, [[2, 2, 0], [0, 2, 0], [0, 2, 0]]);
        assert_eq!(twice.by_code(&labels).confusion, None);
    }

    #[test]
    fn a_repeated_label_counts_once() {
        let mut score = LabelScore::new(3);
        score.add(&[0, 0, 1], &[1, 2, 2, 1]);
        assert_eq!(
            score.total(),
            ConfusionCounts { true_positives: 1, false_positives: 1, false_negatives: 1 }
        );
        assert_eq!(score.exact(), 0.0);
    }

    #[test]
    fn scores_match_the_published_scikit_learn_example() {
        // sklearn.metrics.f1_score: y_true = [0,1,2,0,1,2], y_pred = [0,2,1,0,0,1]:
        // macro 0.26..., micro 0.33...
        let mut score = LabelScore::new(3);
        for (truth, guess) in [(0, 0), (1, 2), (2, 1), (0, 0), (1, 0), (2, 1)] {
            score.add(&[truth], &[guess]);
        }
        assert!((score.macro_f1() - 0.8 / 3.0).abs() < 1e-15);
        assert!((score.micro_f1() - 1.0 / 3.0).abs() < 1e-15);
        assert_eq!(score.micro_f1(), score.exact());
    }

    #[test]
    fn codes_and_classes_score_as_in_scikit_learn() {
        // sklearn.metrics.f1_score(average="macro", zero_division=0) on five labels, of which 3
        // never occurs, 4 is only true and 1 only guessed; tools/score_fixtures.py prints these.
        let mut codes = LabelScore::new(5);
        for (truth, guess) in
            [(&[0, 2][..], &[0][..]), (&[2, 4], &[2, 1]), (&[], &[]), (&[0], &[0, 2])]
        {
            codes.add(truth, guess);
        }
        assert!((codes.macro_f1_of_all() - 0.3).abs() < 1e-15);
        assert!((codes.micro_f1() - 0.6).abs() < 1e-15);
        let mut classes = LabelScore::new(5);
        for (truth, guess) in [(0, 0), (2, 2), (4, 1), (2, 0), (0, 0)] {
            classes.add(&[truth], &[guess]);
        }
        assert!((classes.macro_f1() - 1.1 / 3.0).abs() < 1e-15);
    }

    #[test]
    fn a_class_that_never_occurs_does_not_lower_the_macro() {
        let mut score = LabelScore::new(5);
        score.add(&[1], &[1]);
        assert_eq!(score.macro_f1(), 1.0);
        assert_eq!(LabelScore::new(5).macro_f1(), 0.0);
    }
}
