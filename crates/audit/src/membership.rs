//! Was this row part of the training? Two attacks on a released model's losses.
//!
//! Several models were trained in the same way, each on a random half of the rows. Each of them is
//! attacked in turn, with the others as the attacker's shadow models: what the attacker could train
//! from data of the same kind. So members and other rows differ by a coin alone.
//!
//! * **Loss threshold** (Yeom et al. 2018): a row with a small loss is a member. It needs no shadow,
//!   and it mostly finds the rows that are easy for everybody.
//! * **`LiRA`, offline** (Carlini et al. 2022): shadows that did *not* see the row say what its
//!   confidence would be without it; how far above that is it? Confidences are compared on the logit
//!   scale, where they are roughly normal:
//!
//! ```text
//! p = exp(-loss)     phi = ln(p / (1 - p))     score = (phi - mean) / (deviation sqrt(1 + 1/n))
//! ```
//! The loss is the mean over a row's targets (its class, its codes, its labelled tokens, the tokens of
//! its text), so `p` is the geometric mean of the right answers' probabilities. Mean and deviation are
//! those of the row's `n` shadows; with fewer than [`FEWEST`] one deviation is pooled over all rows.

use fedra_seed::Seed;
use serde::Serialize;

use crate::error::{AuditError, Result};
use crate::roc::{Estimate, Roc, ScoredRow};

/// Shadows of a row from which its own deviation is taken; below, it is noisier than a pooled one.
pub const FEWEST: usize = 32;
/// Losses below this are rounding; without a floor their confidence would have no bound.
const SMALLEST_LOSS: f64 = 1e-12;
/// Shares of false alarms that are reported.
pub const FALSE_ALARMS: [f64; 2] = [0.01, 0.001];

/// A model as the attacker sees it, and the truth about it.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Whether it learnt from each row.
    pub members: &'a [bool],
    /// Its loss on each row, the mean over the row's targets.
    pub losses: &'a [f64],
}

/// Which attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MembershipAttack {
    /// A small loss.
    LossThreshold,
    /// A confidence that the row does not have without having been learnt.
    Lira,
}

/// What came of an attack on some models.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MembershipFinding {
    /// Which attack.
    pub attack: MembershipAttack,
    /// The chance that a member scores above another row.
    pub auc: Estimate,
    /// Members found at small shares of false alarms.
    pub found: Vec<FoundAt>,
    /// Members, over all models.
    pub members: u64,
    /// Rows that were not.
    pub others: u64,
    /// Rows left out, over all models: no shadow was without them.
    pub left_out: u64,
}

/// Members found at one share of false alarms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FoundAt {
    /// The share of false alarms.
    pub fpr: f64,
    /// The share of members found.
    #[serde(flatten)]
    pub tpr: Estimate,
    /// Others whom this share allows to be falsely accused, over all models. Below a few the number
    /// hangs on single rows.
    pub false_alarms_allowed: u64,
}

