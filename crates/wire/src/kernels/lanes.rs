//! A checksum that may be taken from several places at once.
//!
//! Bytes are read as lines of four u64, the last one filled up with zeros. For each of the four
//! lanes, with lines x(1) .. x(n), h(i) the upper half of x(i), and arithmetic modulo 2^64:
//! ```text
//! words = sum x(i)     placed = sum (n + 1 - i) x(i)
//! highs = sum h(i)     placed_highs = sum (n + 1 - i) h(i)
//! ```
//! Sums of parts combine into the sums of the whole, so the value does not depend on how a pass
//! divides its work. Halves are summed by themselves because a carry out of the uppermost bit is
//! lost: two flipped signs at an even distance would cancel in `words` and in `placed`. With them,
//! any damage to at most two words of each lane changes the sums, however many bits it hits, in
//! anything shorter than 2^36 bytes; what they miss beyond that, and what is lost when they are
//! mixed into one u64, is one case in 2^64 for damage that does not aim at it. It is no signature.

/// Bytes that a line has.
pub(crate) const LINE: usize = 32;

/// Odd, with half of its bits set: the 64-bit golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The running sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    words: [u64; 4],
    placed: [u64; 4],
    highs: [u64; 4],
    placed_highs: [u64; 4],
    lines: u64,
    /// Bytes of the last line that are there.
    loose: u64,
}

impl Lanes {
    /// Adds a group of lines.
    #[inline(always)]
    pub(crate) fn take(&mut self, lines: &[[u8; LINE]]) {
        let Self { mut words, mut placed, mut highs, mut placed_highs, .. } = *self;
        for line in lines {
            let (line, _) = line.as_chunks();
            for lane in 0..4 {
                let word = u64::from_le_bytes(line[lane]);
                words[lane] = words[lane].wrapping_add(word);
                placed[lane] = placed[lane].wrapping_add(words[lane]);
                highs[lane] = highs[lane].wrapping_add(word >> 32);
                placed_highs[lane] = placed_highs[lane].wrapping_add(highs[lane]);
            }
        }
        let lines = self.lines + lines.len() as u64;
        *self = Self { words, placed, highs, placed_highs, lines, loose: self.loose };
    }

    /// Adds the last bytes, which fill less than a line.
    pub(crate) fn take_loose(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mut line = [0; LINE];
            line[..bytes.len()].copy_from_slice(bytes);
            self.take(&[line]);
            self.loose = bytes.len() as u64;
        }
    }

    /// The sums of these bytes, which are whole lines, and of the bytes behind them.
    pub fn then(self, behind: Self) -> Self {
        assert_eq!(self.loose, 0, "only the last line may be cut");
        let plain = |a: [u64; 4], b: [u64; 4]| std::array::from_fn(|i| a[i].wrapping_add(b[i]));
        let moved = |sums: [u64; 4]| sums.map(|sum| sum.wrapping_mul(behind.lines));
        Self {
            words: plain(self.words, behind.words),
            placed: plain(plain(self.placed, moved(self.words)), behind.placed),
            highs: plain(self.highs, behind.highs),
            placed_highs: plain(plain(self.placed_highs, moved(self.highs)), behind.placed_highs),
            lines: self.lines + behind.lines,
            loose: behind.loose,
        }
    }

    /// One number for all of it. A change of any one sum always changes the number.
    pub fn finish(self) -> u64 {
        let sums = [self.words, self.placed, self.highs, self.placed_highs];
        let numbers = sums.as_flattened().iter().copied().chain([self.lines, self.loose]);
        numbers.fold(SPREAD, |mixed, number| {
            let mixed = (mixed ^ number).wrapping_mul(SPREAD);
            mixed ^ mixed >> 32
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;

    /// Some bytes without a pattern.
    fn bytes(length: usize) -> Vec<u8> {
        let mut generator = fedra_seed::Seed(7).generator();
        (0..length).map(|_| generator.below(256) as u8).collect()
    }

    #[test]
    fn the_value_is_that_of_the_formula() {
        let bytes = bytes(LINE * 3 + 5);
        let mut padded = bytes.clone();
        padded.resize(LINE * 4, 0);
        let words: Vec<u64> =
            padded.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let sum = |lane: usize, term: fn(u64, u64) -> u64| {
            (1..=4).fold(0_u64, |sum, line| {
                sum.wrapping_add(term(5 - line, words[(line as usize - 1) * 4 + lane]))
            })
        };
        let all = |term| std::array::from_fn(|lane| sum(lane, term));
        let expected = Lanes {
            words: all(|_, x| x),
            placed: all(u64::wrapping_mul),
            highs: all(|_, x| x >> 32),
            placed_highs: all(|place, x| place * (x >> 32)),
            lines: 4,
            loose: 5,
        };
        assert_eq!(crate::kernels::lanes(&bytes), expected);
    }

    #[test]
    fn known_values_stay_as_they_are() {
        // The first two were computed from the formula by another program.
        let known = [checksum(b""), checksum(b"fedra"), checksum(&bytes(5000))];
        assert_eq!(known, [0xa1a4_86fe_6db9_c58a, 0x29bd_efce_4f08_7999, 0x6105_5736_8450_4cf3]);
    }

    #[test]
    fn a_whole_has_the_sums_of_its_parts_wherever_it_is_cut() {
        let bytes = bytes(3000);
        for cut in (0..bytes.len()).step_by(LINE) {
            let (left, right) = bytes.split_at(cut);
            assert_eq!(
                crate::kernels::lanes(left).then(crate::kernels::lanes(right)),
                crate::kernels::lanes(&bytes),
                "{cut}"
            );
        }
    }

    #[test]
    fn one_or_two_flipped_bits_are_always_found() {
        let good = bytes(LINE * 9 + 3);
        let sums = crate::kernels::lanes(&good);
        for first in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[first / 8] ^= 1 << (first % 8);
            assert_ne!(crate::kernels::lanes(&bad), sums, "bit {first}");
            for second in first + 1..good.len() * 8 {
                bad[second / 8] ^= 1 << (second % 8);
                assert_ne!(crate::kernels::lanes(&bad), sums, "bits {first} and {second}");
                bad[second / 8] ^= 1 << (second % 8);
            }
        }
    }

    #[test]
    fn two_signs_flipped_in_one_lane_are_found_at_every_distance() {
        let good = bytes(LINE * 64);
        for second in 1..64 {
            let mut bad = good.clone();
            bad[7] ^= 0x80;
            bad[second * LINE + 7] ^= 0x80;
            assert_ne!(checksum(&bad), checksum(&good), "{second} lines apart");
        }
    }

    #[test]
    fn lines_that_change_places_and_zeros_at_the_end_are_found() {
        let good = bytes(LINE * 8);
        for (left, right) in [(0, 1), (2, 7), (3, 5)] {
            let mut bad = good.clone();
            for byte in 0..LINE {
                bad.swap(left * LINE + byte, right * LINE + byte);
            }
            assert_ne!(checksum(&bad), checksum(&good), "{left} and {right}");
        }
        assert_ne!(checksum(&[1, 0]), checksum(&[1]));
        assert_ne!(checksum(&[0; LINE]), checksum(&[0; 2 * LINE]));
    }
}
