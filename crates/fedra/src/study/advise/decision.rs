//! What the differences between a branch and the trunk allow to say, and which warm-up follows.
//!
//! Clients are the sample. A difference is the mean of the clients' own differences, weighted by
//! their validation examples as everywhere; its interval comes from leaving out one client at a time
//! (the jackknife), with Student's t for the clients less one. All candidates of a pilot share the 5 %
//! of error, so that trying more of them does not find more by luck:
//!
//! ```text
//! d_i       difference without client i
//! margin    t(1 - 0.025 / candidates, n - 1) * sqrt((n - 1) / n * sum_i (d_i - mean d_i)^2)
//! better    d - margin > 0            worse   d + margin < 0
//! as good   d - margin > -tolerance   (and not better)
//! ```

use serde::Serialize;

use crate::study::compare::{Verdict, quantile};

/// The share of pilots that may find something where nothing is.
const ERROR: f64 = 0.05;

/// What one client saw: the branch's score less the trunk's, and its number of examples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// The difference.
    pub difference: f64,
    /// Validation examples behind it.
    pub examples: f64,
}

/// A difference and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// The mean over clients, by examples.
    pub mean: f64,
    /// Half the width of its interval; absent when there is but one client.
    pub margin: Option<f64>,
}

impl Gap {
    /// The gap that clients saw, as one of so many candidates; `None` without clients.
    pub fn of(clients: &[Paired], candidates: usize) -> Option<Self> {
        let mean = |left_out: Option<usize>| {
            let (mut sum, mut examples) = (0.0, 0.0);
            for (place, client) in clients.iter().enumerate() {
                if Some(place) != left_out {
                    sum += client.difference * client.examples;
                    examples += client.examples;
                }
            }
            sum / examples
        };
        let count = clients.len();
        if count == 0 {
            return None;
        }
        let margin = (count > 1).then(|| {
            let without: Vec<f64> = (0..count).map(|place| mean(Some(place))).collect();
            let middle = without.iter().sum::<f64>() / count as f64;
            let squares: f64 = without.iter().map(|one| (one - middle) * (one - middle)).sum();
            let freedom = count - 1;
            let deviation = (freedom as f64 / count as f64 * squares).sqrt();
            quantile(1.0 - ERROR / 2.0 / candidates.max(1) as f64, freedom) * deviation
        });
        Some(Self { mean: mean(None), margin })
    }

    /// What it amounts to, if a loss of so much is tolerable.
    pub fn finding(self, tolerance: f64) -> Verdict {
        let Some(margin) = self.margin else { return Verdict::NoDifferenceSeen };
        match self.mean {
            mean if mean - margin > 0.0 => Verdict::Better,
            mean if mean - margin > -tolerance => Verdict::AsGood,
            mean if mean + margin < 0.0 => Verdict::Worse,
            _ => Verdict::NoDifferenceSeen,
        }
    }

