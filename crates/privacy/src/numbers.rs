//! The numbers of a guarantee, each checked once, on its way in.
//!
//! A number that was read from a file or a flag and stands in one of these types needs no second
//! check: NaN, zero noise or a rate above one cannot be expressed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::PrivacyError;

macro_rules! checked {
    ($(#[$doc:meta])* $name:ident, $label:literal, $expected:literal, $test:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// Checks the number.
            pub fn new(value: f64) -> Result<Self, PrivacyError> {
                let test: fn(f64) -> bool = $test;
                if test(value) {
                    return Ok(Self(value));
                }
                let found = in_short(value);
                Err(PrivacyError::Number { name: $label, found, expected: $expected })
            }

            /// The number.
            pub const fn get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = PrivacyError;

            fn try_from(value: f64) -> Result<Self, PrivacyError> {
                Self::new(value)
            }
        }

        impl From<$name> for f64 {
            fn from(number: $name) -> Self {
                number.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                match formatter.precision() {
                    None => formatter.write_str(&in_short(self.0)),
                    Some(_) => fmt::Display::fmt(&self.0, formatter),
                }
            }
        }
    };
}

checked!(
    /// The chance with which each unit takes part in a step, q.
    SamplingRate,
    "sampling rate q",
    "a probability above 0 and at most 1",
    |value| value > 0.0 && value <= 1.0
);
checked!(
    /// The deviation of the noise over the sensitivity to adding or removing one unit, sigma.
    NoiseMultiplier,
    "noise multiplier sigma",
    "between 0.001 and 1e9: less noise gives no privacy, and with more the model learns nothing",
    |value| (SMALLEST_NOISE..=1e9).contains(&value)
);
checked!(
    /// The chance with which the guarantee may fail.
    Delta,
    "delta",
    "a probability of at least 2.3e-308 and below 1",
    |value| (f64::MIN_POSITIVE..1.0).contains(&value)
);
checked!(
    /// The largest epsilon that may ever be spent.
    Budget,
    "epsilon",
    "a number above 0; an epsilon of 0 would need infinite noise",
    |value| value > 0.0 && value.is_finite()
);

/// A number as people write it: 1e-300 is no use as three hundred zeros.
fn in_short(value: f64) -> String {
    let is_long = value != 0.0 && value.is_finite() && !(1e-3..1e15).contains(&value.abs());
    if is_long { format!("{value:e}") } else { value.to_string() }
}

/// Below this, one step alone has an epsilon of half a million, and its numbers overflow.
pub const SMALLEST_NOISE: f64 = 1e-3;

impl Delta {
    /// Refuses a delta at which publishing one whole record at random would keep the guarantee.
    pub fn below_one_of(self, units: u64) -> Result<Self, PrivacyError> {
        if self.0 * (units as f64) < 1.0 {
            return Ok(self);
        }
        let found = format!("{self} for {units} units");
        let expected =
            "less than 1/N: at 1/N, publishing one unit's data would satisfy the guarantee";
        Err(PrivacyError::Number { name: "delta", found, expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_guarantee_nothing_are_refused() {
        for bad in [0.0, -0.1, 1.0001, f64::NAN, f64::INFINITY] {
            assert!(SamplingRate::new(bad).is_err(), "{bad}");
        }
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300] {
            assert!(NoiseMultiplier::new(bad).is_err(), "{bad}");
        }
        for bad in [0.0, 1.0, -1e-5, f64::NAN] {
            assert!(Delta::new(bad).is_err(), "{bad}");
        }
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Budget::new(bad).is_err(), "{bad}");
        }
        let error = SamplingRate::new(2.0).unwrap_err().to_string();
        assert_eq!(error, "sampling rate q: found 2, expected a probability above 0 and at most 1");
        for (error, found) in [
            (SamplingRate::new(1e300).map(drop), "found 1e300, expected"),
            (
                Delta::new(1e-308).map(drop),
                "found 1e-308, expected a probability of at least 2.3e-308",
            ),
        ] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains(found), "{error}");
        }
    }

    #[test]
    fn delta_must_be_below_one_over_n() {
        let delta = Delta::new(1e-4).unwrap();
        assert!(delta.below_one_of(9_999).is_ok());
        assert!(delta.below_one_of(10_000).is_err());
    }

    #[test]
    fn a_bad_number_in_a_file_is_refused_where_it_is_read() {
        assert!(serde_json::from_str::<SamplingRate>("1.5").is_err());
        assert_eq!(serde_json::from_str::<SamplingRate>("0.5").unwrap().get(), 0.5);
    }
}
