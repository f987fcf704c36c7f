//! Amounts of bytes, and how many of them an element takes.
//!
//! A byte count is a type of its own so that elements, tensors and bytes cannot be mixed up.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// A number of bytes; prints exactly below 1000 and as `1.5 MB` above. Sums saturate.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// What so many elements of the given width take.
    pub const fn of(elements: u64, width: ElementWidth) -> Self {
        Self(elements.saturating_mul(width.0 as u64))
    }
}

/// How many bytes one element takes on the wire or in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ElementWidth(pub u8);

impl ElementWidth {
    /// Eight bits.
    pub const I8: Self = Self(1);
    /// Half precision.
    pub const F16: Self = Self(2);
    /// Brain float: half the width, the range of single precision.
    pub const BF16: Self = Self(2);
    /// Single precision.
    pub const F32: Self = Self(4);
    /// Double precision.
    pub const F64: Self = Self(8);
}

impl Add for ByteCount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for ByteCount {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self(0), Add::add)
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1000 {
            return formatter.pad(&format!("{} B", self.0));
        }
        // In whole tenths, so that 999 950 rounds up into the next unit and not to "1000.0 kB".
        let mut unit = 1000_u128;
        let mut names = ["kB", "MB", "GB", "TB", "PB"].into_iter();
        let tenths = |unit: u128| (u128::from(self.0) * 10 + unit / 2) / unit;
        let name = loop {
            match names.next() {
                Some(name) if tenths(unit) < 10_000 => break name,
                Some(_) => unit *= 1000,
                None => break "EB",
            }
        };
        let shown = tenths(unit);
        formatter.pad(&format!("{}.{} {name}", shown / 10, shown % 10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: u64, expected: &str) {
        assert_eq!(ByteCount(bytes).to_string(), expected);
    }

    #[test]
    fn a_count_is_exact_below_a_thousand_and_rounded_above() {
        check(0, "0 B");
        check(999, "999 B");
        check(1_000, "1.0 kB");
        check(999_949, "999.9 kB");
        check(999_950, "1.0 MB");
        check(1_500_000, "1.5 MB");
        check(33_600_000, "33.6 MB");
        check(2_000_000_000_000_000, "2.0 PB");
        check(u64::MAX, "18.4 EB");
    }

    #[test]
    fn a_count_pads_like_a_word() {
        assert_eq!(format!("{:>8}|", ByteCount(12)), "    12 B|");
    }

    #[test]
    fn sums_and_products_saturate() {
        let most = ByteCount(u64::MAX);
        assert_eq!([most, ByteCount(1)].into_iter().sum::<ByteCount>(), most);
        assert_eq!(ByteCount::of(u64::MAX, ElementWidth::F32), most);
        assert_eq!(ByteCount::of(3, ElementWidth::BF16), ByteCount(6));
    }
}
