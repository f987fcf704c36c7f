//! How well a score tells members from others: true against false positives at every threshold.
//!
//! Scores of several attacked models are read as one list, so a threshold is one threshold for all of
//! them. A row appears once for each model, and a model once for each row, so intervals come from
//! drawing rows and models anew, each with replacement. That counts both sources of chance and is a
//! little wide rather than narrow.

use fedra_seed::Seed;
use serde::Serialize;

use crate::error::{AuditError, Result};

/// Draws behind an interval.
const DRAWS: usize = 500;
/// What lies outside a 95 % interval on each side.
const OUTSIDE: f64 = 0.025;

/// One row as an attack scored it against one model; a higher score says member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredRow {
    /// The attack's score.
    pub score: f64,
    /// Whether the model learnt from the row.
    pub is_member: bool,
    /// Which model.
    pub model: usize,
    /// Which row.
    pub row: usize,
}

/// The curve of true against false positives.
#[derive(Clone, Debug)]
pub struct Roc {
    /// The highest score first.
    rows: Vec<ScoredRow>,
    /// How many rows are members.
    pub members: u64,
    /// How many are not.
    pub others: u64,
}

/// A number and the 95 % interval around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// As measured.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Roc {
    /// Orders the rows; refuses scores that are no numbers, and rows of one kind only.
    pub fn new(mut rows: Vec<ScoredRow>) -> Result<Self> {
        if let Some(odd) = rows.iter().find(|row| row.score.is_nan()) {
            let found = format!("no number for row {} of model {}", odd.row, odd.model);
            return Err(AuditError::setting("scores", found, "a number for each"));
        }
        let members = rows.iter().filter(|row| row.is_member).count() as u64;
        let others = rows.len() as u64 - members;
        if members == 0 || others == 0 {
            let found = format!("{members} members and {others} others");
            return Err(AuditError::setting("scores", found, "at least one of each"));
        }
        rows.sort_by(|left, right| right.score.total_cmp(&left.score));
        Ok(Self { rows, members, others })
    }

    /// False and true positives at every threshold, the strictest first.
    pub fn points(&self) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        self.walk(&|_| 1.0, &mut |alarms, found| {
            points.push((alarms / self.others as f64, found / self.members as f64));
        });
        points
    }

    /// The area under the curve, and the share found at each share of false alarms, with intervals.
    pub fn estimates(&self, fprs: &[f64], seed: Seed) -> (Estimate, Vec<Estimate>) {
        let count = |of: fn(&ScoredRow) -> usize| self.rows.iter().map(of).max().unwrap_or(0) + 1;
        let (models, rows) = (count(|row| row.model), count(|row| row.row));
        let mut drawn: Vec<Vec<f64>> = vec![Vec::with_capacity(DRAWS); 1 + fprs.len()];
        for draw in 0..DRAWS {
            let seed = seed.with(draw as u64);
            let models = resampled(models, seed.of("models"));
            let rows = resampled(rows, seed.of("rows"));
            let weight = |row: &ScoredRow| f64::from(models[row.model] * rows[row.row]);
            let (auc, found) = self.sweep(&weight, fprs);
            if auc.is_nan() {
                continue; // a draw without a member, or without another row
            }
            for (all, one) in drawn.iter_mut().zip([auc].into_iter().chain(found)) {
                all.push(one);
            }
        }
        let (auc, found) = self.sweep(&|_| 1.0, fprs);
        let measured = [auc].into_iter().chain(found);
        let mut all = measured.zip(drawn).map(|(value, drawn)| Estimate::of(value, drawn));
        let auc = all.next().expect("the area comes first");
        (auc, all.collect())
    }

    /// Area and shares found, each row with a weight; no numbers where one kind has no weight.
    fn sweep(&self, weight: &dyn Fn(&ScoredRow) -> f64, fprs: &[f64]) -> (f64, Vec<f64>) {
        let (mut members, mut others) = (0.0, 0.0);
        for row in &self.rows {
            *(if row.is_member { &mut members } else { &mut others }) += weight(row);
        }
        let mut found = vec![0.0_f64; fprs.len()];
        let (mut area, mut before) = (0.0, (0.0, 0.0));
        self.walk(weight, &mut |alarms, right| {
            area += (alarms - before.0) * (right + before.1) / 2.0;
            before = (alarms, right);
            for (best, fpr) in found.iter_mut().zip(fprs) {
                if alarms <= fpr * others {
                    *best = right / members;
                }
            }
        });
        (area / (members * others), found)
    }

    /// Weights of false alarms and of members found, after each group of equal scores.
    fn walk(&self, weight: &dyn Fn(&ScoredRow) -> f64, told: &mut dyn FnMut(f64, f64)) {
        let (mut alarms, mut found) = (0.0, 0.0);
        for group in self.rows.chunk_by(|left, right| left.score == right.score) {
            for row in group {
                *(if row.is_member { &mut found } else { &mut alarms }) += weight(row);
            }
            told(alarms, found);
        }
    }
}

