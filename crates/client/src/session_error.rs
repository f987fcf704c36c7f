//! Why a server refuses a step of a cut decoder. The session is as it was before.

use std::fmt::Display;

/// What was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// No such session of this owner: never opened, closed, expired, lost with a server that was
    /// started again, or somebody else's, which nobody can tell apart.
    #[error("session {id} is not open")]
    Unknown {
        /// The session's number.
        id: u64,
    },
    /// No room for another session, or for more keys and values: later there may be.
    #[error("{0}")]
    Busy(String),
    /// A step or an opening that is wrong.
    #[error("session {id}: {reason}")]
    Refused {
        /// The session's number.
        id: u64,
        /// What was found and what was expected.
        reason: String,
    },
    /// The server's thread is gone.
    #[error("the server has shut down its sessions")]
    ShutDown,
}

impl SessionError {
    /// A session that is opened twice.
    pub fn open(id: u64) -> Self {
        Self::refused(id, "it is open already; use a new number")
    }

    pub(crate) fn refused(id: u64, reason: impl Display) -> Self {
        Self::Refused { id, reason: format!("{reason}") }
    }
}
