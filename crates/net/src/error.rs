//! What can go wrong between two machines, in sentences for the party that sees it.

use std::net::SocketAddr;

use crate::frame::FrameError;

/// Why a connection was not made, or ended.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// An address that means nothing.
    #[error("found the address {found:?}, expected {expected}")]
    Address {
        /// As it was given.
        found: String,
        /// What would have been accepted.
        expected: &'static str,
    },
    /// Nobody answers there, or not any more. Whoever wants to may try again.
    #[error("cannot reach {server}: {reason}")]
    Unreachable {
        /// The address.
        server: String,
        /// Why.
        reason: String,
    },
    /// TLS was refused by one of the two sides, or one of them does not speak it.
    #[error("{server}: {reason}")]
    Tls {
        /// The address.
        server: String,
        /// What is wrong.
        reason: String,
    },
    /// A certificate or a key that cannot be used.
    #[error("{file}: {reason}")]
    Certificate {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The other side said no, and will say so again.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The other side broke the rules of the stream.
    #[error("the other side sent what makes no message: {0}")]
    Frame(#[from] FrameError),
    /// The stream ended; it may be opened again.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// Nothing came in time.
    #[error("nothing came within {seconds} s")]
    Late {
        /// How long it was waited.
        seconds: u64,
    },
    /// A message that says nothing that is known here.
    #[error("{what}: {reason}")]
    Meaning {
        /// Which message.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Somebody asked to stop while something was worked on.
    #[error("stopped while a request was worked on")]
    Stopped,
    /// A file or a thread that the system did not give.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl NetError {
    /// Whether trying again may help.
    pub const fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost(_) | Self::Late { .. } => true,
            Self::Listen { .. }
            | Self::Address { .. }
            | Self::Tls { .. }
            | Self::Certificate { .. }
            | Self::Refused(_)
            | Self::Frame(_)
            | Self::Meaning { .. }
            | Self::Stopped
            | Self::System { .. } => false,
        }
    }

    /// What a status of the other side means here.
    pub(crate) fn of_status(status: &tonic::Status) -> Self {
        let said = status.message().to_owned();
        match status.code() {
            tonic::Code::InvalidArgument
            | tonic::Code::FailedPrecondition
            | tonic::Code::PermissionDenied
            | tonic::Code::Unauthenticated
            | tonic::Code::AlreadyExists
            | tonic::Code::OutOfRange
            | tonic::Code::ResourceExhausted
            | tonic::Code::Unimplemented => Self::Refused(said),
            tonic::Code::Ok
            | tonic::Code::Cancelled
            | tonic::Code::Unknown
            | tonic::Code::DeadlineExceeded
            | tonic::Code::NotFound
            | tonic::Code::Aborted
            | tonic::Code::Internal
            | tonic::Code::Unavailable
            | tonic::Code::DataLoss => Self::Lost(said),
        }
    }
}
