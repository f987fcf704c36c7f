//! Numbers that come back from a checkpoint as they went in.
//!
//! The notes of a checkpoint are JSON, and a decimal fraction may lose its last bit on the way back.
//! A run that is resumed has to decide as the uninterrupted one does, so bits are written instead.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An f64 that is written as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Exact(pub(crate) f64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.to_bits().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(|bits| Self(f64::from_bits(bits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_survives_json() {
        for number in [0.1, -0.0, 1.0 / 3.0, f64::MIN_POSITIVE, 0.012_345_678_901_234_567] {
            let text = serde_json::to_string(&Exact(number)).expect("a number");
            let back: Exact = serde_json::from_str(&text).expect("just written");
            assert_eq!(back.0.to_bits(), number.to_bits());
        }
    }
}
