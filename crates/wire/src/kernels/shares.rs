//! Passes over a whole model, by a few threads: one thread alone moves a part of what memory gives.
//!
//! Shares have a fixed size, and what is found in them is put together in their order, so results do not depend on how
//! many threads there are.

use std::sync::{Mutex, PoisonError};
use std::thread;

use super::dispatch;
use super::passes::{Excess, Inspected};

/// Bytes of a share.
const SHARE: usize = 1 << 20;
/// More threads add little.
const THREADS: usize = 4;

/// Writes numbers as bytes, four for each; it panics where there is not room for exactly so many.
pub fn store(numbers: &[f32], into: &mut [u8]) {
    assert_eq!(into.len(), 4 * numbers.len(), "room for the numbers");
    let shares = into.chunks_mut(SHARE).zip(numbers.chunks(SHARE / 4)).collect();
    each(shares, |(into, numbers): (&mut [u8], &[f32])| {
        for (place, number) in into.as_chunks_mut().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
    });
}

/// Sums some numbers' bytes for the checksum and looks for one that is too large.
pub fn inspect(bytes: &[u8]) -> Inspected {
    joined(each(bytes.chunks(SHARE).collect(), dispatch::inspect))
}

/// Inspects an update, takes the sum of its squares in f64 if it is to be measured, and puts `sum + weight * update` in
/// its place. Both have the same length; it panics otherwise.
pub fn merge(update: &mut [u8], sum: &[u8], weight: f32, measures: bool) -> (Inspected, f64) {
    assert_eq!(update.len(), sum.len(), "an update beside the sum of its like");
    let shares = update.chunks_mut(SHARE).zip(sum.chunks(SHARE)).collect();
    let found = each(shares, |(update, sum)| dispatch::merge(update, sum, weight, measures));
    let (found, squares): (Vec<_>, Vec<f64>) = found.into_iter().unzip();
    (joined(found), squares.iter().sum())
}

/// The sum of squares of numbers in f32, in f64.
pub fn squares(bytes: &[u8]) -> f64 {
    each(bytes.chunks(SHARE).collect(), dispatch::squares).iter().sum()
}

/// What was found in shares, as if it were found in one pass.
fn joined(found: Vec<Inspected>) -> Inspected {
    let nothing = Inspected { lanes: dispatch::lanes(&[]), excess: None };
    found.into_iter().enumerate().fold(nothing, |before, (number, found)| {
        let moved = |Excess { index, value }| Excess { index: index + number * (SHARE / 4), value };
        let lanes = before.lanes.then(found.lanes);
        Inspected { lanes, excess: before.excess.or(found.excess.map(moved)) }
    })
}

/// What comes of each share, in their order.
fn each<T: Send, R: Send>(shares: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    // Half of the processor's: clients may be at work beside it.
    let threads = thread::available_parallelism().map_or(1, |all| all.get() / 2);
    each_by(threads.min(THREADS), shares, work)
}

fn each_by<T: Send, R: Send>(
    threads: usize,
    shares: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    if threads <= 1 || shares.len() <= 2 {
        return shares.into_iter().map(work).collect();
    }
    let threads = threads.min(shares.len());
    let (shares, found) = (Mutex::new(shares.into_iter().enumerate()), Mutex::new(Vec::new()));
    let next = || shares.lock().unwrap_or_else(PoisonError::into_inner).next();
    let all = || {
        while let Some((number, share)) = next() {
            let result = work(share);
            found.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // Where no more threads are to be had, those that have begun do all of it.
            if thread::Builder::new().spawn_scoped(scope, all).is_err() {
                break;
            }
        }
        all();
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_unstable_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::passes::LIMIT;

    /// More shares than threads, the last of them not whole.
    const COUNT: usize = 6 * SHARE / 4 + 12_345;

    fn bytes(seed: u64) -> Vec<u8> {
        let mut generator = fedra_seed::Seed(seed).generator();
        (0..COUNT).flat_map(|_| (generator.normal() as f32).to_le_bytes()).collect()
    }

    #[test]
    fn shares_of_an_update_are_merged_as_the_whole_is() {
        let (update, sum) = (bytes(1), bytes(2));
        let (mut whole, mut shared) = (update.clone(), update.clone());
        let (expected, _) = dispatch::merge(&mut whole, &sum, 0.3, true);
        let (found, merged_squares) = merge(&mut shared, &sum, 0.3, true);
        assert_eq!(found, expected);
        assert!(shared == whole);
        assert_eq!(inspect(&update), dispatch::inspect(&update));
        assert_eq!(merged_squares.to_bits(), squares(&update).to_bits());
    }

    #[test]
    fn shares_come_back_in_their_order_from_any_number_of_threads() {
        let squares: Vec<u64> = (0..1000).map(|number| number * number).collect();
        for threads in [0, 1, 2, 3, 8, 2000] {
            let found = each_by(threads, (0..1000_u64).collect(), |number| number * number);
            assert_eq!(found, squares, "{threads}");
        }
    }

    #[test]
    fn numbers_lie_where_their_bytes_belong() {
        let numbers: Vec<f32> = (0..COUNT).map(|number| number as f32).collect();
        let mut stored = vec![0; 4 * COUNT];
        store(&numbers, &mut stored);
        assert!(stored == crate::to_bytes(&numbers));
    }

    #[test]
    fn the_first_number_past_the_limit_is_named_in_whichever_share_it_is() {
        let sum = bytes(2);
        for index in [3, SHARE / 4 - 1, SHARE / 4, COUNT - 1] {
            let mut update = bytes(1);
            for at in [index, COUNT - 1] {
                update[4 * at..4 * at + 4].copy_from_slice(&(2.0 * LIMIT).to_le_bytes());
            }
            let (found, _) = merge(&mut update, &sum, 1.0, false);
            let found = found.excess.expect("one past the limit");
            assert_eq!((found.index, found.value), (index, 2.0 * LIMIT));
        }
    }

    #[test]
    fn squares_are_those_of_all_numbers() {
        for count in [0, 5, COUNT] {
            assert_eq!(squares(&crate::to_bytes(&vec![2.0; count])), 4.0 * count as f64);
        }
    }
}
