//! Numbers in files: those that must come back with every bit, and those that may be none.
//!
//! The notes of a checkpoint are JSON, and a decimal fraction may lose its last bit on the way back.
//! A run that is resumed has to decide as the uninterrupted one does, so bits are written instead
//! ([`Exact`]). A loss in a report can leave the numbers while the model is still finite. JSON has no
//! word for that and null is written; null is read back as what it was, so that such a report is not
//! lost with its log.

use std::collections::BTreeMap;

use serde::de::Error;
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

/// A number, or null.
pub(crate) fn one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Numbers by name, or nulls.
pub(crate) fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, f64>, D::Error> {
    let read: BTreeMap<String, Option<f64>> = BTreeMap::deserialize(deserializer)?;
    Ok(read.into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN))).collect())
}

/// A number that has to pass a test.
pub(crate) fn within<'de, D: Deserializer<'de>>(
    deserializer: D,
    test: impl Fn(f64) -> bool,
) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if test(number) { Ok(number) } else { Err(D::Error::custom("another number was expected")) }
}

/// Adds values field by field.
macro_rules! sums {
    ($kind:ty { $($field:ident),+ }) => {
        impl std::ops::AddAssign for $kind {
            fn add_assign(&mut self, other: Self) {
                let Self { $($field),+ } = other;
                $(self.$field += $field;)+
            }
        }
    };
}

pub(crate) use sums;

#[cfg(test)]
mod tests {
    use fedra_wire::ClientId;

    use crate::protocol::fleet::{EvaluationSet, Scored};
    use crate::report::SetScores;

    use super::*;

    #[test]
    fn every_bit_survives_json() {
        for number in [0.1, -0.0, 1.0 / 3.0, f64::MIN_POSITIVE, 0.012_345_678_901_234_567] {
            let text = serde_json::to_string(&Exact(number)).expect("a number");
            let back: Exact = serde_json::from_str(&text).expect("just written");
            assert_eq!(back.0.to_bits(), number.to_bits());
        }
    }

    #[test]
    fn scores_that_are_no_numbers_come_back_from_a_log() {
        let scored = |client, loss| Scored {
            client: Some(ClientId(client)),
            examples: 2,
            loss,
            scores: [("negative_loss".to_owned(), -loss)].into(),
            tallies: [].into(),
        };
        let each = vec![scored(0, f64::NAN), scored(1, f64::INFINITY), scored(2, 0.1)];
        let set = SetScores::new(EvaluationSet::ClientTest, each);
        let line = serde_json::to_string(&set).expect("JSON");
        let back: SetScores = serde_json::from_str(&line).expect("just written");
        assert!(back.loss.is_nan() && back.each[1].loss.is_nan());
        assert_eq!(back.each[2].loss.to_bits(), 0.1_f64.to_bits());
        assert_eq!(serde_json::to_string(&back).expect("JSON"), line);
    }
}
