//! How often one of two models gives the better answer, out of judgements that somebody else made.
//!
//! A win counts 1, a tie a half. Judgements of the same example (by several judges, or with the answers in both orders)
//! are averaged first, so every example counts the same, and an interval comes from drawing examples, not judgements:
//! those of one example are not independent.
//!
//! ```text
//! score of an example = mean of its judgements       win rate = mean over examples
//! interval = the middle 95 % of the win rates of RESAMPLES draws of as many examples, with replacement
//! ```

use std::collections::BTreeMap;

use fedra_seed::Seed;
use serde::Serialize;

use crate::words::words;

words! {
    /// Which answer is better.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Winner {
        /// That of the first model.
        A = "a",
        /// That of the second model.
        B = "b",
        /// Neither.
        Tie = "tie",
    }
}

/// One judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The example.
    pub id: String,
    /// Which answer is better.
    pub winner: Winner,
    /// Who says so.
    pub judge: Option<String>,
    /// Which answer was shown first; a tie is no answer.
    pub first: Option<Winner>,
    /// What kind of example it is.
    pub category: Option<String>,
}

/// Draws behind each interval.
pub const RESAMPLES: usize = 2000;
/// Share of the draws that an interval holds.
const CONFIDENCE: f64 = 0.95;

/// A share of examples, and where 95 % of such shares lie when other examples are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// The share.
    pub rate: f64,
    /// The interval's lower end; none for a single example.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// Over how many examples.
    pub examples: usize,
}

/// What the place of an answer does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PositionBias {
    /// How often the answer that was shown first wins: a half without a bias, where each answer was first as often.
    pub first_wins: Rate,
    /// Pairs of judgements of an example by one judge, with either answer first.
    pub swapped: u64,
    /// Those pairs in which the same answer wins, or both are ties.
    pub consistent: u64,
}

/// All that judgements of two models say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WinRate {
    /// How often the first model wins.
    pub win_rate: Rate,
    /// Judgements.
    pub judgements: u64,
    /// Judgements that the first model wins.
    pub wins: u64,
    /// Judgements that the second model wins.
    pub losses: u64,
    /// Judgements without a winner.
    pub ties: u64,
    /// What the place of an answer does, where it is known.
    pub position: Option<PositionBias>,
    /// The same rate by kind of example.
    pub categories: BTreeMap<String, Rate>,
    /// The same rate by judge, where there are several.
    pub judges: BTreeMap<String, Rate>,
}

impl WinRate {
    /// Of some judgements, at least one; `seed` draws examples.
    pub fn of(judgements: &[Judgement], seed: Seed) -> Option<Self> {
        let all = Examples::of(judgements.iter().map(|one| (one.id.as_str(), points(one.winner))));
        let win_rate = all.rate(seed.of("all"))?;
        let count = |winner| judgements.iter().filter(|one| one.winner == winner).count() as u64;
        Some(Self {
            win_rate,
            judgements: judgements.len() as u64,
            wins: count(Winner::A),
            losses: count(Winner::B),
            ties: count(Winner::Tie),
            position: position(judgements, seed.of("position")),
            categories: by(judgements, |one| one.category.as_deref(), seed.of("category")),
            judges: by(judgements, |one| one.judge.as_deref(), seed.of("judge")),
        })
    }
}

/// What a judgement is worth to the first model.
fn points(winner: Winner) -> f64 {
    match winner {
        Winner::A => 1.0,
        Winner::B => 0.0,
        Winner::Tie => 0.5,
    }
}

/// The rates of judgements that share a name.
fn by<'j>(
    judgements: &'j [Judgement],
    name: impl Fn(&'j Judgement) -> Option<&'j str>,
    seed: Seed,
) -> BTreeMap<String, Rate> {
    let mut named: BTreeMap<&str, Vec<(&str, f64)>> = BTreeMap::new();
    for one in judgements {
        if let Some(name) = name(one) {
            named.entry(name).or_default().push((&one.id, points(one.winner)));
        }
    }
    let rate = |(name, scored): (&str, Vec<(&str, f64)>)| {
        let rate = Examples::of(scored.into_iter()).rate(seed.of(name))?;
        Some((name.to_owned(), rate))
    };
    named.into_iter().filter_map(rate).collect()
}

fn position(judgements: &[Judgement], seed: Seed) -> Option<PositionBias> {
    let placed: Vec<(&Judgement, Winner)> =
        judgements.iter().filter_map(|one| Some((one, one.first?))).collect();
    let first_wins = placed.iter().map(|(one, first)| {
        let points = points(one.winner);
        (one.id.as_str(), if *first == Winner::A { points } else { 1.0 - points })
    });
    let first_wins = Examples::of(first_wins).rate(seed)?;
    // By example and judge, what was said with either answer first.
    let mut both: BTreeMap<(&str, Option<&str>), [Vec<Winner>; 2]> = BTreeMap::new();
    for (one, first) in &placed {
        let said = both.entry((one.id.as_str(), one.judge.as_deref())).or_default();
        said[usize::from(*first != Winner::A)].push(one.winner);
    }
    let pairs = || both.values().flat_map(|[one, other]| one.iter().zip(other));
    let swapped = pairs().count() as u64;
    let consistent = pairs().filter(|(one, other)| one == other).count() as u64;
    Some(PositionBias { first_wins, swapped, consistent })
}

