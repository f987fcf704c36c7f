//! Names as text: one spelling for messages, files and map keys.
//!
//! A type that has `Display` and `FromStr` is written and read as that string, so its names
//! exist in one place only and a parse error reads the same wherever the text came from.

/// A text does not name what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: expected {expected}")]
pub struct Unreadable {
    /// What the text should have named.
    pub what: &'static str,
    /// The text as found.
    pub text: String,
    /// What would have been accepted.
    pub expected: String,
}

impl Unreadable {
    pub(crate) fn new(what: &'static str, text: &str, expected: &str) -> Self {
        Self { what, text: text.to_owned(), expected: expected.to_owned() }
    }
}

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
