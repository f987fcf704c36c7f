//! Batches without padding, and the order in which an epoch visits its examples.
//!
//! A batch is its sequences end to end with their lengths; masks and positions follow from the
//! lengths, so no arithmetic is spent on tokens that are not there. Sequences of like length
//! still share a batch, because the longest of them decides how long a step takes.
//!
//! ```
//! use fedra_data::epoch;
//! let batches = epoch(&[5, 9, 5, 9, 7], 2, 1);
//! assert_eq!(batches.iter().flatten().count(), 5);
//! ```

use crate::{Dice, Encoded, EncodedChoice, EncodedText, Target};

/// Examples are sorted by length inside windows of this many batches: wide enough that batches are
/// even, narrow enough that an epoch stays random.
const WINDOW: usize = 16;

/// Sequences end to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// All tokens, sequence after sequence.
    pub ids: Vec<u32>,
    /// The type of each token (BERT's segment); empty where all are 0.
    pub types: Vec<u32>,
    /// The length of each sequence; they sum to the number of tokens.
    pub lengths: Vec<usize>,
    /// What is to be predicted.
    pub targets: Targets,
}

/// The targets of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// One class a sequence.
    One(Vec<u32>),
    /// A set of codes a sequence.
    Many(Vec<Vec<u32>>),
    /// One label a token, or nothing; as long as the tokens.
    PerToken(Vec<Option<u32>>),
}

impl Batch {
    /// The batch of these sequences.
    ///
    /// # Panics
    /// When an index is out of range, the batch is empty, or the targets are of different kinds,
    /// which those of one table never are.
    pub fn gather(encoded: &[Encoded], indices: &[usize]) -> Self {
        let first = &encoded[indices[0]].target;
        let targets = Targets::like(first);
        let mut batch = Self { ids: Vec::new(), types: Vec::new(), lengths: Vec::new(), targets };
        for &index in indices {
            let sequence = &encoded[index];
            if !sequence.types.is_empty() {
                batch.types.resize(batch.ids.len(), 0);
                batch.types.extend_from_slice(&sequence.types);
            }
            batch.ids.extend_from_slice(&sequence.ids);
            batch.lengths.push(sequence.ids.len());
            batch.targets.push(sequence);
        }
        if !batch.types.is_empty() {
            batch.types.resize(batch.ids.len(), 0);
        }
        batch
    }

    /// How many sequences.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }
}

impl Targets {
    fn like(target: &Target) -> Self {
        match target {
            Target::One(_) => Self::One(Vec::new()),
            Target::Many(_) => Self::Many(Vec::new()),
            Target::PerToken(_) | Target::Choice(_) | Target::Text(_) => Self::PerToken(Vec::new()),
        }
    }

    fn push(&mut self, sequence: &Encoded) {
        match (self, &sequence.target) {
            (Self::One(all), Target::One(label)) => all.push(*label),
            (Self::Many(all), Target::Many(labels)) => all.push(labels.clone()),
            (Self::PerToken(all), Target::PerToken(labels)) => all.extend_from_slice(labels),
            (
                Self::PerToken(all),
                Target::Choice(EncodedChoice { prompt, .. })
                | Target::Text(EncodedText { prompt, .. }),
            ) => {
                all.extend(told_after(*prompt, &sequence.ids));
            }
            (Self::One(_) | Self::Many(_) | Self::PerToken(_), _) => {
                panic!("targets of different kinds in one batch")
            }
        }
    }
}

/// For each token of a sequence the next one, where that is behind the prompt.
fn told_after(prompt: usize, ids: &[u32]) -> impl Iterator<Item = Option<u32>> {
    let before = prompt.saturating_sub(1).min(ids.len());
    let told = ids.get(prompt..).unwrap_or_default().iter().map(|&id| Some(id));
    let rest = ids.len() - before - told.len();
    std::iter::repeat_n(None, before).chain(told).chain(std::iter::repeat_n(None, rest))
}

/// An epoch: every example once, in batches of like length, in random order.
///
/// # Panics
/// When `size` is zero.
pub fn epoch(lengths: &[usize], size: usize, seed: u64) -> Vec<Vec<usize>> {
    assert!(size > 0, "a batch holds at least one example");
    let mut dice = Dice::for_purpose(seed, "epoch");
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    dice.shuffle(&mut order);
    for window in order.chunks_mut(size * WINDOW) {
        // Stable, so equal lengths keep their random order.
        window.sort_by_key(|&index| lengths[index]);
    }
    let mut batches: Vec<Vec<usize>> = order.chunks(size).map(<[usize]>::to_vec).collect();
    dice.shuffle(&mut batches);
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_holds_no_padding() {
        let sequence = |ids: &[u32]| {
            let target = Target::PerToken(ids.iter().map(|&id| (id > 1).then_some(id)).collect());
            Encoded { ids: ids.to_vec(), types: Vec::new(), target, dropped: 0 }
        };
        let batch = Batch::gather(&[sequence(&[1, 5]), sequence(&[1, 6, 7])], &[1, 0]);
        assert_eq!(batch.ids, [1, 6, 7, 1, 5]);
        assert_eq!(batch.lengths, [3, 2]);
        let expected = vec![None, Some(6), Some(7), None, Some(5)];
        assert_eq!(batch.targets, Targets::PerToken(expected));
        assert!(batch.types.is_empty(), "types cost nothing where there are none");
    }

    #[test]
    fn only_what_follows_a_prompt_is_to_be_told() {
        let target = Target::Text(EncodedText { prompt: 3, reference: "x".to_owned() });
        let ids = vec![1, 5, 6, 7, 2];
        let batch = Batch::gather(&[Encoded { ids, types: Vec::new(), target, dropped: 0 }], &[0]);
        let expected = vec![None, None, Some(7), Some(2), None];
        assert_eq!(batch.targets, Targets::PerToken(expected));
    }

    #[test]
    fn types_stand_beside_their_tokens_whatever_shares_the_batch() {
        let sequence = |ids: &[u32], types: &[u32]| {
            let (ids, types) = (ids.to_vec(), types.to_vec());
            Encoded { ids, types, target: Target::One(0), dropped: 0 }
        };
        let all = [sequence(&[1, 2], &[]), sequence(&[3, 4, 5], &[0, 1, 1]), sequence(&[6], &[])];
        assert_eq!(Batch::gather(&all, &[0, 1, 2]).types, [0, 0, 0, 1, 1, 0]);
        assert_eq!(Batch::gather(&all, &[1, 0]).types, [0, 1, 1, 0, 0]);
        assert!(Batch::gather(&all, &[0, 2]).types.is_empty());
    }

    #[test]
    fn batches_of_an_epoch_are_of_like_length() {
        let mut dice = Dice::new(4);
        let lengths: Vec<usize> = (0..640).map(|_| 5 + dice.below(100)).collect();
        let waste = |batches: &[Vec<usize>]| {
            let padded =
                |batch: &Vec<usize>| batch.len() * batch.iter().map(|&i| lengths[i]).max().unwrap();
            batches.iter().map(padded).sum::<usize>() as f64 / lengths.iter().sum::<usize>() as f64
        };
        assert!(waste(&epoch(&lengths, 16, 1)) < 1.15);
    }
}
