//! The numbers of a comparison: what `compare.json` says and every table shows.
//!
//! Methods differ in what they spend, so there is more than one fair question. After all rounds,
//! at equal bytes and at equal client compute are three, and each gets a table. A difference to
//! the baseline is taken seed by seed: both had the same data and the same first weights.

use std::collections::BTreeMap;

use fedra_engine::Bytes;
use fedra_plan::ByteCount;
use serde::{Deserialize, Serialize};

use super::results::{RunResult, SLACK, Spent};
use super::statistics::{Average, CONFIDENCE, FEWEST, Verdict};

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// What it is called.
    pub name: String,
    /// The seeds, of which every variant ran all.
    pub seeds: Vec<u64>,
    /// The score and the set it is on, where all variants have the same.
    pub score: Option<Judged>,
    /// Share of such intervals that hold the true mean.
    pub confidence: f64,
    /// The variants after all their rounds.
    pub variants: Vec<Line>,
    /// The variants when they had spent the same.
    pub at_equal: BTreeMap<String, Vec<Row>>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// What variants are judged by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The score's name.
    pub name: String,
    /// The set of examples.
    pub on: String,
}

/// One variant and its runs.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The values that were chosen for it, as `rate=0.001`.
    pub tuned: Vec<String>,
    /// The place of the variant it is held against.
    pub baseline: Option<usize>,
    /// Its runs by seed; a run that failed is absent.
    pub runs: BTreeMap<u64, RunResult>,
}

/// One variant after all its rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its method.
    pub method: String,
    /// The values that were chosen for it.
    pub tuned: Vec<String>,
    /// How it did.
    #[serde(flatten)]
    pub standing: Standing,
    /// Score by seed.
    pub by_seed: BTreeMap<u64, Option<f64>>,
    /// Bytes of a run, in the mean.
    pub bytes: Bytes,
    /// Their share of what `FedAvg` over every parameter in f32 would have sent; absent when
    /// nothing could have been.
    pub share: Option<f64>,
    /// Client compute of a run, in the mean.
    pub multiply_adds: u64,
    /// Time of a run, in the mean.
    pub seconds: f64,
    /// The most memory of any run.
    pub peak_rss_bytes: u64,
    /// The largest epsilon of any run, where runs guarantee one.
    pub epsilon: Option<f64>,
}

/// A score, and what it is beside the baseline's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Rounds behind the score, in the mean.
    pub rounds: f64,
    /// The mean over seeds; absent when there is no score.
    pub score: Option<Average>,
    /// What it is held against.
    pub baseline: Option<String>,
    /// The mean of the differences, seed by seed.
    pub difference: Option<Average>,
    /// What that amounts to.
    pub verdict: Option<Verdict>,
}

/// One variant within a budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// How much it could spend, in the mean over seeds; absent where nobody spent anything.
    pub budget: Option<f64>,
    /// Whose whole run cost that: the cheapest of those held against one baseline.
    pub set_by: Option<String>,
    /// How it did.
    #[serde(flatten)]
    pub standing: Standing,
}

impl Comparison {
    /// Compares.
    pub fn of(name: &str, seeds: &[u64], entries: &[Entry]) -> Self {
        let mut notes = Vec::new();
        let mut kinds: Vec<Judged> = Vec::new();
        for kind in entries.iter().filter_map(Entry::judged) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if kinds.len() > 1 {
            let words: Vec<String> =
                kinds.iter().map(|kind| format!("{} on the {}", kind.name, kind.on)).collect();
            notes.push(format!(
                "scores of different kinds ({}) are shown side by side, without a comparison",
                words.join(", ")
            ));
        }
        let last = standings(entries, &|_, _, run| {
            Some((run.summary.rounds, run.summary.score.as_ref()?.value))
        });
        let lines = entries.iter().zip(last).map(|(entry, standing)| entry.line(seeds, standing));
        let variants: Vec<Line> = lines.collect();
        let mut at_equal = BTreeMap::new();
        for (name, on) in
            [("rounds", Spent::Rounds), ("bytes", Spent::Bytes), ("compute", Spent::Work)]
        {
            if let Some(budgeted) = budgeted(entries, on) {
                at_equal.insert(name.to_owned(), budgeted);
            }
        }
        notes.extend(warnings(seeds, &variants));
        let score = if kinds.len() == 1 { kinds.pop() } else { None };
        let (name, seeds) = (name.to_owned(), seeds.to_vec());
        Self { name, seeds, score, confidence: CONFIDENCE, variants, at_equal, notes }
    }
}

