//! Why a server refuses a step of a cut decoder. The session is as it was before.

/// What was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// No such session of this owner: never opened, closed, expired, lost with a server that was
    /// started again, or somebody else's, which nobody can tell apart.
    #[error("session {id}: found none that is open, expected one that you opened")]
    Unknown {
        /// The session's number.
        id: u64,
    },
    /// A session that is opened twice.
    #[error("session {id}: found it open already, expected a new number")]
    Open {
        /// The session's number.
        id: u64,
    },
    /// Too many sessions.
    #[error("{whose} sessions: found {found} open, expected fewer than {limit}; close one or wait")]
    TooMany {
        /// `your` or `all`.
        whose: &'static str,
        /// How many are open.
        found: usize,
        /// How many may be.
        limit: usize,
    },
    /// A step in the past or the future.
    #[error("session {id}: found a step at position {found}, expected {expected}")]
    Position {
        /// The session's number.
        id: u64,
        /// Where the step begins.
        found: usize,
        /// Where the session is.
        expected: usize,
    },
    /// Rows of another width, or none.
    #[error("session {id}: found {found} numbers, expected rows of {width}, at least one")]
    Rows {
        /// The session's number.
        id: u64,
        /// How many numbers came.
        found: usize,
        /// The width of a row.
        width: usize,
    },
    /// A number that is none.
    #[error("session {id}: found {found} in row {row} {place} the blocks, expected finite numbers")]
    NotFinite {
        /// The session's number.
        id: u64,
        /// The number.
        found: String,
        /// The first row that has one, counted in its step.
        row: usize,
        /// `in front of` or `behind`.
        place: &'static str,
    },
    /// A sequence longer than allowed.
    #[error("session {id}: found {found} tokens, expected at most {limit}")]
    TooLong {
        /// The session's number.
        id: u64,
        /// The length that the sequence would have.
        found: usize,
        /// The longest that the model or the server allows.
        limit: usize,
    },
    /// No memory for more keys and values.
    #[error(
        "session {id}: found {found} bytes of caches needed by all sessions, expected at most {limit}; try \
         again later"
    )]
    Full {
        /// The session's number.
        id: u64,
        /// Bytes that all sessions would need.
        found: usize,
        /// Bytes that they may have.
        limit: usize,
    },
    /// The model refused.
    #[error("session {id}: {reason}")]
    Model {
        /// The session's number.
        id: u64,
        /// Its words.
        reason: String,
    },
    /// The server's thread is gone.
    #[error("sessions: found them shut down, expected a running server")]
    ShutDown,
}
