//! Everything that can be wrong with a payload.
//!
//! One enum for the crate; each message names what was found and what was expected.

use std::fmt::Display;

use fedra_plan::{ParamId, PlanError};

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
    #[error("{id} has {found} elements, expected {expected}")]
    ElementCount {
        /// The parameter.
        id: ParamId,
        /// Elements found.
        found: usize,
        /// Elements the layout gives it.
        expected: usize,
    },
    /// A share of elements to keep makes no sense.
    #[error("a share of {found} to keep, expected above 0 and at most 1")]
    Share {
        /// The share as found.
        found: f64,
    },

    /// A payload or a frame of hidden states that is not what it should be.
    #[error("{of}: {what} is {found}, expected {expected}")]
    Claim {
        /// What was read.
        of: &'static str,
        /// Which claim or part of it.
        what: &'static str,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// The bitmap is not that of a scope.
    #[error("the scope of a payload cannot be read: {0}")]
    Bitmap(#[from] PlanError),
    /// The loss is not a number.
    #[error("a payload reports a loss of {found}, expected a finite number")]
    Loss {
        /// The loss as found.
        found: f32,
    },
    /// A block's score is not a number.
    #[error("the score of block {block} is {found}, expected a finite number")]
    Score {
        /// The block.
        block: usize,
        /// The score as found.
        found: f32,
    },
    /// An element is NaN, infinite, or larger than any trained parameter can be.
    #[error("{id} holds {found}, expected a finite number of magnitude at most {limit:e}")]
    Magnitude {
        /// The parameter.
        id: ParamId,
        /// The element.
        found: f32,
        /// The largest magnitude that the encoding or the format allows.
        limit: f32,
    },
    /// The scale of a row is negative.
    #[error("{id} has a row scaled by {found}, expected a scale of at least 0")]
    Scale {
        /// The parameter.
        id: ParamId,
        /// The scale.
        found: f32,
    },
    /// The places of kept elements are out of order, out of range or of the wrong number.
    #[error("{id} names the places of its kept elements wrongly, expected {expected} ascending")]
    Places {
        /// The parameter.
        id: ParamId,
        /// Places expected.
        expected: usize,
    },
}

impl WireError {
    /// A claim or a part of a payload that is not as expected.
    pub(crate) fn payload(what: &'static str, found: impl Display, expected: impl Display) -> Self {
        let (found, expected) = (found.to_string(), expected.to_string());
        Self::Claim { of: "a payload", what, found, expected }
    }

    /// The same of a frame.
    pub(crate) fn frame(what: &'static str, found: impl Display, expected: impl Display) -> Self {
        let (found, expected) = (found.to_string(), expected.to_string());
        Self::Claim { of: "a frame", what, found, expected }
    }

    /// The length of a payload.
    pub(crate) fn length(found: usize, expected: usize) -> Self {
        Self::payload("number of bytes", found, expected)
    }

    /// A field that has to be zero.
    pub(crate) fn reserved(found: impl Display) -> Self {
        Self::payload("reserved field", found, 0)
    }

    /// Whether numbers that should be finite are not: whoever sends them has diverged.
    pub fn is_divergence(&self) -> bool {
        match self {
            Self::Loss { .. } => true,
            Self::Score { found, .. } | Self::Magnitude { found, .. } => !found.is_finite(),
            Self::UnknownParameter { .. }
            | Self::ElementCount { .. }
            | Self::Share { .. }
            | Self::Claim { .. }
            | Self::Bitmap(_)
            | Self::Scale { .. }
            | Self::Places { .. } => false,
        }
    }
}
