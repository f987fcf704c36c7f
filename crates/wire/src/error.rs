//! Everything that can be wrong with a payload.
//!
//! One enum for the crate; each message names what was found and what was expected.

use fedra_plan::{Digest, ParamId, PlanError, Round};

use crate::id::{ClientId, Kind};

/// Why values were not written, or a payload was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WireError {
    /// A parameter has no place in the layout.
    #[error("{id} is not in the layout")]
    UnknownParameter {
        /// The parameter.
        id: ParamId,
    },
    /// A parameter comes with a wrong number of elements.
    #[error("{id} has {found} elements: expected {expected}")]
    ElementCount {
        /// The parameter.
        id: ParamId,
        /// Elements found.
        found: usize,
        /// Elements the layout gives it.
        expected: usize,
    },
    /// A share of elements to keep makes no sense.
    #[error("a share of {found} to keep: expected above 0 and at most 1")]
    Share {
        /// The share as found.
        found: f64,
    },

    /// A frame of hidden states that is not what it should be.
    #[error("a frame: {what} is {found}, expected {expected}")]
    Frame {
        /// Which claim or part.
        what: &'static str,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },

    /// The payload ends before it should, or goes on after it should have ended.
    #[error("a payload has {found} bytes: expected {expected}")]
    Length {
        /// Bytes found.
        found: usize,
        /// Bytes that its layout, scope and encoding take.
        expected: usize,
    },
    /// The first bytes are not those of a payload.
    #[error("a payload starts with {found:02x?}: expected {expected:02x?}")]
    Magic {
        /// Bytes found.
        found: [u8; 4],
        /// Bytes of every payload.
        expected: [u8; 4],
    },
    /// The payload was written by another version of the format.
    #[error("a payload has format version {found}: expected {expected}")]
    Version {
        /// Version found.
        found: u8,
        /// Version that can be read.
        expected: u8,
    },
    /// A byte that has to be zero is not.
    #[error("the reserved byte of a payload is {found}: expected 0")]
    Reserved {
        /// Byte found.
        found: u8,
    },
    /// The payload holds something else than what is due.
    #[error("a payload holds kind {found}: expected {expected} ({})", expected.code())]
    OtherKind {
        /// Code found.
        found: u8,
        /// What is due.
        expected: Kind,
    },
    /// The values are written in another way than was agreed.
    #[error("a payload has encoding {found}: expected {expected}")]
    OtherEncoding {
        /// Code found.
        found: u8,
        /// Code of the encoding that was agreed.
        expected: u8,
    },
    /// The sender has another model.
    #[error("a payload is for the layout {found}: expected {expected}")]
    OtherLayout {
        /// Digest found.
        found: Digest,
        /// Digest of the layout here.
        expected: Digest,
    },
    /// The bitmap is not that of a scope.
    #[error("the scope of a payload cannot be read: {0}")]
    Bitmap(#[from] PlanError),
    /// The payload carries another part of the model than was ordered.
    #[error("a payload carries {found} parameters, {} {stray}: expected {expected}",
        if *.missing { "without" } else { "and with them" })]
    OtherScope {
        /// Parameters found.
        found: usize,
        /// Parameters expected.
        expected: usize,
        /// The first parameter in which the two differ.
        stray: ParamId,
        /// Whether that parameter is missing, or else should not be there.
        missing: bool,
    },
    /// The bytes are not those that were sent.
    #[error("the checksum of a payload is {found:016x}: expected {expected:016x}")]
    Checksum {
        /// Checksum found.
        found: u64,
        /// Checksum of the bytes that came with it.
        expected: u64,
    },
    /// The payload belongs to another round.
    #[error("a payload is for round {found}: expected round {expected}")]
    OtherRound {
        /// Round found.
        found: Round,
        /// The round that is on.
        expected: Round,
    },
    /// The payload names another sender.
    #[error("a payload has sender number {found} in its header: expected {expected}")]
    OtherSender {
        /// Sender found.
        found: ClientId,
        /// The one who delivered it.
        expected: ClientId,
    },

    /// The loss is not a number.
    #[error("a payload reports a loss of {found}: expected a finite number")]
    Loss {
        /// The loss as found.
        found: f32,
    },
    /// A block's score is not a number.
    #[error("the score of block {block} is {found}: expected a finite number")]
    Score {
        /// The block.
        block: usize,
        /// The score as found.
        found: f32,
    },
    /// An element is NaN, infinite, or larger than any trained parameter can be.
    #[error("{id} holds {found}: expected a finite number of magnitude at most {limit:e}")]
    Magnitude {
        /// The parameter.
        id: ParamId,
        /// The element.
        found: f32,
        /// The largest magnitude that the encoding or the format allows.
        limit: f32,
    },
    /// The scale of a row is negative.
    #[error("{id} has a row scaled by {found}: expected a scale of at least 0")]
    Scale {
        /// The parameter.
        id: ParamId,
        /// The scale.
        found: f32,
    },
    /// The places of kept elements are out of order, out of range or of the wrong number.
    #[error("{id} names the places of its kept elements wrongly: expected {expected} ascending")]
    Places {
        /// The parameter.
        id: ParamId,
        /// Places expected.
        expected: usize,
    },
}

impl WireError {
    /// Whether numbers that should be finite are not: whoever sends them has diverged.
    pub fn is_divergence(&self) -> bool {
        match self {
            Self::Loss { .. } => true,
            Self::Score { found, .. } | Self::Magnitude { found, .. } => !found.is_finite(),
            Self::UnknownParameter { .. }
            | Self::ElementCount { .. }
            | Self::Share { .. }
            | Self::Frame { .. }
            | Self::Length { .. }
            | Self::Magic { .. }
            | Self::Version { .. }
            | Self::Reserved { .. }
            | Self::OtherKind { .. }
            | Self::OtherEncoding { .. }
            | Self::OtherLayout { .. }
            | Self::Bitmap(_)
            | Self::OtherScope { .. }
            | Self::Checksum { .. }
            | Self::OtherRound { .. }
            | Self::OtherSender { .. }
            | Self::Scale { .. }
            | Self::Places { .. } => false,
        }
    }
}
