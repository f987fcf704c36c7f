//! The three students of the bridge, from the one with closed forms to the one nearest to a Transformer.

use serde::{Deserialize, Serialize};

use super::setting::BridgeSetting;
use crate::attention::Attention;
use crate::network::Network;
use crate::phi::Phi;

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Student {
    /// Linear attention with the identity map, and a value block.
    Linear,
    /// Softmax attention and a value block.
    Softmax,
    /// Softmax attention, a value block as wide as the tokens, and an MLP.
    SoftmaxMlp,
}

impl Student {
    /// All three, in the order of the bridge.
    pub const ALL: [Self; 3] = [Self::Linear, Self::Softmax, Self::SoftmaxMlp];

    /// The name in plots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear attention",
            Self::Softmax => "softmax attention",
            Self::SoftmaxMlp => "softmax attention with MLP",
        }
    }

    pub(super) fn network(self, setting: &BridgeSetting) -> Network {
        let (attention, mlp) = match self {
            Self::Linear => (Attention::Linear(Phi::Identity), 0),
            Self::Softmax => (Attention::Softmax, 0),
            Self::SoftmaxMlp => (Attention::Softmax, setting.hidden),
        };
        Network { attention, mlp, ridge: setting.ridge }
    }

    /// The name in tables and of files.
    pub fn short(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Softmax => "softmax",
            Self::SoftmaxMlp => "softmax-mlp",
        }
    }
}
