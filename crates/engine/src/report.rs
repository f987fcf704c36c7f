//! What a round tells the world.
//!
//! The engine prints nothing and writes no log: it pushes one [`RoundReport`] a round into sinks.

use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::{ByteCount, Round};
use fedra_wire::ClientId;
use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::fleet::{EvaluationSet, Scored, Tally};

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
    /// Blocks that learned at one client or more.
    pub blocks: BTreeSet<u16>,
    /// Elements that changed in the global model.
    pub changed: u64,
    /// Mean training loss by examples; absent if nobody arrived.
    pub loss: Option<f64>,
    /// What travelled.
    pub bytes: Bytes,
    /// How long the round took, evaluation included.
    pub seconds: f64,
    /// The longest any client worked.
    pub slowest: f64,
    /// The most updates that were in memory at once.
    pub most_updates_held: usize,
    /// Scores, where the model was scored after this round.
    pub scores: Vec<SetScores>,
}

/// A client that is not in the model, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absence {
    /// The client.
    pub client: ClientId,
    /// Why.
    pub reason: String,
}

/// Lengths of encoded payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bytes {
    /// From the clients, refused updates included.
    pub up: ByteCount,
    /// To the clients, those who then failed included.
    pub down: ByteCount,
    /// What the same clients would have sent had every parameter trained, in f32.
    pub full_up: ByteCount,
    /// What the same clients would have received had every parameter changed, in f32.
    pub full_down: ByteCount,
}

impl std::ops::AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.up += other.up;
        self.down += other.down;
        self.full_up += other.full_up;
        self.full_down += other.full_down;
    }
}

/// The scores on one set of examples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetScores {
    /// The set.
    pub on: EvaluationSet,
    /// Mean loss by examples.
    pub loss: f64,
    /// Mean scores by examples, over the clients that have the score.
    pub mean: BTreeMap<String, f64>,
    /// F1 of all clients' counts together, which is not the mean of their F1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pooled: BTreeMap<String, f64>,
    /// Each client's own, or the one of the central set.
    pub each: Vec<Scored>,
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
        let mean = names
            .into_iter()
            .map(|name| (name.clone(), average(&|one| one.scores.get(name).copied())))
            .collect();
        let mut totals: BTreeMap<&String, Tally> = BTreeMap::new();
        for (name, tally) in each.iter().flat_map(|one| &one.tallies) {
            *totals.entry(name).or_default() += *tally;
        }
        let pooled = totals.into_iter().map(|(name, tally)| (name.clone(), tally.f1())).collect();
        Self { on, loss, mean, pooled, each }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pooled_f1_is_that_of_all_counts_and_not_the_mean() {
        let scored = |client: u32, examples: u64, tally: Tally| Scored {
            client: Some(ClientId(client)),
            examples,
            loss: 1.0,
            scores: [("span_f1".to_owned(), tally.f1())].into(),
            tallies: [("span_f1".to_owned(), tally)].into(),
        };
        // Few spans in many examples at one client, many spans in few examples at the other.
        let each = vec![
            scored(0, 90, Tally { hits: 1, alarms: 0, misses: 0 }),
            scored(1, 10, Tally { hits: 30, alarms: 30, misses: 30 }),
        ];
        let set = SetScores::new(EvaluationSet::ClientTest, each);
        assert!((set.mean["span_f1"] - 0.95).abs() < 1e-12);
        assert!((set.pooled["span_f1"] - 62.0 / 122.0).abs() < 1e-12);
        assert_eq!(Tally::default().f1(), 0.0);
    }
}
