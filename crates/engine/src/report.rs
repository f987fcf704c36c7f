//! What a round tells the world.
//!
//! The engine prints nothing and writes no log: it pushes one [`RoundReport`] a round into sinks.

pub(crate) mod phases;

use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::Round;
use fedra_wire::ClientId;
use serde::{Deserialize, Serialize};

use self::phases::Phases;
use crate::aggregate::adapter_mean::AdapterReport;
use crate::aggregate::drift::DriftReport;
use crate::aggregate::max_norm::NormReport;
use crate::error::EngineError;
use crate::number;
use crate::privacy::account::PrivacyReport;
use crate::protocol::bytes::Bytes;
use crate::protocol::fleet::{Absence, EvaluationSet, F1Counts, Scored};
use crate::protocol::server_segment::SideMemory;
use crate::recipe::stage::StageReport;
use crate::selection::SelectionReport;

/// Takes the reports of a run, one a round.
pub trait Sink {
    /// Takes one. It comes before the round's checkpoint, so a run that was killed in between
    /// reports that round again.
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError>;
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundReport {
    /// Its number, from zero.
    pub round: Round,
    /// Who was drawn.
    pub cohort: Vec<ClientId>,
    /// Whose updates are in the model.
    pub arrived: Vec<ClientId>,
    /// Who sent no update, and why.
    pub failed: Vec<Absence>,
    /// Whose answers were refused, and why.
    pub refused: Vec<Absence>,
    /// Attempts at this round to which too few came, in order; see [`FailedAttempt`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_attempts: Vec<FailedAttempt>,
    /// Blocks that learned at one client or more whose update arrived.
    pub blocks: BTreeSet<u16>,
    /// Elements of the global model that the updates cover.
    pub changed: u64,
    /// Mean training loss by examples of those who tell it; absent if nobody does.
    pub loss: Option<f64>,
    /// What travelled, in failed attempts too.
    pub bytes: Bytes,
    /// What the clients computed whose updates arrived, in failed attempts too, in multiply-adds for
    /// one token an example; see `fedra_plan`'s count of work.
    #[serde(default)]
    pub effort: u64,
    /// How long the round took, evaluation included.
    pub seconds: f64,
    /// The longest any client worked.
    pub slowest: f64,
    /// How long its phases took; absent in logs from before they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<Phases>,
    /// The most updates that were in memory at once.
    pub most_updates_held: usize,
    /// How far the clients went apart, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftReport>,
    /// Updates far outside their cohort, and those that were scaled down; absent where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norms: Option<NormReport>,
    /// What each side of a cut held, where clients are processes of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<SideMemory>,
    /// How low-rank adapters were averaged, where that was not factor by factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterReport>,
    /// The guarantee, and how much of it is spent, in a private run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacyReport>,
    /// How far a method of two stages has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageReport>,
    /// Scores, where the model was scored after this round.
    pub scores: Vec<SetScores>,
    /// How the blocks that learned were chosen; absent when nothing had to be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<SelectionReport>,
}

/// A cohort of which too few came back, so that the round was tried again. It changed nothing: who
/// arrived is as if it had not been asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedAttempt {
    /// Who was drawn.
    pub cohort: Vec<ClientId>,
    /// How many updates the round needed.
    pub needed: usize,
    /// Whose updates came, in vain.
    pub arrived: Vec<ClientId>,
    /// Who sent no update, and why.
    pub failed: Vec<Absence>,
    /// Whose answers were refused, and why.
    pub refused: Vec<Absence>,
    /// What travelled; part of the round's bytes.
    pub bytes: Bytes,
    /// What was computed; part of the round's effort.
    pub effort: u64,
}

/// The scores on one set of examples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetScores {
    /// The set.
    pub on: EvaluationSet,
    /// Mean loss by examples.
    #[serde(deserialize_with = "number::one")]
    pub loss: f64,
    /// Mean scores by examples, over the clients that have the score.
    #[serde(deserialize_with = "number::by_name")]
    pub mean: BTreeMap<String, f64>,
    /// F1 of all clients' counts together, which is not the mean of their F1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pooled: BTreeMap<String, f64>,
    /// Each client's own, or the one of the central set.
    pub each: Vec<Scored>,
    /// How far the clients' scores lie apart, where there are two or more; clients count alike.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spread: BTreeMap<String, Spread>,
    /// Variance of the mean score's change from one scoring to the next, over the run so far.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "number::by_name"
    )]
    pub swing: BTreeMap<String, f64>,
}

/// How far the clients' scores lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Standard deviation over the clients.
    #[serde(deserialize_with = "number::one")]
    pub deviation: f64,
    /// The worst served client.
    #[serde(deserialize_with = "number::one")]
    pub least: f64,
    /// The best served client.
    #[serde(deserialize_with = "number::one")]
    pub most: f64,
}

impl Spread {
    /// `None` for fewer than two values.
    fn of(values: &[f64]) -> Option<Self> {
        if values.len() < 2 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        Some(Self {
            deviation: (squares / values.len() as f64).sqrt(),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

impl SetScores {
    /// Averages by examples, in the order given.
    pub fn new(on: EvaluationSet, each: Vec<Scored>) -> Self {
        let average = |pick: &dyn Fn(&Scored) -> Option<f64>| {
            let known = || each.iter().filter_map(|one| Some((pick(one)?, one.examples as f64)));
            let weight: f64 = known().map(|(_, examples)| examples).sum();
            known().map(|(value, examples)| value * examples).sum::<f64>() / weight
        };
        let names: BTreeSet<&String> = each.iter().flat_map(|one| one.scores.keys()).collect();
        let loss = average(&|one| Some(one.loss));
        let spread = |name: &&String| {
            let values: Vec<f64> =
                each.iter().filter_map(|one| one.scores.get(*name).copied()).collect();
            Some(((*name).clone(), Spread::of(&values)?))
        };
        let spread = names.iter().filter_map(spread).collect();
        let mean = names
            .into_iter()
            .map(|name| (name.clone(), average(&|one| one.scores.get(name).copied())))
            .collect();
        let mut totals: BTreeMap<&String, F1Counts> = BTreeMap::new();
        for (name, tally) in each.iter().flat_map(|one| &one.tallies) {
            *totals.entry(name).or_default() += *tally;
        }
        let pooled = totals.into_iter().map(|(name, tally)| (name.clone(), tally.f1())).collect();
        Self { on, loss, mean, pooled, each, spread, swing: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pooled_f1_is_that_of_all_counts_and_not_the_mean() {
        let scored = |client: u32, examples: u64, tally: F1Counts| Scored {
            client: Some(ClientId(client)),
            examples,
            loss: 1.0,
            scores: [("span_f1".to_owned(), tally.f1())].into(),
            tallies: [("span_f1".to_owned(), tally)].into(),
        };
        // Few spans in many examples at one client, many spans in few examples at the other.
        let each = vec![
            scored(0, 90, F1Counts { true_positives: 1, false_positives: 0, false_negatives: 0 }),
            scored(
                1,
                10,
                F1Counts { true_positives: 30, false_positives: 30, false_negatives: 30 },
            ),
        ];
        let set = SetScores::new(EvaluationSet::ClientTest, each);
        assert!((set.mean["span_f1"] - 0.95).abs() < 1e-12);
        assert!((set.pooled["span_f1"] - 62.0 / 122.0).abs() < 1e-12);
        assert_eq!(F1Counts::default().f1(), 0.0);
    }
}
