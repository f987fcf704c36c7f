//! The feature map of linear attention.

use serde::{Deserialize, Serialize};

/// What is applied to queries and keys before they meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phi {
    /// Nothing: attention is a cubic form of the tokens.
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `elu(x) + 1`: smooth, and positive as attention weights are.
    EluPlusOne,
}

impl Phi {
    /// Every map, for tests and help texts.
    pub const ALL: [Self; 3] = [Self::Identity, Self::Relu, Self::EluPlusOne];

    /// The name as typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Relu => "relu",
            Self::EluPlusOne => "elu-plus-one",
        }
    }

    /// The map.
    pub fn value(self, x: f64) -> f64 {
        match self {
            Self::Identity => x,
            Self::Relu => x.max(0.0),
            Self::EluPlusOne if x > 0.0 => x + 1.0,
            Self::EluPlusOne => x.exp(),
        }
    }

    /// Its slope, read off the map's value: no exponential is computed twice.
    pub fn slope_at_value(self, value: f64) -> f64 {
        match self {
            Self::Identity => 1.0,
            Self::Relu => f64::from(u8::from(value > 0.0)),
            Self::EluPlusOne => value.min(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_match_central_differences() {
        const STEP: f64 = 1e-6;
        for phi in Phi::ALL {
            for x in [-2.3, -0.4, 0.7, 1.9] {
                let slope = phi.slope_at_value(phi.value(x));
                let measured = (phi.value(x + STEP) - phi.value(x - STEP)) / (2.0 * STEP);
                assert!((slope - measured).abs() < 1e-9, "{phi:?} at {x}: {slope} {measured}");
            }
        }
    }
}
