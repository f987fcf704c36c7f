//! How long everything learns: `5`, `0.25`, `"adaptive"` or `"per_block"`.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The length of the first stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    /// So many rounds; 0 freezes from the start.
    Rounds(u32),
    /// This share of the rounds, between 0 and 1; at least one round.
    Share(f64),
    /// Until the evidence about query and key suffices.
    Adaptive,
    /// The same, for each block on its own.
    PerBlock,
}

impl Default for Warmup {
    fn default() -> Self {
        Self::Share(0.5)
    }
}

impl Warmup {
    pub(super) fn over(self, rounds: u32) -> Self {
        match self {
            Self::Share(share) => Self::Rounds(((share * f64::from(rounds)).round() as u32).max(1)),
            Self::Rounds(_) | Self::Adaptive | Self::PerBlock => self,
        }
    }
}

impl Serialize for Warmup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Rounds(rounds) => rounds.serialize(serializer),
            Self::Share(share) => share.serialize(serializer),
            Self::Adaptive => "adaptive".serialize(serializer),
            Self::PerBlock => "per_block".serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Warmup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;

        impl Visitor<'_> for Words {
            type Value = Warmup;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let words = "a number of rounds, a share between 0 and 1 with a decimal point, \
                             \"adaptive\" or \"per_block\"";
                formatter.write_str(words)
            }

            fn visit_u64<E: Error>(self, found: u64) -> Result<Warmup, E> {
                let wrong = |_| E::invalid_value(Unexpected::Unsigned(found), &self);
                u32::try_from(found).map(Warmup::Rounds).map_err(wrong)
            }

            fn visit_i64<E: Error>(self, found: i64) -> Result<Warmup, E> {
                let wrong = |_| E::invalid_value(Unexpected::Signed(found), &self);
                u32::try_from(found).map(Warmup::Rounds).map_err(wrong)
            }

            fn visit_f64<E: Error>(self, found: f64) -> Result<Warmup, E> {
                if found > 0.0 && found < 1.0 {
                    return Ok(Warmup::Share(found));
                }
                Err(E::invalid_value(Unexpected::Float(found), &self))
            }

            fn visit_str<E: Error>(self, found: &str) -> Result<Warmup, E> {
                match found {
                    "adaptive" => Ok(Warmup::Adaptive),
                    "per_block" => Ok(Warmup::PerBlock),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }
        }

        deserializer.deserialize_any(Words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_is_a_number_a_share_or_a_word() {
        let read = |text: &str| serde_json::from_str::<Warmup>(text).ok();
        assert_eq!(read("0"), Some(Warmup::Rounds(0)));
        assert_eq!(read("12"), Some(Warmup::Rounds(12)));
        assert_eq!(read("0.25"), Some(Warmup::Share(0.25)));
        assert_eq!(read(r#""adaptive""#), Some(Warmup::Adaptive));
        assert_eq!(read(r#""per_block""#), Some(Warmup::PerBlock));
        for bad in ["-1", "1.0", "0.0", "1.5", r#""soon""#, "true", "[1]"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_share_becomes_the_nearest_number_of_rounds_but_not_none() {
        assert_eq!(Warmup::Share(0.25).over(15), Warmup::Rounds(4));
        assert_eq!(Warmup::Share(0.01).over(15), Warmup::Rounds(1));
        assert_eq!(Warmup::Rounds(3).over(15), Warmup::Rounds(3));
    }
}
