//! Amounts of bytes.
//!
//! A byte count is a type of its own so that elements, tensors and bytes cannot be mixed up.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::Unreadable;

/// A number of bytes; prints exactly below 1000 and as `1.5 MB` above. Sums saturate.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ByteCount(pub u64);

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

impl FromStr for ByteCount {
    type Err = Unreadable;

    /// Reads `200 MB`, `1.5 GB` or `640 B`: units of a thousand, as they are printed.
    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let refuse = || Unreadable::new("number of bytes", text, "one such as `200 MB`");
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refuse)?;
        let (number, unit) = text.split_at(split);
        let scale = match unit.trim() {
            "B" => 1.0,
            "kB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            "TB" => 1e12,
            _ => return Err(refuse()),
        };
        let bytes = number.parse::<f64>().map_err(|_| refuse())? * scale;
        Ok(Self(bytes.round() as u64))
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1000 {
            return formatter.pad(&format!("{} B", self.0));
        }
        // In whole tenths, so that 999 950 rounds up into the next unit and not to "1000.0 kB".
        let units = [(1, "kB"), (2, "MB"), (3, "GB"), (4, "TB"), (5, "PB")].into_iter();
        let tenths = |power: u32| {
            let unit = 1000_u128.pow(power);
            (u128::from(self.0) * 10 + unit / 2) / unit
        };
        let fits = |(power, _): &(u32, _)| tenths(*power) < 10_000;
        let (power, name) = units.clone().find(fits).unwrap_or((6, "EB"));
        let shown = tenths(power);
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
    fn a_count_reads_as_it_prints() {
        for (text, expected) in
            [("200 MB", 200_000_000), ("1.5GB", 1_500_000_000), ("640 B", 640), ("7 kB", 7000)]
        {
            assert_eq!(text.parse(), Ok(ByteCount(expected)));
        }
        for wrong in ["200", "MB", "2 mb", "-1 MB", "1.2.3 MB", ""] {
            assert!(wrong.parse::<ByteCount>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_count_pads_like_a_word() {
        assert_eq!(format!("{:>8}|", ByteCount(12)), "    12 B|");
    }

    #[test]
    fn sums_saturate() {
        let most = ByteCount(u64::MAX);
        assert_eq!([most, ByteCount(1)].into_iter().sum::<ByteCount>(), most);
    }
}