    /// Whether even the upper end loses more than is tolerable: no reason to look further.
    pub fn is_clearly_behind(self, tolerance: f64) -> bool {
        self.margin.is_some_and(|margin| self.mean + margin < -tolerance)
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proposal {
    /// Freeze after so many rounds: that was better.
    Freeze(u32),
    /// Freeze after so many rounds: that was as good and sends less.
    Save(u32),
    /// Do not freeze: no candidate was better or as good, but some may be.
    NeverUnclear,
    /// Do not freeze: every candidate was seen to be worse.
    NeverWorse,
}

impl Proposal {
    /// What follows from a finding and a gap for each warm-up, rising.
    pub fn of(candidates: &[(u32, Verdict, f64)]) -> Self {
        let found = |wanted: Verdict| candidates.iter().filter(move |one| one.1 == wanted);
        // Of equals the earlier one, which sends less.
        let best = found(Verdict::Better).rev().max_by(|left, right| left.2.total_cmp(&right.2));
        if let Some((warmup, ..)) = best {
            return Self::Freeze(*warmup);
        }
        if let Some((warmup, ..)) = found(Verdict::AsGood).next() {
            return Self::Save(*warmup);
        }
        if found(Verdict::NoDifferenceSeen).next().is_some() {
            return Self::NeverUnclear;
        }
        Self::NeverWorse
    }

    /// The warm-up, or none.
    pub const fn warmup(self) -> Option<u32> {
        match self {
            Self::Freeze(warmup) | Self::Save(warmup) => Some(warmup),
            Self::NeverUnclear | Self::NeverWorse => None,
        }
    }

    /// Why.
    pub fn reason(self, tolerance: f64) -> String {
        match self {
            Self::Freeze(_) => "the branch that froze then ended better than the trunk".to_owned(),
            Self::Save(_) => format!(
                "no warm-up was significantly better; this is the earliest that loses less than {tolerance:.4}, \
                 and it sends least"
            ),
            Self::NeverUnclear => format!(
                "no warm-up was significantly better, and for none is the loss certainly below {tolerance:.4}"
            ),
            Self::NeverWorse => "every branch that froze ended worse than the trunk".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(differences: &[(f64, f64)], candidates: usize) -> Gap {
        let paired = |&(difference, examples): &(f64, f64)| Paired { difference, examples };
        let clients: Vec<Paired> = differences.iter().map(paired).collect();
        Gap::of(&clients, candidates).expect("there are clients")
    }

    #[test]
    fn with_equal_clients_the_interval_is_the_usual_one() {
        // Mean 2, deviation 1, three values: t(0.975, 2) = 4.3027 over the root of three.
        let found = gap(&[(1.0, 5.0), (2.0, 5.0), (3.0, 5.0)], 1);
        assert!((found.mean - 2.0).abs() < 1e-12);
        assert!((found.margin.unwrap() - 4.302_652_7 / 3.0_f64.sqrt()).abs() < 1e-6);
        // Four candidates share the error: t(0.99375, 2) = 8.860.
        let shared = gap(&[(1.0, 5.0), (2.0, 5.0), (3.0, 5.0)], 4).margin.unwrap();
        assert!((shared - 8.860 / 3.0_f64.sqrt()).abs() < 1e-3, "{shared}");
    }

    #[test]
    fn a_client_counts_by_its_examples_and_one_alone_proves_nothing() {
        let found = gap(&[(1.0, 30.0), (0.0, 10.0)], 1);
        assert!((found.mean - 0.75).abs() < 1e-12);
        // Without the one it is 0, without the other 1: a deviation of one half.
        assert!((found.margin.unwrap() - 12.706_204_7 / 2.0).abs() < 1e-5);
        let alone = gap(&[(1.0, 30.0)], 1);
        assert_eq!((alone.margin, alone.finding(0.01)), (None, Verdict::NoDifferenceSeen));
        assert_eq!(Gap::of(&[], 1), None);
    }

    #[test]
    fn a_finding_needs_the_whole_interval() {
        let finding = |mean, margin| Gap { mean, margin: Some(margin) }.finding(0.01);
        assert_eq!(finding(0.03, 0.02), Verdict::Better);
        assert_eq!(finding(0.01, 0.015), Verdict::AsGood);
        assert_eq!(finding(-0.002, 0.001), Verdict::AsGood);
        assert_eq!(finding(-0.03, 0.02), Verdict::Worse);
        assert_eq!(finding(-0.01, 0.02), Verdict::NoDifferenceSeen);
        assert!(Gap { mean: -0.05, margin: Some(0.03) }.is_clearly_behind(0.01));
        assert!(!Gap { mean: -0.03, margin: Some(0.025) }.is_clearly_behind(0.01));
        assert!(!Gap { mean: -0.9, margin: None }.is_clearly_behind(0.01));
    }

    #[test]
    fn the_best_of_the_better_then_the_earliest_as_good_then_never() {
        use Verdict::{AsGood, Better, NoDifferenceSeen, Worse};
        let check = |candidates: &[(u32, Verdict, f64)], expected| {
            assert_eq!(Proposal::of(candidates), expected, "{candidates:?}");
        };
        check(&[(0, Worse, -0.1), (2, Better, 0.1), (4, Better, 0.2)], Proposal::Freeze(4));
        check(&[(0, AsGood, 0.0), (2, Better, 0.1), (4, Better, 0.1)], Proposal::Freeze(2));
        check(&[(0, Worse, -0.1), (2, AsGood, -0.001), (4, AsGood, 0.0)], Proposal::Save(2));
        check(&[(0, Worse, -0.1), (2, NoDifferenceSeen, 0.05)], Proposal::NeverUnclear);
        check(&[(0, Worse, -0.1), (2, Worse, -0.05)], Proposal::NeverWorse);
    }
}
