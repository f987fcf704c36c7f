//! The bytes a client moves in one round, by direction and by kind.
//!
//! Parameters and hidden states are kept apart because they grow with different things: the one
//! with the part that learns, the other with the tokens that pass a cut.

use serde::{Deserialize, Serialize};

use crate::bytes::ByteCount;

/// Bytes of parameters and of what crosses a cut; up is from the client to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Trained parameters sent to the server.
    pub parameters_up: ByteCount,
    /// New parameters sent back.
    pub parameters_down: ByteCount,
    /// Hidden states and gradients sent to the server.
    pub crossing_up: ByteCount,
    /// Hidden states and gradients sent back.
    pub crossing_down: ByteCount,
}

impl Traffic {
    /// Everything from the client to the server.
    pub fn up(&self) -> ByteCount {
        self.parameters_up + self.crossing_up
    }

    /// Everything from the server to the client.
    pub fn down(&self) -> ByteCount {
        self.parameters_down + self.crossing_down
    }

    /// Everything that crosses the cut, both ways.
    pub fn crossing(&self) -> ByteCount {
        self.crossing_up + self.crossing_down
    }

    /// Everything, both ways.
    pub fn total(&self) -> ByteCount {
        self.up() + self.down()
    }
}

/// How much passes each boundary of a cut in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HiddenStates {
    /// Tokens a client passes through the model.
    pub tokens: u64,
    /// Elements of the hidden vector of one token.
    pub width: u64,
}

impl HiddenStates {
    /// None: for a plan without a cut, or for the parameters alone.
    pub const NONE: Self = Self { tokens: 0, width: 0 };

    /// The number of elements; saturates.
    pub const fn elements(self) -> u64 {
        self.tokens.saturating_mul(self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_both_by_direction_and_by_kind() {
        let traffic = Traffic {
            parameters_up: ByteCount(1),
            parameters_down: ByteCount(20),
            crossing_up: ByteCount(300),
            crossing_down: ByteCount(4000),
        };
        assert_eq!(traffic.up(), ByteCount(301));
        assert_eq!(traffic.down(), ByteCount(4020));
        assert_eq!(traffic.crossing(), ByteCount(4300));
        assert_eq!(traffic.total(), ByteCount(4321));
    }
}
