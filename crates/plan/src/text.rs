//! Serde through the text form: one spelling for messages, files and map keys.
//!
//! A type that has `Display` and `FromStr` is written and read as that string, so its names
//! exist in one place only and a parse error reads the same wherever the text came from.

/// Implements `Serialize` and `Deserialize` by way of `Display` and `FromStr`.
macro_rules! serde_as_text {
    ($($kind:ty),+ $(,)?) => {$(
        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

pub(crate) use serde_as_text;
