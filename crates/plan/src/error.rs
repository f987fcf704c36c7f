//! Everything that can be wrong with a layout, a scope, a cut, a rule or its evidence.
//!
//! One enum for the crate; each message names what was found and what was expected.

use crate::shape::WrongRank;
use crate::text::Unreadable;

/// Why a layout, scope, cut, plan or rule was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A text does not name what it should.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A shape has too few or too many dimensions.
    #[error(transparent)]
    Rank(#[from] WrongRank),
    /// A layout, a scope, a cut, a rule or a score is none that can be used.
    #[error("{found}, expected {expected}")]
    Unusable {
        /// What was found, with the parameter or the block that is at fault.
        found: String,
        /// What would have been accepted.
        expected: String,
    },
}

impl PlanError {
    pub(crate) fn unusable(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Unusable { found: found.into(), expected: expected.into() }
    }
}