impl MembershipAttack {
    /// Both.
    pub const ALL: [Self; 2] = [Self::LossThreshold, Self::Lira];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LossThreshold => "loss threshold",
            Self::Lira => "LiRA",
        }
    }

    /// Every row's score against every model; rows that it cannot score are left out.
    pub fn scores(self, models: &[Observed<'_>]) -> Result<Vec<ScoredRow>> {
        let rows = check(models)?;
        let confidences: Vec<Vec<f64>> = (models.iter())
            .map(|model| model.losses.iter().map(|loss| confidence(*loss)).collect())
            .collect();
        let mut all = Vec::with_capacity(models.len() * rows);
        for (model, observed) in models.iter().enumerate() {
            let scores = match self {
                Self::LossThreshold => observed.losses.iter().map(|loss| Some(-loss)).collect(),
                Self::Lira => lira(models, &confidences, model)?,
            };
            for (row, score) in scores.into_iter().enumerate() {
                let is_member = observed.members[row];
                all.extend(score.map(|score| ScoredRow { score, is_member, model, row }));
            }
        }
        Ok(all)
    }

    /// Attacks every model and says how well it went.
    pub fn run(self, models: &[Observed<'_>], seed: Seed) -> Result<(MembershipFinding, Roc)> {
        let scores = self.scores(models)?;
        let asked: usize = models.iter().map(|model| model.losses.len()).sum();
        let left_out = (asked - scores.len()) as u64;
        let roc = Roc::new(scores)?;
        let (auc, shares) = roc.estimates(&FALSE_ALARMS, seed);
        let found = FALSE_ALARMS.iter().zip(shares).map(|(&fpr, tpr)| FoundAt {
            fpr,
            tpr,
            false_alarms_allowed: (fpr * roc.others as f64) as u64,
        });
        let finding = MembershipFinding {
            attack: self,
            auc,
            found: found.collect(),
            members: roc.members,
            others: roc.others,
            left_out,
        };
        Ok((finding, roc))
    }
}

/// The logit of a row's confidence.
pub fn confidence(loss: f64) -> f64 {
    -loss.max(SMALLEST_LOSS).exp_m1().ln()
}

/// How far a model's confidence in each row lies above that of its shadows, in their deviations; none
/// where every model saw the row.
fn lira(
    models: &[Observed<'_>],
    confidences: &[Vec<f64>],
    target: usize,
) -> Result<Vec<Option<f64>>> {
    let (mut squares, mut freedom) = (0.0, 0);
    let mut moments = Vec::new();
    for (row, &confidence) in confidences[target].iter().enumerate() {
        let without = (0..models.len()).filter(|&m| m != target && !models[m].members[row]);
        let seen: Vec<f64> = without.map(|model| confidences[model][row]).collect();
        let count = seen.len();
        let mean = seen.iter().sum::<f64>() / count as f64;
        let own: f64 = seen.iter().map(|one| (one - mean).powi(2)).sum();
        squares += own;
        freedom += count.saturating_sub(1);
        moments.push((confidence - mean, own, count));
    }
    if freedom == 0 {
        let found = format!("{} models", models.len());
        let expected = "enough of them that some row is unseen by two shadows: 8 or more";
        return Err(AuditError::setting("shadow models", found, expected));
    }
    let pooled = squares / freedom as f64;
    let score = |(above, own, count): (f64, f64, usize)| {
        let variance = if count < FEWEST { pooled } else { own / (count - 1) as f64 };
        let deviation = variance.max(f64::MIN_POSITIVE).sqrt();
        (count > 0).then(|| above / (deviation * (1.0 + 1.0 / count as f64).sqrt()))
    };
    Ok(moments.into_iter().map(score).collect())
}

/// The number of rows; refuses models of different rows and losses that are none.
fn check(models: &[Observed<'_>]) -> Result<usize> {
    let Some(first) = models.first() else {
        return Err(AuditError::setting("models", 0, "at least one"));
    };
    let rows = first.losses.len();
    for (number, model) in models.iter().enumerate() {
        for found in [model.losses.len(), model.members.len()] {
            if found != rows {
                let found = format!("{found} rows of model {number}");
                return Err(AuditError::setting("models", found, format!("{rows}, as of model 0")));
            }
        }
        let odd = model.losses.iter().position(|loss| !loss.is_finite() || *loss < 0.0);
        if let Some(row) = odd {
            let found = format!("{} on row {row} of model {number}", model.losses[row]);
            return Err(AuditError::setting("losses", found, "numbers from 0 on: did it diverge?"));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_privacy::normal;

    /// Rows of very different difficulty; learning one raises its confidence by a distance in
    /// deviations.
    fn world(models: usize, rows: usize, distance: f64) -> (Vec<Vec<bool>>, Vec<Vec<f64>>) {
        let mut generator = Seed(3).generator();
        let difficulty: Vec<f64> = (0..rows).map(|_| 3.0 * generator.normal()).collect();
        let (mut members, mut losses) = (Vec::new(), Vec::new());
        for _ in 0..models {
            let coins: Vec<bool> = (0..rows).map(|_| generator.uniform() < 0.5).collect();
            let loss = |row: usize| {
                let learnt = if coins[row] { distance } else { 0.0 };
                let confidence = difficulty[row] + learnt + generator.normal();
                (-confidence).exp().ln_1p()
            };
            losses.push((0..rows).map(loss).collect());
            members.push(coins);
        }
        (members, losses)
    }

    fn observed<'a>(members: &'a [Vec<bool>], losses: &'a [Vec<f64>]) -> Vec<Observed<'a>> {
        let one = |(members, losses): (&'a Vec<bool>, &'a Vec<f64>)| Observed { members, losses };
        members.iter().zip(losses).map(one).collect()
    }

    #[test]
    fn a_confidence_is_the_logit_of_its_probability() {
        for p in [0.01_f64, 0.5, 0.999] {
            assert!((confidence(-p.ln()) - (p / (1.0 - p)).ln()).abs() < 1e-9);
        }
        assert!(confidence(0.0).is_finite());
    }

    #[test]
    fn both_attacks_reach_the_closed_forms_of_a_normal_world() {
        let (distance, models) = (1.5, 17);
        let (members, losses) = world(models, 3000, distance);
        let models = observed(&members, &losses);
        let auc = |attack: MembershipAttack| attack.run(&models, Seed(1)).unwrap().0.auc;
        // A threshold on the loss fights the spread of difficulties, whose variance is 9.
        let threshold = normal::tail(-distance / 20.0_f64.sqrt());
        let found = auc(MembershipAttack::LossThreshold);
        assert!((found.value - threshold).abs() < 0.01, "{found:?} {threshold}");
        // The shadows know them up to the mean of about eight shadows.
        let shadowed = normal::tail(-distance / (2.0 * (1.0 + 1.0 / 8.0_f64)).sqrt());
        let found = auc(MembershipAttack::Lira);
        assert!((found.value - shadowed).abs() < 0.012, "{found:?} {shadowed}");
        assert!(found.low < shadowed && shadowed < found.high, "{found:?}");
    }

    #[test]
    fn many_shadows_use_the_deviation_of_each_row() {
        let (members, losses) = world(80, 200, 1.0);
        let found = MembershipAttack::Lira.run(&observed(&members, &losses), Seed(1)).unwrap().0;
        let truth = normal::tail(-1.0 / (2.0 * (1.0 + 1.0 / 40.0_f64)).sqrt());
        assert!((found.auc.value - truth).abs() < 0.02, "{found:?}");
        assert_eq!((found.members + found.others, found.left_out), (80 * 200, 0));
    }

    #[test]
    fn rows_that_nobody_is_without_are_left_out_and_counted() {
        let members = vec![vec![true, true, false, true, false]; 2];
        let losses = vec![vec![0.1, 0.2, 0.3, 0.4, 0.5]; 2];
        let refused = MembershipAttack::Lira.run(&observed(&members, &losses), Seed(1));
        assert!(refused.unwrap_err().to_string().contains("shadow models: found 2 models"));
        let (mut members, losses) = world(8, 50, 1.0);
        for coins in &mut members {
            coins[7] = true;
        }
        let found = MembershipAttack::Lira.run(&observed(&members, &losses), Seed(1)).unwrap().0;
        assert!(found.left_out >= 8, "{}", found.left_out);
        assert_eq!(found.members + found.others + found.left_out, 8 * 50);
    }

    #[test]
    fn a_model_that_diverged_and_rows_that_differ_are_refused() {
        let (members, mut losses) = world(3, 4, 1.0);
        losses[1][2] = f64::NAN;
        let run = |losses: &[Vec<f64>]| {
            MembershipAttack::LossThreshold.run(&observed(&members, losses), Seed(1))
        };
        assert!(run(&losses).unwrap_err().to_string().contains("NaN on row 2 of model 1"));
        losses[1] = vec![0.5; 3];
        assert!(run(&losses).unwrap_err().to_string().contains("3 rows of model 1"));
    }
}