impl Estimate {
    fn of(value: f64, mut drawn: Vec<f64>) -> Self {
        drawn.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (share * drawn.len() as f64) as usize;
            drawn.get(place.min(drawn.len().saturating_sub(1))).copied().unwrap_or(value)
        };
        Self { value, low: at(OUTSIDE), high: at(1.0 - OUTSIDE) }
    }
}

/// How often each of so many things is drawn when so many are drawn with replacement.
fn resampled(things: usize, seed: Seed) -> Vec<u32> {
    let mut counts = vec![0; things];
    let mut generator = seed.generator();
    (0..things).for_each(|_| counts[generator.below(things)] += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Roc {
        fn auc(&self) -> f64 {
            self.sweep(&|_| 1.0, &[]).0
        }

        fn tpr_at(&self, fpr: f64) -> f64 {
            self.sweep(&|_| 1.0, &[fpr]).1[0]
        }
    }
    use fedra_privacy::normal;

    fn rows(scores: &[(f64, bool)]) -> Vec<ScoredRow> {
        let scored = |(row, &(score, is_member))| ScoredRow { score, is_member, model: 0, row };
        scores.iter().enumerate().map(scored).collect()
    }

    fn normals(distance: f64, count: usize) -> Roc {
        let mut generator = Seed(2).generator();
        let scores: Vec<(f64, bool)> = (0..count)
            .map(|place| {
                let is_member = place % 2 == 0;
                (generator.normal() + if is_member { distance } else { 0.0 }, is_member)
            })
            .collect();
        Roc::new(rows(&scores)).unwrap()
    }

    #[test]
    fn ties_count_half_and_move_as_one() {
        let roc = Roc::new(rows(&[(2.0, true), (1.0, true), (1.0, false), (0.0, false)])).unwrap();
        assert_eq!(roc.auc(), (1.0 + 1.0 + 1.0 + 0.5) / 4.0);
        assert_eq!(roc.points(), [(0.0, 0.5), (0.5, 1.0), (1.0, 1.0)]);
        assert_eq!([roc.tpr_at(0.0), roc.tpr_at(0.49), roc.tpr_at(0.5)], [0.5, 0.5, 1.0]);
        let alike = Roc::new(rows(&[(1.0, true), (1.0, false)])).unwrap();
        assert_eq!((alike.auc(), alike.tpr_at(0.1)), (0.5, 0.0));
    }

    #[test]
    fn two_normals_have_the_closed_forms_of_their_distance() {
        for distance in [0.0, 0.5, 1.5] {
            let roc = normals(distance, 200_000);
            let area = normal::tail(-distance / 2.0_f64.sqrt());
            assert!((roc.auc() - area).abs() < 0.004, "{distance}: {}", roc.auc());
            for fpr in [0.001, 0.01, 0.1] {
                let expected = normal::tail(normal::upper_quantile(fpr) - distance);
                let found = roc.tpr_at(fpr);
                // Three deviations: of 100,000 others, 100 set the strictest threshold.
                let close = (found - expected).abs() < 0.15 * expected + 5e-4;
                assert!(close, "{fpr}: {found} {expected}");
            }
        }
    }

    #[test]
    fn intervals_hold_the_truth_and_shrink_with_rows() {
        let width = |count| {
            let (auc, found) = normals(1.0, count).estimates(&[0.1], Seed(1));
            let truth = normal::tail(-1.0 / 2.0_f64.sqrt());
            assert!(auc.low < truth && truth < auc.high, "{auc:?}");
            assert!(found[0].low <= found[0].value && found[0].value <= found[0].high);
            auc.high - auc.low
        };
        let (few, many) = (width(400), width(6400));
        assert!(many < 0.5 * few, "{many} {few}");
        // The deviation of the area by Hanley and McNeil, for 3200 of each kind, is near 0.0056; a draw
        // of one model only is a draw of rows.
        assert!((many / (2.0 * 1.96 * 0.0056) - 1.0).abs() < 0.25, "{many}");
    }

    #[test]
    fn one_kind_of_rows_and_scores_that_are_no_numbers_are_refused() {
        let words = |scores: &[(f64, bool)]| Roc::new(rows(scores)).unwrap_err().to_string();
        assert!(words(&[(1.0, true)]).contains("1 members and 0 others"));
        assert!(words(&[(f64::NAN, true), (1.0, false)]).contains("row 0 of model 0"));
    }
}
