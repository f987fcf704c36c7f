//! A device and a precision as they are written, in files and in flags.

use std::fmt;
use std::str::FromStr;

use fedra_compute::{Precision, WeightFormat};
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A device as it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceName {
    /// The processor: the same bits on every machine.
    #[default]
    Cpu,
    /// The first GPU that can be used, else the processor.
    Auto,
    /// A GPU of NVIDIA's by its number.
    Cuda(usize),
}

impl DeviceName {
    /// How it is written.
    pub const WORDS: &'static str = "cpu, auto or cuda:N, as in cuda:0";
}

impl fmt::Display for DeviceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => formatter.pad("cpu"),
            Self::Auto => formatter.pad("auto"),
            Self::Cuda(number) => formatter.pad(&format!("cuda:{number}")),
        }
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.strip_prefix("cuda:")?.parse().ok();
        match text {
            "cpu" => Ok(Self::Cpu),
            "auto" => Ok(Self::Auto),
            _ => number(text)
                .map(Self::Cuda)
                .ok_or_else(|| format!("found {text:?}, expected {}", Self::WORDS)),
        }
    }
}

impl Serialize for DeviceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Word { expected: Self::WORDS, read: |text| text.parse().ok() })
    }
}

/// `precision` of a file; its type is that of a crate without serde.
pub(super) mod precision {
    use super::{Deserializer, Precision, Serializer, Word};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    pub fn serialize<S: Serializer>(value: &Precision, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(value.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Precision, D::Error> {
        let read = |text: &str| text.parse().ok();
        deserializer.deserialize_str(Word { expected: Precision::WORDS, read })
    }
}

/// `model.weights` of a file.
pub(super) mod weights {
    use super::{Deserializer, Serializer, WeightFormat, Word};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    pub fn serialize<S: Serializer>(
        value: &WeightFormat,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(value.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<WeightFormat, D::Error> {
        let read = |text: &str| text.parse().ok();
        deserializer.deserialize_str(Word { expected: WeightFormat::WORDS, read })
    }
}

/// Reads one of some words.
struct Word<T> {
    expected: &'static str,
    read: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.read)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_back_from_their_words() {
        for (text, name) in [
            ("cpu", DeviceName::Cpu),
            ("auto", DeviceName::Auto),
            ("cuda:12", DeviceName::Cuda(12)),
        ] {
            assert_eq!(text.parse(), Ok(name));
            assert_eq!(name.to_string(), text);
        }
        for wrong in ["", "gpu", "cuda", "cuda:", "cuda:-1", "cuda:x", "CPU"] {
            let refused = wrong.parse::<DeviceName>().unwrap_err();
            let expected = "expected cpu, auto or cuda:N, as in cuda:0";
            assert!(refused.ends_with(expected), "{refused}");
        }
    }
}
