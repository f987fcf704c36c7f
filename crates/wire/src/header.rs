//! What a payload says about itself before its values.
//!
//! Everything the server learns from a client's answer is in the payload, the loss included, so
//! that counting the bytes of payloads counts all that was told.

use std::fmt;

use fedra_plan::Round;
use serde::{Deserialize, Serialize};

use crate::encoding::Encoding;

/// The claims of a sender. A receiver holds them against an [`Expectation`](crate::Expectation).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// What the values are.
    pub kind: Kind,
    /// How they are written.
    pub encoding: Encoding,
    /// The round they belong to.
    pub round: Round,
    /// Who made them; [`ClientId::SERVER`] for a download.
    pub client: ClientId,
    /// Examples behind them; 0 in a download.
    pub examples: u64,
    /// Optimiser steps behind them; 0 in a download.
    pub steps: u32,
    /// Mean training loss over those steps; 0 in a download.
    pub loss: f32,
}

impl Header {
    /// The header of what the server sends down in a round.
    pub const fn download(kind: Kind, encoding: Encoding, round: Round) -> Self {
        Self { kind, encoding, round, client: ClientId::SERVER, examples: 0, steps: 0, loss: 0.0 }
    }
}

/// What the values of a payload are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Parameters as they are.
    Values,
    /// What training added to the parameters received.
    Change,
    /// A control variate, or the change of one (SCAFFOLD).
    Variate,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Values, Self::Change, Self::Variate];

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Values => 0,
            Self::Change => 1,
            Self::Variate => 2,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Values => "values",
            Self::Change => "change",
            Self::Variate => "variate",
        })
    }
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
