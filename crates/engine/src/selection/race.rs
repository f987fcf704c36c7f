//! The race: in the first rounds clients try different blocks, and the best of each band stays.
//!
//! A score says where attention or gradients are; whether a block that learns helps is another
//! question, and only learning answers it. So for a few rounds of trial each client is dealt one
//! block of each of K contiguous bands of the depth, trains those, and reports by which share the
//! loss on a sample of its own examples fell. Then the best block of each band learns everywhere
//! and the choice stands still:
//!
//! ```text
//! drop_i   = (loss before - loss after) / loss before         at client i, on its sample
//! effect_b = sum over i that trained b of (drop_i - mean drop of its round) / (n_b + 1)
//! ```
//! The one in the denominator pulls a block that few have tried towards the mean. Equals go to the
//! middle of the band, so a race that nobody finished ends as evenly spaced blocks.

use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::{Round, Scope};
use fedra_wire::ClientId;
use serde::{Deserialize, Serialize};

use super::choose::Choice;
use super::memory::Memory;
use super::order::{Criterion, bands, shuffled};
use crate::exact::Exact;
use crate::federation::Federation;
use crate::fleet::ClientInfo;

/// What one client tried in one round, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Trial {
    round: Round,
    blocks: BTreeSet<u16>,
    drop: Exact,
}

impl Choice<'_> {
    /// In a round of trial, the blocks of each client of the cohort; else nothing.
    ///
    /// Each band is dealt on its own: the cohort is shuffled once for all rounds, and who sits
    /// beside each other tries neighbouring blocks, so that every block is tried equally often.
    /// From round to round everybody moves on by one block.
    pub fn dealt(&self, cohort: &[&ClientInfo]) -> BTreeMap<ClientId, Vec<u16>> {
        let selection = &self.recipe.selection;
        if selection.criterion != Criterion::Race || self.round.0 >= selection.trial {
            return BTreeMap::new();
        }
        let mut hands: BTreeMap<ClientId, Vec<u16>> = BTreeMap::new();
        let most = cohort.iter().map(|client| self.count(&client.name)).max().unwrap_or(0);
        for number in 0..most {
            let lot = self.seed.of("trial").with(u64::from(number));
            let seats = shuffled(cohort.to_vec(), lot);
            for (seat, client) in seats.into_iter().enumerate() {
                let mut own = bands(self.count(&client.name), self.blocks(&client.name));
                if let Some(band) = own.nth(usize::from(number)) {
                    let place = (seat + self.round.0 as usize) % band.len();
                    let hand = hands.entry(client.id).or_default();
                    hand.extend(band.clone().nth(place));
                }
            }
        }
        hands
    }
}

impl Memory {
    /// Takes what the clients of a round reported and judges the blocks anew.
    fn judge(&mut self, trials: impl IntoIterator<Item = Trial>, blocks: u16) {
        self.trials.extend(trials);
        self.race(effects(&self.trials, blocks));
    }
}

impl Federation {
    /// Remembers by which share each client's loss fell, and what it had trained.
    pub(crate) fn take_trials(
        &mut self,
        learns: &BTreeMap<ClientId, Scope>,
        drops: &[(ClientId, f32)],
    ) {
        if drops.is_empty() {
            return;
        }
        let round = self.round;
        let trial = |(client, drop): &(ClientId, f32)| {
            let blocks = learns.get(client)?.blocks();
            // No loss falls by more than all of it, whatever a client claims.
            Some(Trial { round, blocks, drop: Exact(f64::from(*drop).clamp(-1.0, 1.0)) })
        };
        self.memory.judge(drops.iter().filter_map(trial), self.layout.blocks());
    }
}

/// By how much more than usual the loss fell where each block learned.
fn effects(trials: &[Trial], blocks: u16) -> Vec<f64> {
    let mut rounds: BTreeMap<Round, (f64, f64)> = BTreeMap::new();
    for trial in trials {
        let (sum, count) = rounds.entry(trial.round).or_default();
        *sum += trial.drop.0;
        *count += 1.0;
    }
    let mut sums = vec![(0.0, 1.0); usize::from(blocks)];
    for trial in trials {
        let (sum, count) = rounds[&trial.round];
        for block in &trial.blocks {
            if let Some((effect, tries)) = sums.get_mut(usize::from(*block)) {
                *effect += trial.drop.0 - sum / count;
                *tries += 1.0;
            }
        }
    }
    sums.into_iter().map(|(effect, tries)| effect / tries).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(round: u32, blocks: [u16; 2], drop: f64) -> Trial {
        Trial { round: Round(round), blocks: blocks.into(), drop: Exact(drop) }
    }

    #[test]
    fn a_block_is_worth_what_it_adds_to_the_mean_of_its_round() {
        let trials = [
            trial(0, [0, 2], 0.25),
            trial(0, [1, 3], 0.75),
            // A later round in which everything falls less.
            trial(1, [0, 3], 0.0),
            trial(1, [1, 2], 0.25),
        ];
        let third = 1.0 / 3.0;
        let expected = [-0.375 * third, 0.375 * third, -0.125 * third, 0.125 * third, 0.0];
        for (found, expected) in effects(&trials, 5).into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }

    #[test]
    fn one_try_weighs_less_than_several_that_agree() {
        let trials =
            [trial(0, [0, 3], 0.5), trial(0, [1, 3], 0.5), trial(0, [1, 3], 0.5)].into_iter();
        let other = (0..3).map(|_| trial(0, [2, 3], 0.0));
        let all: Vec<Trial> = trials.chain(other).collect();
        let effects = effects(&all, 4);
        assert!(effects[1] > effects[0] && effects[0] > effects[2], "{effects:?}");
    }
}
