//! Who sends, and what is sent.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the values of a payload are; the numbers stand in payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Parameters as they are.
    Values = 0,
    /// What training added to the parameters received.
    Change = 1,
    /// A control variate, or the change of one (SCAFFOLD).
    Variate = 2,
}

/// The number of a client. Sums fold in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientId(pub u32);

impl ClientId {
    /// The sender of a download; no client has this number.
    pub const SERVER: Self = Self(u32::MAX);
}

impl fmt::Display for ClientId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SERVER => formatter.pad("server"),
            Self(number) => number.fmt(formatter),
        }
    }
}
