//! Names as text: one spelling for messages, files and map keys.
//!
//! A type that has `Display` and `FromStr` is written and read as that string, so its names
//! exist in one place only and a parse error reads the same wherever the text came from.

/// A text does not name what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}, expected {expected}")]
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

/// An enum of words: their list, their names, and the texts they are written and read as.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $kind:ident: $what:literal {
            $($(#[$doc:meta])* $word:ident = $name:literal,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $kind {
            $($(#[$doc])* $word,)+
        }

        impl $kind {
            #[doc = concat!("Every ", $what, ", in order.")]
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$word),+];

            /// The name in snake case, as it stands in ids and files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$word => $name,)+
                }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl std::str::FromStr for $kind {
            type Err = $crate::text::Unreadable;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|word| word.name() == text);
                let known = || Self::ALL.map(Self::name).join(", ");
                found.ok_or_else(|| $crate::text::Unreadable::new($what, text, &known()))
            }
        }

        $crate::text::serde_as_text!($kind);
    };
}

pub(crate) use {serde_as_text, words};
