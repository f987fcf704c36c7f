//! The best round so far, by the clients' validation examples and by nothing else.
//!
//! Which round that is follows from the reports of all rounds, and the log of them belongs to the
//! checkpoint, so a resumed run decides as one that was never stopped. Its model lies in
//! `model-best/`, written after the round's checkpoint: should the process end in between, the
//! checkpoint's own model is the best one and is written again. `best.json` tells which round the
//! folder holds.

use std::path::Path;

use fedra_engine::{EngineError, EvaluationSet, RoundReport, Sink};
use fedra_plan::Digest;
use serde::{Deserialize, Serialize};

use crate::error::{Context, Result};
use crate::folder::json_file;
use crate::prepare::fingerprint::of_file;
use crate::run_files::{ADAPTER_BEST, BEST, MODEL_BEST};
use crate::text::headline::{headline_of, set_name};

/// The best round of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Its index.
    pub round: u32,
    /// The score that decided.
    pub name: String,
    /// Its value.
    pub score: f64,
    /// The mean loss there.
    pub loss: f64,
    /// Whether another round has the same score, and the lower loss or the earlier round decided.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tied: bool,
    /// On whose examples.
    pub on: String,
    /// The folder of its model; absent when there is no global one, or when it was lost.
    pub model: Option<String>,
}

/// What is said of a best round whose score others have too.
pub(crate) const TIED: &str = "other rounds have the same score, with no lower loss";

/// Follows the validation scores of a run.
#[derive(Clone, Debug, Default)]
pub struct BestRound {
    /// The best so far.
    pub best: Option<Best>,
    /// Scorings since the best.
    idle: u32,
}

impl Best {
    /// Its score, and what decided where another round has the same.
    pub fn in_words(&self) -> String {
        let Self { name, score, .. } = self;
        let why = if self.tied { format!("; {TIED}") } else { String::new() };
        format!("{name} {score:.3}{why}")
    }
}

impl BestRound {
    /// Takes note of a round. Of equal scores the one with the lower loss is better, because scores
    /// may stand at zero for a while in which a model learns; of equals the first is the best. What
    /// is no number is never better.
    pub fn note(&mut self, report: &RoundReport) {
        let on = EvaluationSet::ClientValidation;
        let Some(set) = report.scores.iter().find(|set| set.on == on) else { return };
        let (round, loss) = (report.round.0, set.loss);
        let is_better = |score: f64| {
            let better =
                |best: &Best| score > best.score || score == best.score && loss < best.loss;
            score.is_finite() && loss.is_finite() && self.best.as_ref().is_none_or(better)
        };
        let ties = |score: f64| self.best.as_ref().is_some_and(|best| best.score == score);
        match headline_of(&set.mean) {
            Some((name, score)) if is_better(score) => {
                let (name, on, tied) = (name.to_owned(), set_name(on).to_owned(), ties(score));
                self.best = Some(Best { round, name, score, loss, tied, on, model: None });
                self.idle = 0;
            }
            other => {
                let is_tie = other.is_some_and(|(_, score)| ties(score));
                if let Some(best) = &mut self.best {
                    best.tied |= is_tie;
                }
                self.idle += 1;
            }
        }
    }

    /// The best round, with the folder of its model if that is kept.
    pub fn best(&self, model: Option<&str>) -> Option<Best> {
        Some(Best { model: model.map(str::to_owned), ..self.best.clone()? })
    }

    /// Whether so many scorings in a row brought nothing better.
    pub const fn has_waited(&self, patience: u32) -> bool {
        self.idle >= patience
    }
}

impl Sink for BestRound {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        self.note(report);
        Ok(())
    }
}

/// What the folder of the best model holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    round: u32,
    weights: Digest,
}

/// Takes note that `model-best/`, or `adapter-best/` alone, holds the model of a round.
pub fn remember(folder: &Path, round: u32) -> Result<()> {
    let weights = weights(folder);
    let digest = of_file(&weights).with_context(|| format!("cannot read {}", weights.display()))?;
    json_file::write(&folder.join(BEST), &Held { round, weights: digest })
}