/// The score of each example.
struct Examples(Vec<f64>);

impl Examples {
    /// Means of the points of each example, in the order of their names.
    fn of<'j>(points: impl Iterator<Item = (&'j str, f64)>) -> Self {
        let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for (id, points) in points {
            let (sum, count) = sums.entry(id).or_default();
            *sum += points;
            *count += 1.0;
        }
        Self(sums.into_values().map(|(sum, count)| sum / count).collect())
    }

    fn rate(&self, seed: Seed) -> Option<Rate> {
        let scores = &self.0;
        let examples = scores.len();
        let mean = |sum: f64| sum / examples as f64;
        if examples == 0 {
            return None;
        }
        let rate = mean(scores.iter().sum());
        if examples == 1 {
            return Some(Rate { rate, low: None, high: None, examples });
        }
        let mut generator = seed.generator();
        let mut drawn = || mean((0..examples).map(|_| scores[generator.below(examples)]).sum());
        let mut rates: Vec<f64> = (0..RESAMPLES).map(|_| drawn()).collect();
        rates.sort_by(f64::total_cmp);
        let outside = ((1.0 - CONFIDENCE) / 2.0 * RESAMPLES as f64) as usize;
        let (low, high) = (rates[outside], rates[RESAMPLES - 1 - outside]);
        Some(Rate { rate, low: Some(low), high: Some(high), examples })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(id: &str, winner: Winner) -> Judgement {
        Judgement { id: id.to_owned(), winner, judge: None, first: None, category: None }
    }

    #[test]
    fn ties_count_a_half_and_every_example_counts_the_same() {
        // One example was judged three times; it weighs as much as the other one.
        let judgements = [
            judged("x", Winner::A),
            judged("x", Winner::A),
            judged("x", Winner::Tie),
            judged("y", Winner::B),
        ];
        let found = WinRate::of(&judgements, Seed(1)).unwrap();
        assert!((found.win_rate.rate - (2.5 / 3.0) / 2.0).abs() < 1e-12);
        assert_eq!((found.wins, found.losses, found.ties, found.judgements), (2, 1, 1, 4));
        assert_eq!((found.win_rate.examples, &found.position), (2, &None));
        assert!(WinRate::of(&[], Seed(1)).is_none());
        let one = WinRate::of(&judgements[3..], Seed(1)).unwrap();
        assert_eq!((one.win_rate.rate, one.win_rate.low), (0.0, None));
    }

    #[test]
    fn the_interval_is_that_of_a_binomial_share_and_follows_the_seed() {
        // 300 of 400: the standard error is 0.02165, so the interval is about 0.7075 to 0.7925.
        let winner = |n: usize| if n.is_multiple_of(4) { Winner::B } else { Winner::A };
        let judgements: Vec<_> = (0..400).map(|n| judged(&n.to_string(), winner(n))).collect();
        let rate = |seed| WinRate::of(&judgements, Seed(seed)).unwrap().win_rate;
        let Rate { rate: mean, low, high, examples } = rate(7);
        let (low, high) = (low.unwrap(), high.unwrap());
        assert_eq!((mean, examples), (0.75, 400));
        assert!((low - 0.7075).abs() < 0.006 && (high - 0.7925).abs() < 0.006, "{low} {high}");
        assert_eq!(rate(7), rate(7));
        assert_ne!(rate(7), rate(8));
        // Judged twice alike, nothing is known better.
        let twice: Vec<_> = judgements.iter().chain(&judgements).cloned().collect();
        assert_eq!(WinRate::of(&twice, Seed(7)).unwrap().win_rate, rate(7));
    }

    #[test]
    fn a_judge_that_prefers_what_comes_first_is_seen_by_it_and_by_swapped_pairs() {
        let mut judgements = Vec::new();
        for n in 0..50 {
            for first in [Winner::A, Winner::B] {
                // In every fifth example the better answer wins, and otherwise the first one.
                let winner = if n % 5 == 0 { Winner::A } else { first };
                let judge = Some("j".to_owned());
                let category = Some(if n < 25 { "qa" } else { "notes" }.to_owned());
                let id = n.to_string();
                judgements.push(Judgement { id, winner, judge, first: Some(first), category });
            }
        }
        let found = WinRate::of(&judgements, Seed(3)).unwrap();
        let position = found.position.unwrap();
        assert!((position.first_wins.rate - 0.9).abs() < 1e-12);
        assert!(position.first_wins.low.unwrap() > 0.8);
        assert_eq!((position.swapped, position.consistent), (50, 10));
        assert!((found.win_rate.rate - 0.6).abs() < 1e-12);
        assert_eq!(found.categories.len(), 2);
        assert_eq!(found.categories["qa"].examples, 25);
        assert!((found.judges["j"].rate - 0.6).abs() < 1e-12);
    }
}
