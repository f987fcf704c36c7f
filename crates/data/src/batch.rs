//! The order in which an epoch visits its examples.
//!
//! Batches have no padding, but sequences of like length share one, because the longest of them decides
//! how long a step takes.
//!
//! ```
//! use fedra_data::epoch;
//! let batches = epoch(&[5, 9, 5, 9, 7], 2, 1);
//! assert_eq!(batches.iter().flatten().count(), 5);
//! ```

use crate::Dice;

/// Examples are sorted by length inside windows of this many batches: wide enough that batches are
/// even, narrow enough that an epoch stays random.
const WINDOW: usize = 16;

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
