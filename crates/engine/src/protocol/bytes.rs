//! What travelled, what of it crossed a cut, and what would have travelled.

use fedra_plan::ByteCount;
use serde::{Deserialize, Serialize};

use crate::number::sums;

/// Lengths of encoded payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bytes {
    /// From the clients, refused updates included.
    pub up: ByteCount,
    /// To the clients, those who then failed included; nothing goes to who is not there.
    pub down: ByteCount,
    /// What the same clients would have sent had every parameter trained, in f32.
    pub full_up: ByteCount,
    /// What the clients that were sent something would have received had every parameter changed, in f32.
    pub full_down: ByteCount,
    /// What clients received in order to score the model. A measurement, and no part of `down`: a run
    /// that is scored less often sends the same.
    #[serde(default)]
    pub evaluation: ByteCount,
    /// What of `up` and `down` crossed a cut, by kind; the rest is parameters.
    #[serde(default, skip_serializing_if = "CrossingBytes::is_none")]
    pub crossing: CrossingBytes,
}

impl Bytes {
    /// So many times the same.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        // By doubling: fields that are added up in one place are counted here too.
        let (mut total, mut power, mut left) = (Self::default(), self, count);
        while left > 0 {
            if !left.is_multiple_of(2) {
                total += power;
            }
            left /= 2;
            if left > 0 {
                power += power;
            }
        }
        total
    }
}

sums!(Bytes { up, down, full_up, full_down, evaluation, crossing });

/// Bytes that crossed a cut, by kind; up is from clients to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossingBytes {
    /// Hidden states from clients.
    pub hidden_up: ByteCount,
    /// Hidden states to clients.
    pub hidden_down: ByteCount,
    /// Gradients from clients.
    pub gradient_up: ByteCount,
    /// Gradients to clients.
    pub gradient_down: ByteCount,
    /// Headers and lengths from clients.
    pub metadata_up: ByteCount,
    /// Headers to clients.
    pub metadata_down: ByteCount,
    /// Exchanges: a frame there and one back.
    pub exchanges: u64,
}

impl CrossingBytes {
    /// Everything from clients to the server.
    pub fn up(&self) -> ByteCount {
        self.hidden_up + self.gradient_up + self.metadata_up
    }

    /// Everything from the server to clients.
    pub fn down(&self) -> ByteCount {
        self.hidden_down + self.gradient_down + self.metadata_down
    }

    /// Whether nothing crossed.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

sums!(CrossingBytes {
    hidden_up,
    hidden_down,
    gradient_up,
    gradient_down,
    metadata_up,
    metadata_down,
    exchanges
});
