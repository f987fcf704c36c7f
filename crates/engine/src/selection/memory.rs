//! What the server remembers of measurements and choices; a checkpoint holds it.

use std::collections::{BTreeMap, BTreeSet};

use fedra_wire::{ClientId, Measured};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::order::Look;
use super::settings::Selection;
use crate::number::Exact;
use crate::privacy::private_steps::LayerNoise;

/// All that later rounds need to know of earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub(crate) profile: Option<Profile>,
    usual: Numbers,
    /// How many measurements were taken so far.
    pub(crate) measurements: u32,
    /// How often each client measured.
    #[serde(default)]
    answers: BTreeMap<ClientId, u32>,
    /// The blocks that learned anywhere in the last round.
    pub(crate) last: Option<BTreeSet<u16>>,
    /// For how many rounds, the last one included, they have been the same.
    pub(crate) same: u32,
    /// The square of the signal's norm in each block's last noised update.
    #[serde(default)]
    released: BTreeMap<u16, Exact>,
    pub(crate) ever: BTreeSet<u16>,
    pub(crate) rounds: u32,
}

/// The last measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Profile {
    /// The clients' mean score of each block.
    pub(crate) scores: Numbers,
    /// What the consensus ranks by.
    pub(crate) basis: Numbers,
    /// What each client's own choice ranks by, as of the last time it measured.
    pub(crate) own: BTreeMap<ClientId, Numbers>,
}

impl Memory {
    /// Takes a measurement of so many blocks; a client may know only the first few of them.
    pub(crate) fn take(&mut self, selection: &Selection, measured: &[Measured], blocks: u16) {
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
        // What all rank by, and what one client with this score would rank by.
        let (common, own): (Vec<f64>, &dyn Fn(usize, f64) -> f64) =
            match selection.criterion.looks() {
                None | Some(Look::Score) => (scores.clone(), &|_, score| score),
                Some(Look::Change) => {
                    let common =
                        scores.iter().enumerate().map(|(block, score)| corrected(block, *score));
                    (common.collect(), &corrected)
                }
                Some(Look::Spread) => ((0..blocks).map(spread).collect(), &|block, score| {
                    relative((score - scores[block]).abs(), scores[block])
                }),
            };
        let before = self.profile.take().unwrap_or_default();
        let averages = selection.averages();
        let basis = if averages {
            before.basis.averaged(common, self.measurements)
        } else {
            Numbers(common)
        };
        let mut all = before.own;
        for one in measured {
            let known = one.scores.iter().map(|score| f64::from(*score)).enumerate();
            let new: Vec<f64> = known.map(|(block, score)| own(block, score)).collect();
            let mine = self.answers.entry(one.client).or_default();
            let mean = match all.remove(&one.client).filter(|_| averages) {
                Some(old) => old.averaged(new, *mine),
                None => Numbers(new),
            };
            *mine += 1;
            all.insert(one.client, mean);
        }
        self.usual = std::mem::take(&mut self.usual).averaged(scores.clone(), self.measurements);
        self.measurements += 1;
        self.profile = Some(Profile { scores: Numbers(scores), basis, own: all });
    }

    /// Notes what was released, layer by layer.
    pub(crate) fn note_released(&mut self, layers: &[LayerNoise]) {
        for layer in layers {
            if let Some(block) = layer.layer.block() {
                self.released.insert(block, Exact(layer.signal_square()));
            }
        }
    }

    /// Scores of blocks by what was released of them; a block of which nothing was comes first.
    pub(crate) fn released_scores(&self, blocks: u16) -> Vec<f32> {
        let known = self.released.values().map(|square| square.0);
        let first = known.fold(0.0, f64::max) + 1.0;
        let score = |block| self.released.get(&block).map_or(first, |square| square.0) as f32;
        (0..blocks).map(score).collect()
    }

    /// Notes which blocks learn this round; says how many of them did not in the last.
    pub(crate) fn note(&mut self, chosen: &BTreeSet<u16>) -> Option<u16> {
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
pub(crate) struct Numbers(pub(crate) Vec<f64>);

impl Numbers {
    /// The mean of so many earlier lists, which this one is, and a new one.
    fn averaged(mut self, new: Vec<f64>, earlier: u32) -> Self {
        self.0.resize(new.len(), 0.0);
        for (mean, new) in self.0.iter_mut().zip(new) {
            *mean += (new - *mean) / (f64::from(earlier) + 1.0);
        }
        self
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|number| Exact(*number)))
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let numbers = Vec::<Exact>::deserialize(deserializer)?;
        Ok(Self(numbers.into_iter().map(|number| number.0).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_plan::Round;

    use super::super::Criterion;

    fn measured(client: u32, scores: &[f32]) -> Measured {
        Measured { round: Round(0), client: ClientId(client), scores: scores.to_vec() }
    }

    fn by(criterion: Criterion) -> Selection {
        Selection { criterion, ..Selection::default() }
    }

    fn basis(memory: &Memory) -> &[f64] {
        &memory.profile.as_ref().expect("measured").basis.0
    }

    #[test]
    fn a_mean_is_over_those_who_have_the_block() {
        let mut memory = Memory::default();
        let both = [measured(0, &[0.25, 0.5, 1.0]), measured(1, &[0.75, 1.0])];
        memory.take(&by(Criterion::Highest), &both, 3);
        assert_eq!(basis(&memory), [0.5, 0.75, 1.0]);
    }

    #[test]
    fn a_corrected_score_is_relative_to_the_measurements_before() {
        let mut memory = Memory::default();
        for scores in [[0.5, 0.25], [0.5, 0.75]] {
            memory.take(&by(Criterion::Corrected), &[measured(0, &scores)], 2);
        }
        // Block 1 has tripled; block 0, high as ever, has not moved.
        assert_eq!(basis(&memory), [1.0, 3.0]);
        memory.take(&by(Criterion::Corrected), &[measured(0, &[0.5, 0.5])], 2);
        assert_eq!(basis(&memory), [1.0, 1.0]);
    }

    #[test]
    fn disagreement_is_where_clients_differ_relative_to_the_mean() {
        let mut memory = Memory::default();
        let both = [measured(0, &[0.5, 0.1]), measured(1, &[0.5, 0.3])];
        memory.take(&by(Criterion::Disagreement), &both, 2);
        assert_eq!(basis(&memory)[0], 0.0);
        assert!((basis(&memory)[1] - 0.5).abs() < 1e-6, "{:?}", basis(&memory));
    }

    #[test]
    fn a_choice_that_is_to_settle_ranks_by_the_mean_of_its_measurements() {
        let settling = Selection { settle: Some(2), ..by(Criterion::Highest) };
        let mut memory = Memory::default();
        memory.take(&settling, &[measured(0, &[0.25, 0.75]), measured(1, &[0.75, 0.25])], 2);
        memory.take(&settling, &[measured(0, &[0.75, 0.25])], 2);
        assert_eq!(basis(&memory), [0.625, 0.375]);
        let own = |client| &memory.profile.as_ref().expect("measured").own[&ClientId(client)].0;
        assert_eq!(*own(0), [0.5, 0.5]);
        assert_eq!(*own(1), [0.75, 0.25]);
    }

    #[test]
    fn memory_survives_a_file_to_the_bit() {
        let mut memory = Memory::default();
        memory.take(
            &by(Criterion::Corrected),
            &[measured(0, &[0.1, 0.7]), measured(3, &[0.3, 0.2])],
            2,
        );
        memory.note(&[1].into());
        let text = serde_json::to_string(&memory).expect("plain data");
        assert_eq!(serde_json::from_str::<Memory>(&text).expect("just written"), memory);
    }
}
