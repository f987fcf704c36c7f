//! What a run left behind, as far as a comparison reads it.

use std::path::Path;

use crate::error::{Context, Result};
use crate::folder::summary::Summary;
use crate::report::{CurvePoint, Detail, RunRecord};

/// One complete run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Its summary.
    pub summary: Summary,
    /// What it had spent and reached after each round.
    pub curve: Vec<CurvePoint>,
    /// Whether any round changed the global model.
    pub changed: bool,
}

/// What runs may be made equal in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spent {
    /// Rounds.
    Rounds,
    /// Bytes up and down.
    Bytes,
    /// Client compute.
    Work,
}

impl Spent {
    fn of(self, point: &CurvePoint) -> f64 {
        match self {
            Self::Rounds => f64::from(point.rounds),
            Self::Bytes => point.bytes,
            Self::Work => point.work,
        }
    }
}

impl RunResult {
    /// Reads the folder of a complete run.
    pub fn read(folder: &Path) -> Result<Self> {
        let record = RunRecord::read(folder, Detail::Means)?;
        let (name, on) = record.judged().unwrap_or_default();
        let curve = record.curve(&name, &on);
        let changed = record.rounds.iter().any(|report| report.changed > 0);
        let summary = record.summary;
        let mut summary =
            summary.with_context(|| format!("{} is not complete", folder.display()))?;
        // A run that diverged has no score.
        summary.score = summary.score.filter(|score| score.value.is_finite());
        Ok(Self { summary, curve, changed })
    }

    /// What the whole run spent.
    pub fn spent(&self, on: Spent) -> f64 {
        self.curve.last().map_or(0.0, |last| on.of(last))
    }

    /// Rounds and score of the last scored round within a budget; `None` when there was none.
    pub fn within(&self, on: Spent, budget: f64) -> Option<(u32, f64)> {
        let affordable = |point: &&CurvePoint| on.of(point) <= budget * (1.0 + SLACK);
        let mut scored = self
            .curve
            .iter()
            .filter(affordable)
            .filter_map(|p| Some((p.rounds, p.score.filter(|score| score.is_finite())?)));
        scored.next_back()
    }
}

/// Runs whose spending differs by no more have spent the same: a whole round is not lost for it.
pub const SLACK: f64 = 0.01;

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::folder::summary::Score;
    use fedra_engine::Bytes;
    use fedra_plan::ByteCount;

    /// A run that sends so many bytes a round and reaches these scores.
    pub fn run(bytes: u64, scores: &[f64]) -> RunResult {
        let curve = (1..).zip(scores).map(|(rounds, score)| CurvePoint {
            rounds,
            bytes: f64::from(rounds) * bytes as f64,
            work: f64::from(rounds) * 10.0,
            score: Some(*score),
        });
        let total = ByteCount(bytes * scores.len() as u64);
        let value = scores.last().copied().expect("a round");
        let summary = Summary {
            score: Some(Score { name: "span_f1".into(), value, on: "central_test".into() }),
            bytes: Bytes { up: total, full_up: total, full_down: total, ..Bytes::default() },
            ..Summary::of_nothing(scores.len() as u32)
        };
        let curve = curve.collect();
        RunResult { summary, curve, changed: true }
    }

    #[test]
    fn a_budget_buys_the_last_round_it_covers() {
        let run = run(100, &[0.2, 0.5, 0.6]);
        assert_eq!(run.within(Spent::Bytes, 250.0), Some((2, 0.5)));
        assert_eq!(run.within(Spent::Bytes, 300.0), Some((3, 0.6)));
        assert_eq!(run.within(Spent::Bytes, 99.0), None);
        assert_eq!(run.within(Spent::Work, 10.0), Some((1, 0.2)));
        assert_eq!(run.spent(Spent::Rounds), 3.0);
    }

    #[test]
    fn a_round_without_a_score_is_passed_over() {
        let mut run = run(100, &[0.2, 0.5, 0.6]);
        run.curve[1].score = None;
        assert_eq!(run.within(Spent::Rounds, 2.0), Some((1, 0.2)));
    }
}
