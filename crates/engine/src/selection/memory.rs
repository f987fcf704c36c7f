//! What the server remembers of measurements and choices; a checkpoint holds it.

use std::collections::{BTreeMap, BTreeSet};

use fedra_wire::{ClientId, Measured};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::order::Criterion;

/// All that later rounds need to know of earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub(super) profile: Option<Profile>,
    usual: Exact,
    measurements: u32,
    /// The blocks that learned anywhere in the last round.
    pub(super) last: Option<BTreeSet<u16>>,
    /// For how many rounds, the last one included, they have been the same.
    pub(super) same: u32,
    pub(super) ever: BTreeSet<u16>,
    pub(super) rounds: u32,
}

/// The last measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Profile {
    /// The clients' mean score of each block.
    pub(super) scores: Exact,
    /// What the consensus ranks by.
    pub(super) basis: Exact,
    /// What each client's own choice ranks by, as of the last time it measured.
    pub(super) own: BTreeMap<ClientId, Exact>,
}

impl Memory {
    /// Takes a measurement of so many blocks; a client may know only the first few of them.
    pub(super) fn take(&mut self, criterion: &Criterion, measured: &[Measured], blocks: u16) {
        let blocks = usize::from(blocks);
        let column = |block: usize| {
            measured.iter().filter_map(move |one| one.scores.get(block).copied().map(f64::from))
        };
        let mean = |block: usize| {
            let count = column(block).count();
            if count == 0 { 0.0 } else { column(block).sum::<f64>() / count as f64 }
        };
        let scores: Vec<f64> = (0..blocks).map(mean).collect();
        let first = self.measurements == 0;
        let usual = self.usual.0.clone();
        let corrected = |block: usize, score: f64| match usual.get(block) {
            Some(usual) if !first => relative(score, *usual),
            Some(_) | None => score,
        };
        let spread = |block: usize| {
            let squares = column(block).map(|score| (score - scores[block]).powi(2)).sum::<f64>();
            relative((squares / column(block).count().max(1) as f64).sqrt(), scores[block])
        };
        let own_basis = |block: usize, score: f64| match criterion {
            Criterion::Corrected => corrected(block, score),
            Criterion::Disagreement => relative((score - scores[block]).abs(), scores[block]),
            Criterion::Highest
            | Criterion::Lowest
            | Criterion::Cover
            | Criterion::Random
            | Criterion::RandomFixed
            | Criterion::First
            | Criterion::Last
            | Criterion::Even
            | Criterion::Cyclic
            | Criterion::Named(_) => score,
        };
        let own = |one: &Measured| -> Exact {
            let known = one.scores.iter().map(|score| f64::from(*score)).enumerate();
            Exact(known.map(|(block, score)| own_basis(block, score)).collect())
        };
        let basis = match criterion {
            Criterion::Corrected => {
                (0..blocks).map(|block| corrected(block, scores[block])).collect()
            }
            Criterion::Disagreement => (0..blocks).map(spread).collect(),
            Criterion::Highest
            | Criterion::Lowest
            | Criterion::Cover
            | Criterion::Random
            | Criterion::RandomFixed
            | Criterion::First
            | Criterion::Last
            | Criterion::Even
            | Criterion::Cyclic
            | Criterion::Named(_) => scores.clone(),
        };
        let mut all = self.profile.take().unwrap_or_default().own;
        all.extend(measured.iter().map(|one| (one.client, own(one))));
        self.measurements += 1;
        self.usual.0.resize(blocks, 0.0);
        for (usual, score) in self.usual.0.iter_mut().zip(&scores) {
            *usual += (score - *usual) / f64::from(self.measurements);
        }
        self.profile = Some(Profile { scores: Exact(scores), basis: Exact(basis), own: all });
    }

    /// Notes which blocks learn this round; says how many of them did not in the last.
    pub(super) fn note(&mut self, chosen: &BTreeSet<u16>) -> Option<u16> {
        let churn = self.last.as_ref().map(|last| chosen.difference(last).count() as u16);
        self.same = if self.last.as_ref() == Some(chosen) { self.same + 1 } else { 1 };
        self.ever.extend(chosen);
        self.rounds += 1;
        self.last = Some(chosen.clone());
        churn
    }
}

/// One number as a multiple of another; nothing is a multiple of nothing.
fn relative(value: f64, to: f64) -> f64 {
    if to.abs() > f64::MIN_POSITIVE { value / to } else { 0.0 }
}

/// Numbers that come back from a file to the last bit, which decimal digits do not promise.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Exact(pub(super) Vec<f64>);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|number| number.to_bits()))
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bits = Vec::<u64>::deserialize(deserializer)?;
        Ok(Self(bits.into_iter().map(f64::from_bits).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_plan::Round;

    fn measured(client: u32, scores: &[f32]) -> Measured {
        Measured { round: Round(0), client: ClientId(client), scores: scores.to_vec() }
    }

    fn basis(memory: &Memory) -> &[f64] {
        &memory.profile.as_ref().expect("measured").basis.0
    }

    #[test]
    fn a_mean_is_over_those_who_have_the_block() {
        let mut memory = Memory::default();
        let both = [measured(0, &[0.25, 0.5, 1.0]), measured(1, &[0.75, 1.0])];
        memory.take(&Criterion::Highest, &both, 3);
        assert_eq!(basis(&memory), [0.5, 0.75, 1.0]);
    }

    #[test]
    fn a_corrected_score_is_relative_to_the_measurements_before() {
        let mut memory = Memory::default();
        for scores in [[0.5, 0.25], [0.5, 0.75]] {
            memory.take(&Criterion::Corrected, &[measured(0, &scores)], 2);
        }
        // Block 1 has tripled; block 0, high as ever, has not moved.
        assert_eq!(basis(&memory), [1.0, 3.0]);
        memory.take(&Criterion::Corrected, &[measured(0, &[0.5, 0.5])], 2);
        assert_eq!(basis(&memory), [1.0, 1.0]);
    }

    #[test]
    fn disagreement_is_where_clients_differ_relative_to_the_mean() {
        let mut memory = Memory::default();
        let both = [measured(0, &[0.5, 0.1]), measured(1, &[0.5, 0.3])];
        memory.take(&Criterion::Disagreement, &both, 2);
        assert_eq!(basis(&memory)[0], 0.0);
        assert!((basis(&memory)[1] - 0.5).abs() < 1e-6, "{:?}", basis(&memory));
    }

    #[test]
    fn memory_survives_a_file_to_the_bit() {
        let mut memory = Memory::default();
        memory.take(
            &Criterion::Corrected,
            &[measured(0, &[0.1, 0.7]), measured(3, &[0.3, 0.2])],
            2,
        );
        memory.note(&[1].into());
        let text = serde_json::to_string(&memory).expect("plain data");
        assert_eq!(serde_json::from_str::<Memory>(&text).expect("just written"), memory);
    }
}