/// Which folder holds the model of a round, whole and as it was written; none may.
pub fn held_in(folder: &Path, round: u32) -> Option<&'static str> {
    let held = json_file::read::<Held>(&folder.join(BEST), "round").ok()?;
    let is_whole = || of_file(&weights(folder)).is_ok_and(|found| found == held.weights);
    (held.round == round && is_whole()).then(|| place(folder))
}

/// The folder of the best model; of a run that leaves adapters alone, that of the adapters.
fn place(folder: &Path) -> &'static str {
    let has_adapters_alone =
        !folder.join(MODEL_BEST).is_dir() && folder.join(ADAPTER_BEST).is_dir();
    if has_adapters_alone { ADAPTER_BEST } else { MODEL_BEST }
}

fn weights(folder: &Path) -> std::path::PathBuf {
    let place = place(folder);
    let file = if place == MODEL_BEST { "model.safetensors" } else { "adapter_model.safetensors" };
    folder.join(place).join(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::regular_file;

    fn report(round: u32, validation: Option<(f64, f64)>) -> RoundReport {
        let mut scores = vec![serde_json::json!({
            "on": "central_test", "loss": 1.0, "mean": { "span_f1": 1.0 - 0.1 * f64::from(round) },
            "each": [],
        })];
        scores.extend(validation.map(|(score, loss)| {
            let mean = serde_json::json!({ "span_f1": score });
            serde_json::json!({ "on": "client_validation", "loss": loss, "mean": mean, "each": [] })
        }));
        let report = serde_json::json!({
            "round": round, "cohort": [], "arrived": [], "failed": [], "refused": [], "blocks": [],
            "changed": 0, "loss": null, "seconds": 0.0, "slowest": 0.0, "most_updates_held": 0,
            "bytes": { "up": 0, "down": 0, "full_up": 0, "full_down": 0 }, "scores": scores,
        });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn the_first_of_the_highest_validation_scores_is_the_best_whatever_the_test_set_says() {
        let mut best_round = BestRound::default();
        let scores = [
            (Some((0.2, 0.9)), true),
            (None, false),
            (Some((0.5, 0.9)), true),
            // As good, and surer of it.
            (Some((0.5, 0.8)), true),
            (Some((0.5, 0.8)), false),
            (Some((0.4, 0.1)), false),
            (None, false),
        ];
        for (round, (score, best)) in (0..).zip(scores) {
            best_round.note(&report(round, score));
            assert_eq!(
                best_round.best.as_ref().map(|it| it.round) == Some(round),
                best,
                "round {round}"
            );
        }
        // Rounds that were not scored count for nothing.
        assert!(best_round.has_waited(2) && !best_round.has_waited(3));
        let best = best_round.best(Some("model-best")).unwrap();
        assert_eq!((best.round, best.score, best.loss), (3, 0.5, 0.8));
        assert_eq!(
            best.in_words(),
            "span_f1 0.500; other rounds have the same score, with no lower loss"
        );
        best_round.note(&report(7, Some((0.6, 0.8))));
        assert_eq!(best_round.best(None).unwrap().in_words(), "span_f1 0.600");
        assert_eq!((best.name.as_str(), best.on.as_str()), ("span_f1", "client_validation"));
        let mut unscored = BestRound::default();
        unscored.note(&report(0, None));
        assert_eq!(unscored.best(None), None);
    }

    #[test]
    fn a_model_that_is_not_the_one_of_the_round_is_not_held() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(MODEL_BEST)).unwrap();
        std::fs::write(weights(folder.path()), "weights").unwrap();
        assert_eq!(held_in(folder.path(), 3), None);
        remember(folder.path(), 3).unwrap();
        assert_eq!(held_in(folder.path(), 3), Some(MODEL_BEST));
        assert_eq!(held_in(folder.path(), 4), None);
        std::fs::write(weights(folder.path()), "edited!").unwrap();
        assert_eq!(held_in(folder.path(), 3), None);
        regular_file::remove(&folder.path().join(BEST)).unwrap();
        regular_file::remove(&folder.path().join(BEST)).unwrap();
    }
}
