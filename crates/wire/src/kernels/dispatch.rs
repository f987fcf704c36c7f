//! The passes for the processor at hand.
//!
//! One source, compiled for every processor of its kind and once more for those with AVX2, which
//! is detected at run time. Wider registers gain nothing more: the work is waiting for memory.

use super::lanes::Lanes;
use super::passes::{self, Inspected};

/// Defines a pass that picks the fastest version the processor has.
macro_rules! pass {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),+) $(-> $result:ty)?) => {
        $(#[$doc])*
        pub fn $name($($argument: $kind),+) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn with_avx2($($argument: $kind),+) $(-> $result)? {
                    passes::$name($($argument),+)
                }
                if std::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has just said that it has AVX2, and nothing else is
                    // asked of the caller.
                    return unsafe { with_avx2($($argument),+) };
                }
            }
            passes::$name($($argument),+)
        }
    };
}

pass! {
    /// The sums of some bytes, for their checksum.
    lanes(bytes: &[u8]) -> Lanes
}
pass! {
    /// Sums some numbers' bytes for the checksum and looks for one that is too large.
    inspect(bytes: &[u8]) -> Inspected
}
pass! {
    /// Inspects an update, takes the sum of its squares in f64 if it is to be measured, and puts `sum + weight * update`
    /// in its place. Both have the same length; it panics otherwise.
    merge(update: &mut [u8], sum: &[u8], weight: f32, measures: bool) -> (Inspected, f64)
}
pass! {
    /// Adds an update, times its weight, to a sum. Both have the same length; it panics otherwise.
    add(sum: &mut [u8], update: &[u8], weight: f32)
}
pass! {
    /// The sum of squares of numbers, in f64.
    squares(bytes: &[u8]) -> f64
}
pass! {
    /// Divides numbers where they are.
    divide(numbers: &mut [u8], divisor: f32)
}

#[cfg(test)]
mod tests {
    use super::passes::{Excess, LIMIT};
    use super::*;

    /// Nothing, less than a line, a group and quarters of groups, and one number to either side.
    const COUNTS: [usize; 14] = [0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 1000, 1024, 12_345];

    /// Numbers without a pattern, some of them as large as they may be.
    fn numbers(seed: u64, count: usize) -> Vec<f32> {
        let mut generator = fedra_seed::Seed(seed).generator();
        let number = |place| match place % 11 {
            0 => LIMIT,
            1 => -LIMIT,
            _ => generator.normal() as f32,
        };
        (0..count).map(number).collect()
    }

    fn bytes(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn every_version_gives_the_bits_of_the_plain_loop_at_every_size_and_address() {
        for (count, shift) in COUNTS.into_iter().flat_map(|count| [0, 1, 4, 13].map(|s| (count, s)))
        {
            let (update, sum) = (numbers(1, count), numbers(2, count));
            let folded: Vec<f32> = sum.iter().zip(&update).map(|(s, u)| s + 0.3 * u).collect();
            let moved = |numbers: &[f32]| [vec![0; shift], bytes(numbers)].concat();
            let (update_bytes, sum_bytes) = (moved(&update), moved(&sum));
            let expected = Inspected { lanes: passes::lanes(&bytes(&update)), excess: None };

            assert_eq!(lanes(&update_bytes[shift..]), expected.lanes, "{count}");
            assert_eq!(inspect(&update_bytes[shift..]), expected, "{count}");
            assert_eq!(passes::inspect(&update_bytes[shift..]), expected, "{count}");
            for merge in [merge, passes::merge] {
                let mut merged = update_bytes.clone();
                let (found, squares) = merge(&mut merged[shift..], &sum_bytes[shift..], 0.3, true);
                assert_eq!(found, expected);
                assert_eq!(squares.to_bits(), passes::squares(&bytes(&update)).to_bits());
                assert_eq!(merged[shift..], bytes(&folded), "{count}");
            }
            let summed = squares(&update_bytes[shift..]);
            assert_eq!(summed.to_bits(), passes::squares(&bytes(&update)).to_bits(), "{count}");
            for add in [add, passes::add] {
                let mut added = sum_bytes.clone();
                add(&mut added[shift..], &update_bytes[shift..], 0.3);
                assert_eq!(added[shift..], bytes(&folded), "{count}");
            }
            let shared: Vec<f32> = sum.iter().map(|number| number / 0.3).collect();
            for divide in [divide, passes::divide] {
                let mut divided = sum_bytes.clone();
                divide(&mut divided[shift..], 0.3);
                assert_eq!(divided[shift..], bytes(&shared), "{count}");
            }
        }
    }

    #[test]
    fn the_first_number_past_the_limit_is_named_wherever_it_is() {
        let count = 1100;
        let past = LIMIT.next_up();
        for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, past, -past] {
            for index in 0..count {
                let mut update = numbers(3, count);
                update[index] = value;
                update[count - 1] = value;
                let sum = bytes(&numbers(4, count));
                let mut update = bytes(&update);
                let inspected = inspect(&update);
                let found =
                    inspected.excess.map(|Excess { index, value }| (index, value.to_bits()));
                assert_eq!(found, Some((index, value.to_bits())));
                let (merged, _) = merge(&mut update, &sum, 1.0, false);
                let found = merged.excess.map(|Excess { index, value }| (index, value.to_bits()));
                assert_eq!(found, Some((index, value.to_bits())));
                assert_eq!(merged.lanes, inspected.lanes);
            }
        }
    }
}
