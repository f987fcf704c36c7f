//! F1 where an example has any number of codes.

use serde::{Deserialize, Serialize};

use super::{Tally, macro_f1, ratio, total};

/// Micro and macro F1 of multi-label predictions.
///
/// ```
/// use fedra_data::CodeScore;
/// let mut score = CodeScore::new(4);
/// score.add(&[0, 3], &[0, 2]);
/// assert_eq!(score.micro_f1(), 0.5);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeScore {
    tallies: Vec<Tally>,
    exact: u64,
    seen: u64,
}

impl CodeScore {
    /// Nothing seen yet, of so many codes.
    pub fn new(codes: usize) -> Self {
        Self { tallies: vec![Tally::default(); codes], exact: 0, seen: 0 }
    }

    /// Counts one example; the order of codes does not matter and a repeat counts once.
    ///
    /// # Panics
    /// When a code is not below the number of codes.
    pub fn add(&mut self, truth: &[u32], guess: &[u32]) {
        let mut same = true;
        for (code, tally) in self.tallies.iter_mut().enumerate() {
            let code = code as u32;
            match (truth.contains(&code), guess.contains(&code)) {
                (true, true) => tally.hits += 1,
                (true, false) => tally.misses += 1,
                (false, true) => tally.alarms += 1,
                (false, false) => continue,
            }
            same &= truth.contains(&code) == guess.contains(&code);
        }
        let top = self.tallies.len() as u32;
        assert!(truth.iter().chain(guess).all(|&code| code < top), "a code outside the set");
        self.exact += u64::from(same);
        self.seen += 1;
    }

    /// Adds what another accumulator has counted.
    ///
    /// # Panics
    /// When the other has a different number of codes.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.tallies.len(), other.tallies.len(), "scores of different code counts");
        self.tallies.iter_mut().zip(&other.tallies).for_each(|(tally, more)| tally.add(*more));
        self.exact += other.exact;
        self.seen += other.seen;
    }

    /// F1 of the pooled counts.
    pub fn micro_f1(&self) -> f64 {
        total(&self.tallies).f1()
    }

    /// Mean F1 over the codes that occur.
    pub fn macro_f1(&self) -> f64 {
        macro_f1(&self.tallies)
    }

    /// The share of examples whose whole set is right.
    pub fn exact(&self) -> f64 {
        ratio(self.exact, self.seen)
    }

    /// The counts of each code.
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
    fn micro_and_macro_differ_as_computed_by_hand() {
        let mut score = CodeScore::new(3);
        score.add(&[0, 1], &[0]);
        score.add(&[0], &[0, 2]);
        score.add(&[], &[]);
        // Pooled: 2 hits, 1 alarm, 1 miss. By code: 1, 0, 0.
        assert!((score.micro_f1() - 4.0 / 6.0).abs() < 1e-15);
        assert!((score.macro_f1() - 1.0 / 3.0).abs() < 1e-15);
        assert!((score.exact() - 1.0 / 3.0).abs() < 1e-15);
    }
}