impl Entry {
    fn judged(&self) -> Option<Judged> {
        let score = self.runs.values().find_map(|run| run.summary.score.as_ref())?;
        Some(Judged { name: score.name.clone(), on: score.on.clone() })
    }

    fn line(&self, seeds: &[u64], standing: Standing) -> Line {
        let runs = || self.runs.values().map(|run| &run.summary);
        let count = self.runs.len().max(1) as u64;
        let mut bytes = Bytes::default();
        runs().for_each(|run| bytes += run.bytes);
        for one in [&mut bytes.up, &mut bytes.down, &mut bytes.full_up, &mut bytes.full_down] {
            *one = ByteCount(one.0 / count);
        }
        let (sent, full) = ((bytes.up + bytes.down).0, (bytes.full_up + bytes.full_down).0);
        let value = |seed: &u64| Some(self.runs.get(seed)?.summary.score.as_ref()?.value);
        Line {
            name: self.name.clone(),
            method: runs().next().map_or_else(String::new, |run| run.method.clone()),
            tuned: self.tuned.clone(),
            standing,
            by_seed: seeds.iter().map(|seed| (*seed, value(seed))).collect(),
            bytes,
            share: (full > 0).then(|| sent as f64 / full as f64),
            multiply_adds: runs().map(|run| run.multiply_adds).sum::<u64>() / count,
            seconds: runs().map(|run| run.seconds).sum::<f64>() / count as f64,
            peak_rss_bytes: runs().map(|run| run.peak_rss_bytes).max().unwrap_or(0),
            epsilon: runs().filter_map(|run| run.privacy.as_ref()?.epsilon).reduce(f64::max),
        }
    }

    /// What a run spent, in the mean; `None` where it has nothing to set a budget with.
    fn spent(&self, on: Spent) -> Option<f64> {
        let spent: f64 = self.runs.values().map(|run| run.spent(on)).sum();
        // A run whose model nobody shares spends bytes on headers: it sets no budget for others.
        let counts = spent > 0.0 && (on != Spent::Bytes || self.shares());
        counts.then(|| spent / self.runs.len() as f64)
    }

    fn shares(&self) -> bool {
        self.runs.values().all(|run| run.changed)
    }
}

/// Rounds and score of a run under some budget, for the place of its variant and its seed.
type Reached<'a> = &'a dyn Fn(usize, u64, &RunResult) -> Option<(u32, f64)>;

fn standings(entries: &[Entry], reached: Reached<'_>) -> Vec<Standing> {
    let mut scores: Vec<BTreeMap<u64, (u32, f64)>> = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        let runs = entry.runs.iter();
        let runs = runs.filter_map(|(seed, run)| Some((*seed, reached(place, *seed, run)?)));
        scores.push(runs.collect());
    }
    let one = |(entry, own): (&Entry, &BTreeMap<u64, (u32, f64)>)| {
        let baseline = entry.baseline.filter(|at| entries[*at].judged() == entry.judged());
        let difference = baseline.and_then(|at| {
            let both =
                own.iter().filter_map(|(seed, (_, score))| Some(score - scores[at].get(seed)?.1));
            Average::of(&both.collect::<Vec<f64>>())
        });
        let values: Vec<f64> = own.values().map(|(_, score)| *score).collect();
        let rounds: u64 = own.values().map(|(rounds, _)| u64::from(*rounds)).sum();
        Standing {
            rounds: rounds as f64 / own.len().max(1) as f64,
            score: Average::of(&values),
            baseline: baseline.map(|at| entries[at].name.clone()),
            difference,
            verdict: difference.as_ref().and_then(Average::verdict),
        }
    };
    entries.iter().zip(&scores).map(one).collect()
}

