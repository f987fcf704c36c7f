//! How weights that never learn are stored, and the words for it.

use crate::quantisation::Quantisation;
use std::fmt;
use std::str::FromStr;

/// How weights that never learn are stored; what learns is f32 whatever they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WeightFormat {
    /// Integers of 4 bits in blocks of 32 with a scale and a minimum: 5 bits a number.
    Int4,
    /// Integers of 8 bits in blocks of 32 with a scale: 8.5 bits a number.
    Int8,
    /// Rounded to bf16: 16 bits.
    Bf16,
    /// As they are read: 32 bits.
    #[default]
    F32,
}

impl WeightFormat {
    /// All of them, the most exact first.
    pub const ALL: [Self; 4] = [Self::F32, Self::Bf16, Self::Int8, Self::Int4];
    /// The words for them, for people.
    pub const WORDS: &'static str = "f32, bf16, int8 or int4";

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }

    /// Bits of 32 numbers of a row, the scale of their block included.
    pub const fn bits_of_32(self) -> u32 {
        match self {
            Self::F32 => 32 * 32,
            Self::Bf16 => 32 * 16,
            Self::Int8 => 8 * 34,
            Self::Int4 => 8 * 20,
        }
    }

    /// The integers, if it has some.
    pub const fn quantisation(self) -> Option<Quantisation> {
        match self {
            Self::F32 | Self::Bf16 => None,
            Self::Int8 => Some(Quantisation::Int8),
            Self::Int4 => Some(Quantisation::Int4),
        }
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for WeightFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|format| format.name() == text);
        known.ok_or_else(|| format!("found {text:?}, expected {}", Self::WORDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_read_back_from_its_word_and_a_smaller_one_is_less() {
        for format in WeightFormat::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!(WeightFormat::ALL.is_sorted_by(|larger, smaller| larger > smaller));
        let refused = "q4_0".parse::<WeightFormat>().unwrap_err();
        assert_eq!(refused, "found \"q4_0\", expected f32, bf16, int8 or int4");
    }
}
