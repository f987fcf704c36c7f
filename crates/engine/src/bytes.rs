//! What travelled, and what would have travelled.

use fedra_plan::ByteCount;
use serde::{Deserialize, Serialize};

use crate::middle::CrossingBytes;

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

impl std::ops::AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.up += other.up;
        self.down += other.down;
        self.full_up += other.full_up;
        self.full_down += other.full_down;
        self.evaluation += other.evaluation;
        self.crossing += other.crossing;
    }
}
