//! The number of a federated round, counted from zero.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A round of the federation; the first is `Round(0)`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Round(pub u32);

impl Round {
    /// The round after this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Round {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_count_up_from_zero_and_read_as_plain_numbers() {
        assert_eq!(Round::default().next(), Round(1));
        assert_eq!(serde_json::from_str::<Round>("7").expect("a number"), Round(7));
        assert_eq!(Round(7).to_string(), "7");
    }
}