/// The variants at what the cheapest of their group spent; `None` when all spent the same.
///
/// A group is a baseline and all that is held against it: elsewhere the data may be others. Models
/// differ a little in size from seed to seed, so each seed has the budget of its own run.
fn budgeted(entries: &[Entry], on: Spent) -> Option<Vec<Row>> {
    let group = |place: usize| entries[place].baseline.unwrap_or(place);
    let cheapest = |place: usize| {
        let beside = (0..entries.len()).filter(|other| group(*other) == group(place));
        let spending =
            beside.filter_map(|other| Some((entries[other].spent(on)?, &entries[other])));
        spending.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let budgets: Vec<Option<(f64, &Entry)>> = (0..entries.len()).map(cheapest).collect();
    let is_dearer =
        |(entry, budget): (&Entry, &Option<(f64, &Entry)>)| match (entry.spent(on), budget) {
            (Some(spent), Some((budget, _))) => spent > budget * (1.0 + SLACK),
            (None, _) | (_, None) => false,
        };
    if !entries.iter().zip(&budgets).any(is_dearer) {
        return None;
    }
    let standings = standings(entries, &|place, seed, run| {
        let own = budgets[place].map(|(mean, by)| by.runs.get(&seed).map_or(mean, |r| r.spent(on)));
        run.within(on, own.unwrap_or(f64::INFINITY))
    });
    let rows = entries.iter().zip(budgets).zip(standings).map(|((entry, budget), standing)| Row {
        name: entry.name.clone(),
        budget: budget.map(|(mean, _)| mean),
        set_by: budget.map(|(_, by)| by.name.clone()),
        standing,
    });
    Some(rows.collect())
}

/// Comparisons beyond which a difference by luck is to be expected.
const MANY: usize = 5;

fn warnings(seeds: &[u64], variants: &[Line]) -> Vec<String> {
    let mut notes = Vec::new();
    if seeds.len() < FEWEST {
        let few = if seeds.len() == 1 { "one seed decides" } else { "two seeds decide" };
        notes
            .push(format!("{few} nothing, so there are no verdicts; use --seeds {FEWEST} or more"));
    }
    for line in variants {
        let missing = line.by_seed.values().filter(|score| score.is_none()).count();
        if missing > 0 {
            let (name, of) = (&line.name, seeds.len());
            notes.push(format!("{name}: {missing} of {of} runs have no score"));
        }
    }
    let compared = variants.iter().filter(|line| line.standing.verdict.is_some()).count();
    if compared > MANY {
        notes.push(format!(
            "{compared} differences were tested, each with its own 95 % interval: about one in 20 excludes zero \
             by chance"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::compare::results::tests::run;

    fn entry(name: &str, baseline: Option<usize>, runs: &[(u64, &[f64])]) -> Entry {
        let runs = runs.iter().enumerate();
        let runs = runs.map(|(seed, (bytes, scores))| (seed as u64, run(*bytes, scores)));
        Entry { name: name.to_owned(), tuned: Vec::new(), baseline, runs: runs.collect() }
    }

    /// B is better than A by 0.1 in each seed, and A's seeds differ by more than that.
    fn paired() -> [Entry; 2] {
        [
            entry("a", None, &[(10, &[0.2, 0.3]), (10, &[0.2, 0.5]), (10, &[0.2, 0.7])]),
            entry("b", Some(0), &[(30, &[0.1, 0.41]), (30, &[0.1, 0.6]), (30, &[0.1, 0.79])]),
        ]
    }

    #[test]
    fn a_difference_is_taken_seed_by_seed() {
        let comparison = Comparison::of("x", &[0, 1, 2], &paired());
        let standing = &comparison.variants[1].standing;
        assert_eq!(standing.verdict, Some(Verdict::Better));
        let difference = standing.difference.expect("a difference");
        assert!((difference.mean - 0.1).abs() < 1e-12);
        // Unpaired, the intervals of the two means overlap widely.
        let means = comparison.variants.iter().map(|line| line.standing.score.expect("a score"));
        let means: Vec<Average> = means.collect();
        assert!(means[1].mean - means[1].margin.unwrap_or(0.0) < means[0].mean);
        assert_eq!(comparison.variants[0].standing.verdict, None);
    }

    #[test]
    fn what_is_better_after_all_rounds_may_be_worse_at_equal_bytes() {
        let comparison = Comparison::of("x", &[0, 1, 2], &paired());
        let at_bytes = &comparison.at_equal["bytes"];
        // 20 bytes are two rounds of A and less than one of B.
        assert_eq!((at_bytes[1].budget, at_bytes[1].set_by.as_deref()), (Some(20.0), Some("a")));
        assert_eq!(at_bytes[0].standing.rounds, 2.0);
        assert_eq!(at_bytes[1].standing.score, None);
        // Both ran two rounds of equal work: there is nothing to make equal.
        assert!(!comparison.at_equal.contains_key("compute"));
        assert!(!comparison.at_equal.contains_key("rounds"));
    }

    #[test]
    fn a_variant_that_shares_nothing_sets_no_budget() {
        let mut entries = paired().to_vec();
        let mut alone = entry("alone", Some(0), &[(1, &[0.1, 0.2])]);
        alone.runs.values_mut().for_each(|run| run.changed = false);
        entries.push(alone);
        let comparison = Comparison::of("x", &[0, 1, 2], &entries);
        let setters = comparison.at_equal["bytes"].iter().map(|row| row.set_by.as_deref());
        assert_eq!(setters.collect::<Vec<_>>(), [Some("a"); 3]);
    }

    #[test]
    fn a_budget_is_set_among_those_held_against_one_baseline() {
        let mut entries = paired().to_vec();
        entries.push(entry("cheap elsewhere", None, &[(1, &[0.1, 0.2])]));
        entries.push(entry("dear elsewhere", Some(2), &[(2, &[0.3, 0.4])]));
        let rows = &Comparison::of("x", &[0, 1, 2], &entries).at_equal["bytes"];
        let budgets = rows.iter().map(|row| row.budget.unwrap_or(0.0));
        assert_eq!(budgets.collect::<Vec<_>>(), [20.0, 20.0, 2.0, 2.0]);
        assert_eq!(rows[3].standing.rounds, 1.0);
    }

    #[test]
    fn one_seed_decides_nothing_and_says_so() {
        let entries = [entry("a", None, &[(10, &[0.3])]), entry("b", Some(0), &[(10, &[0.9])])];
        let comparison = Comparison::of("x", &[0], &entries);
        let standing = &comparison.variants[1].standing;
        assert_eq!(standing.verdict, None);
        assert_eq!(standing.score.and_then(|score| score.margin), None);
        assert!(comparison.notes[0].contains("one seed decides nothing"));
    }

    #[test]
    fn scores_of_different_kinds_are_not_compared() {
        let mut entries = paired();
        for run in entries[1].runs.values_mut() {
            if let Some(score) = &mut run.summary.score {
                score.on = "client_test".to_owned();
            }
        }
        let comparison = Comparison::of("x", &[0, 1, 2], &entries);
        assert_eq!(comparison.variants[1].standing.difference, None);
        assert_eq!(comparison.score, None);
        assert!(comparison.notes[0].contains("different kinds"), "{:?}", comparison.notes);
    }
}
