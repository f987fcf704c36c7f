//! How long everything learns: `5`, `0.25`, `"adaptive"` or `"per_block"`.

use serde::{Deserialize, Deserializer, Serialize};

use crate::number;

/// The length of the first stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "snake_case",
    expecting = "expected a number of rounds, a share between 0 and 1 with a decimal point, \
                 \"adaptive\" or \"per_block\""
)]
pub enum Warmup {
    /// Until the evidence about query and key suffices.
    Adaptive,
    /// The same, for each block on its own.
    PerBlock,
    /// So many rounds; 0 freezes from the start.
    #[serde(untagged)]
    Rounds(u32),
    /// This share of the rounds, between 0 and 1; at least one round.
    #[serde(untagged)]
    Share(#[serde(deserialize_with = "share")] f64),
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

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    number::within(deserializer, |share| share > 0.0 && share < 1.0)
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
