//! What a payload says about itself before its values.
//!
//! Everything the server learns from a client's answer is in the payload, the loss included, so
//! that counting the bytes of payloads counts all that was told.

use fedra_plan::Round;

use crate::encoding::Encoding;
use crate::id::{ClientId, Kind};

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
    /// Mean training loss over those steps; absent in a download, and where it is not told.
    pub loss: Option<f32>,
}

impl Header {
    /// The header of what the server sends down in a round.
    pub const fn download(kind: Kind, encoding: Encoding, round: Round) -> Self {
        Self { kind, encoding, round, client: ClientId::SERVER, examples: 0, steps: 0, loss: None }
    }
}
