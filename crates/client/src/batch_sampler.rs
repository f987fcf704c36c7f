//! Poisson sampling of batches: which examples are in a batch, each by a draw of its own.
//!
//! An example's draws come from the key and from what the example is (its tokens, its labels, and which of
//! several equal ones it is), never from its place: without one example all others draw what they drew with
//! it. That is how neighbours are compared in the proof, and here it holds bit by bit.

use std::collections::BTreeMap;

use fedra_compute::{SecretKey, Seed};
use fedra_data::Encoded;

use crate::shard_digest::example_digest;

/// Steps whose draws are made at once: a block of the key's stream has eight of them.
const AT_ONCE: u32 = 64;

/// The draws of one client's batches in one round.
pub(crate) struct BatchSampler {
    /// A key for each example.
    keys: Vec<SecretKey>,
    /// The chance of an example to be in a batch.
    rate: f64,
    /// The most examples in a batch.
    cap: Option<usize>,
    /// The batches of the steps around the last one that was asked for.
    window: Option<(u32, Vec<Vec<usize>>)>,
}

impl BatchSampler {
    /// The sampler of these examples.
    pub(crate) fn new(
        examples: &[Encoded],
        key: &SecretKey,
        (rate, cap): (f64, Option<usize>),
    ) -> Self {
        let key = key.of("coins");
        let mut copies: BTreeMap<[u8; 32], u64> = BTreeMap::new();
        let own = |example| {
            let digest = example_digest(example);
            let copy = copies.entry(digest).or_default();
            *copy += 1;
            key.over(&digest).with(*copy - 1)
        };
        Self { keys: examples.iter().map(own).collect(), rate, cap, window: None }
    }

    /// The places of the examples in the batch of a step, in order: no more than the cap.
    pub(crate) fn batch(&mut self, step: u32) -> Vec<usize> {
        let number = step / AT_ONCE;
        if self.window.as_ref().is_none_or(|(held, _)| *held != number) {
            self.window = Some((number, self.drawn(number)));
        }
        let held = self.window.as_mut().and_then(|(_, all)| all.get_mut((step % AT_ONCE) as usize));
        let batch = held.map(std::mem::take).unwrap_or_default();
        let Some(cap) = self.cap.filter(|cap| *cap < batch.len()) else { return batch };
        let draw = |place: usize| {
            let own = self.keys[place].of("cap").with(u64::from(step));
            own.uniforms().next().unwrap_or_default()
        };
        let mut draws: Vec<(f64, usize)> = batch.into_iter().map(|at| (draw(at), at)).collect();
        draws.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut kept: Vec<usize> = draws[..cap].iter().map(|(_, place)| *place).collect();
        kept.sort_unstable();
        kept
    }

    /// Where an example's other draws of a step start.
    pub(crate) fn seed(&self, place: usize, step: u32) -> Seed {
        let own = self.keys[place].of("dropout").with(u64::from(step));
        own.uniforms().take(2).fold(Seed(0), |seed, draw| seed.with(draw.to_bits()))
    }

    /// The batches of the steps of one window.
    fn drawn(&self, window: u32) -> Vec<Vec<usize>> {
        let mut batches = vec![Vec::new(); AT_ONCE as usize];
        for (place, key) in self.keys.iter().enumerate() {
            let coins = key.of("batch").with(u64::from(window)).uniforms();
            for (batch, coin) in batches.iter_mut().zip(coins) {
                if coin < self.rate {
                    batch.push(place);
                }
            }
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use fedra_data::Target;

    use super::*;

    /// Every fourth is like one before it.
    fn examples(count: u32) -> Vec<Encoded> {
        let example = |number: u32| {
            let number = if number % 4 == 3 { 0 } else { number };
            let (ids, types) = (vec![number, 1], Vec::new());
            Encoded { ids, types, target: Target::One(0), dropped: 0, pixels: None }
        };
        (0..count).map(example).collect()
    }

    fn sampler(examples: &[Encoded], cap: Option<usize>) -> BatchSampler {
        BatchSampler::new(examples, &SecretKey::simulated(Seed(1)), (0.25, cap))
    }

    /// Batches by what is in them.
    fn contents(examples: &[Encoded], steps: u32) -> Vec<Vec<u32>> {
        let mut sampled = sampler(examples, None);
        let ids = |place: usize| examples[place].ids[0];
        (0..steps)
            .map(|step| {
                let mut ids: Vec<u32> = sampled.batch(step).into_iter().map(ids).collect();
                ids.sort_unstable();
                ids
            })
            .collect()
    }

    #[test]
    fn without_an_example_all_others_are_in_the_batches_they_were_in() {
        let all = examples(40);
        let whole = contents(&all, 100);
        for gone in 0..all.len() {
            let mut less = all.clone();
            let id = less.remove(gone).ids[0];
            let mut batches = 0;
            for (with, mut without) in whole.iter().zip(contents(&less, 100)) {
                if without != *with {
                    without.push(id);
                    without.sort_unstable();
                    batches += 1;
                }
                assert_eq!(without, *with, "example {gone}");
            }
            assert!((8..=45).contains(&batches), "example {gone} was in {batches} of 100");
        }
    }

    #[test]
    fn equal_examples_have_draws_of_their_own() {
        let same = vec![examples(1).remove(0); 400];
        let mut sampled = sampler(&same, None);
        let sizes: Vec<usize> = (0..100).map(|step| sampled.batch(step).len()).collect();
        let mean = sizes.iter().sum::<usize>() as f64 / 100.0;
        // 100 of 400 in the mean, with a deviation of 0.87 over a hundred steps.
        assert!((mean - 100.0).abs() < 4.0, "{mean}");
        assert!(sizes.iter().any(|size| *size != sizes[0]));
    }

    #[test]
    fn a_cap_keeps_members_by_their_own_draws() {
        let all = examples(200);
        let (mut free, mut capped) = (sampler(&all, None), sampler(&all, Some(45)));
        let mut seen = [0; 2];
        for step in 0..200 {
            let (wide, narrow) = (free.batch(step), capped.batch(step));
            assert_eq!(narrow.len(), wide.len().min(45));
            assert!(narrow.iter().all(|place| wide.contains(place)));
            // No half of the places is preferred.
            for place in narrow {
                seen[usize::from(place >= 100)] += 1;
            }
        }
        assert!(seen.iter().all(|count| (3_900..5_100).contains(count)), "{seen:?}");
    }
}
