//! What a run left behind, as far as a comparison reads it.

use std::fs;
use std::path::Path;

use fedra_engine::{Bytes, LogMark, RoundReport};
use serde::{Deserialize, Serialize};

use crate::error::{Context, Result};
use crate::folder::round_log;
use crate::folder::run_folder::Folder;
use crate::text::headline::{headline_of, set_name};

/// One complete run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Its summary.
    pub summary: Summed,
    /// What it had spent and reached after each round.
    pub curve: Vec<Point>,
    /// Whether any round changed the global model.
    pub changed: bool,
}

/// The part of `summary.json` that is compared.
#[derive(Clone, Debug, Deserialize)]
pub struct Summed {
    /// The method.
    pub method: String,
    /// Complete rounds.
    pub rounds: u32,
    /// The number the task is judged by.
    pub score: Option<Score>,
    /// What travelled.
    pub bytes: Bytes,
    /// What the clients computed.
    pub multiply_adds: u64,
    /// How long the rounds took.
    pub seconds: f64,
    /// The most memory the run's process held.
    pub peak_rss_bytes: u64,
    /// The log that belongs to it.
    pub log: LogMark,
    /// What the run promises, where it promises anything.
    pub privacy: Option<Privacy>,
}

/// A score with what it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// The set of examples.
    pub on: String,
}

/// What a run promises.
#[derive(Clone, Debug, Deserialize)]
pub struct Privacy {
    /// The smaller, the more.
    pub epsilon: Option<f64>,
}

/// Where a run was after a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Complete rounds.
    pub rounds: u32,
    /// Bytes so far, up and down.
    pub bytes: f64,
    /// Multiply-adds so far.
    pub work: f64,
    /// The score, if the round was scored in the way the summary is.
    pub score: Option<f64>,
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

impl RunResult {
    /// Reads the folder of a complete run.
    pub fn read(folder: &Path) -> Result<Self> {
        let (summary, rounds) = (Folder::summary_of(folder), Folder::rounds_of(folder));
        let text = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let summary: Summed = serde_json::from_str(&text(&summary)?)
            .with_context(|| format!("reading {}", summary.display()))?;
        let mut reports: Vec<RoundReport> = Vec::new();
        round_log::read(&rounds, summary.log, &mut |report| reports.push(report))?;
        let curve = curve(&summary, &reports);
        let changed = reports.iter().any(|report| report.changed > 0);
        Ok(Self { summary, curve, changed })
    }

    /// What the whole run spent.
    pub fn spent(&self, on: Spent) -> f64 {
        self.curve.last().map_or(0.0, |last| last.spent(on))
    }

    /// Rounds and score of the last scored round within a budget; `None` when there was none.
    pub fn within(&self, on: Spent, budget: f64) -> Option<(u32, f64)> {
        let affordable = |point: &&Point| point.spent(on) <= budget * (1.0 + SLACK);
        let mut scored =
            self.curve.iter().filter(affordable).filter_map(|p| Some((p.rounds, p.score?)));
        scored.next_back()
    }
}

/// Runs whose spending differs by no more have spent the same: a whole round is not lost for it.
pub const SLACK: f64 = 0.01;

impl Point {
    fn spent(&self, on: Spent) -> f64 {
        match on {
            Spent::Rounds => f64::from(self.rounds),
            Spent::Bytes => self.bytes,
            Spent::Work => self.work,
        }
    }
}

fn curve(summary: &Summed, reports: &[RoundReport]) -> Vec<Point> {
    let effort: u64 = reports.iter().map(|report| report.effort).sum();
    let unit = if effort == 0 { 0.0 } else { summary.multiply_adds as f64 / effort as f64 };
    let (mut bytes, mut work) = (0.0, 0.0);
    let mut points = Vec::with_capacity(reports.len());
    for report in reports {
        bytes += (report.bytes.up + report.bytes.down).0 as f64;
        work += report.effort as f64 * unit;
        let alike = |score: &Score| {
            let set = report.scores.iter().find(|set| set_name(set.on) == score.on)?;
            let (name, value) = headline_of(&set.mean)?;
            (name == score.name).then_some(value)
        };
        let score = summary.score.as_ref().and_then(alike);
        points.push(Point { rounds: report.round.0 + 1, bytes, work, score });
    }
    // Where clients keep parameters of their own, the central score comes at the end alone.
    if let (Some(last), Some(score)) = (points.last_mut(), &summary.score) {
        last.score = Some(score.value);
    }
    points
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use fedra_plan::ByteCount;

    /// A run that sends so many bytes a round and reaches these scores.
    pub fn run(bytes: u64, scores: &[f64]) -> RunResult {
        let curve: Vec<Point> = (1..)
            .zip(scores)
            .map(|(rounds, score)| Point {
                rounds,
                bytes: f64::from(rounds) * bytes as f64,
                work: f64::from(rounds) * 10.0,
                score: Some(*score),
            })
            .collect();
        let total = ByteCount(bytes * scores.len() as u64);
        let value = scores.last().copied().expect("a round");
        let summary = Summed {
            method: "fedavg".to_owned(),
            rounds: scores.len() as u32,
            score: Some(Score { name: "span_f1".into(), value, on: "central_test".into() }),
            bytes: Bytes {
                up: total,
                down: ByteCount(0),
                full_up: total,
                full_down: total,
                evaluation: ByteCount(0),
                ..Bytes::default()
            },
            multiply_adds: 10 * scores.len() as u64,
            seconds: 1.0,
            peak_rss_bytes: 1,
            log: LogMark::default(),
            privacy: None,
        };
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
