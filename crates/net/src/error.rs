//! What can go wrong between two machines, in sentences for the party that sees it.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use fedra_client::ClientError;

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
        source: io::Error,
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
    /// One of the two sides does not take the other's certificate.
    #[error("{server}: {reason}")]
    Distrusted {
        /// The address.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What came is not what that port was expected to speak: another protocol, or bytes that were damaged on
    /// their way.
    #[error("{server}: {reason}")]
    Garbled {
        /// The address.
        server: String,
        /// What was found.
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
    /// The other side could not take what it got, which may not be what was sent.
    #[error("the server refused: {0}")]
    Rejected(String),
    /// Another process has taken this client's place.
    #[error("{0}")]
    Replaced(String),
    /// The other side broke the rules of the stream.
    #[error("the other side sent an invalid message: {0}")]
    Frame(#[from] FrameError),
    /// The stream ended; it may be opened again.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// Nothing came in time.
    #[error("nothing arrived within {seconds} s")]
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
    /// A client could not do what it was asked.
    #[error("{}", in_full(.0))]
    Work(ClientError),
    /// Somebody asked to stop while something was worked on.
    #[error("stopped while a request was in progress")]
    Stopped,
    /// A state folder that cannot be used.
    #[error("--state: {folder}: {reason}")]
    Folder {
        /// The folder.
        folder: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file or a thread that the system did not give.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What an error means to whoever wants to stay joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is lost: to dial again may help.
    Lost,
    /// It would come again.
    Refused,
}

/// Whether the other side has ever let this process in. What is a wrong setting before that (a port that
/// speaks something else) is a fault of the network afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not yet.
    Stranger,
    /// Yes.
    Welcomed,
}

impl Standing {
    /// What an error means that is a wrong setting to a stranger, and a damaged byte to everybody else.
    pub const fn fault(self) -> Fault {
        match self {
            Self::Stranger => Fault::Refused,
            Self::Welcomed => Fault::Lost,
        }
    }
}

impl NetError {
    /// What it means to whoever wants to stay joined: the one place where that is decided.
    pub const fn fault(&self, standing: Standing) -> Fault {
        match self {
            Self::Unreachable { .. } | Self::Lost(_) | Self::Late { .. } => Fault::Lost,
            Self::Garbled { .. } | Self::Rejected(_) | Self::Frame(_) | Self::Meaning { .. } => {
                standing.fault()
            }
            Self::Listen { .. }
            | Self::Address { .. }
            | Self::Distrusted { .. }
            | Self::Certificate { .. }
            | Self::Refused(_)
            | Self::Replaced(_)
            | Self::Folder { .. }
            | Self::Work(_)
            | Self::Stopped
            | Self::System { .. } => Fault::Refused,
        }
    }

    /// Whether this process had no file descriptor left, so that the same command may do better another time.
    pub fn lacks_descriptors(&self) -> bool {
        matches!(
            self,
            Self::System { source, .. } | Self::Listen { source, .. } if is_out_of_descriptors(source)
        )
    }

    /// A message that says nothing that is known here.
    pub(crate) fn meaning(what: &'static str, reason: impl Display) -> Self {
        Self::Meaning { what, reason: reason.to_string() }
    }

    /// What the system said while something was done to a file.
    pub(crate) fn file(doing: &str, path: &Path) -> impl Fn(io::Error) -> Self {
        let doing = format!("{doing} {}", path.display());
        move |source| Self::System { doing: doing.clone(), source }
    }

    /// What a status of the other side means here.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others may pass")]
    pub(crate) fn of_status(status: &tonic::Status) -> Self {
        let said = said_in(status);
        match status.code() {
            tonic::Code::FailedPrecondition
            | tonic::Code::PermissionDenied
            | tonic::Code::Unauthenticated
            | tonic::Code::Unimplemented => Self::Refused(said),
            tonic::Code::InvalidArgument
            | tonic::Code::OutOfRange
            | tonic::Code::ResourceExhausted => Self::Rejected(said),
            tonic::Code::AlreadyExists => Self::Replaced(said),
            _ => Self::Lost(said),
        }
    }
}

/// What became of a connection, in words of ours where a library has words: those name its calls and its pages.
pub(crate) fn broken_off(error: &io::Error) -> String {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut, UnexpectedEof,
    };
    let kind = error.kind();
    if [BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof].contains(&kind)
    {
        BROKE_OFF.to_owned()
    } else if kind == TimedOut {
        "the other side no longer answers".to_owned()
    } else {
        error.to_string()
    }
}

/// The end of a connection that the other side did not announce.
const BROKE_OFF: &str = "it broke off";

/// How gRPC's library begins what it says of a connection itself; everything else was said by the other side.
const OF_TRANSPORT: [&str; 4] =
    ["error reading a body", "h2 protocol error", "transport error", "http2 error"];

/// What a status says: the other side's words, or what became of the connection.
pub(crate) fn said_in(status: &tonic::Status) -> String {
    let said = status.message();
    let mut cause = std::error::Error::source(status);
    if cause.is_none() && !OF_TRANSPORT.iter().any(|start| said.starts_with(start)) {
        return said.to_owned();
    }
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return broken_off(error);
        }
        cause = error.source();
    }
    BROKE_OFF.to_owned()
}

/// What a client says, with its causes.
fn in_full(error: &ClientError) -> String {
    let mut told = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        told = format!("{told}: {error}");
        source = error.source();
    }
    told
}

impl From<ClientError> for NetError {
    /// An error of the client's own machine is the site's end, and so is being asked to stop: nobody is told
    /// that the client failed.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are answers")]
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Ledger { doing, source } => Self::System { doing, source },
            ClientError::Stopped => Self::Stopped,
            other => Self::Work(other),
        }
    }
}

/// Whether the system, or this process, has no file descriptor left: `ENFILE` and `EMFILE`.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_is_told_from_other_errors_of_the_machine() {
        let of = |code| NetError::System {
            doing: "listening".to_owned(),
            source: io::Error::from_raw_os_error(code),
        };
        assert!(of(24).lacks_descriptors() && !of(13).lacks_descriptors());
    }

    #[test]
    fn what_libraries_say_of_a_connection_is_said_in_words_of_ours() {
        let eof = "peer closed connection without sending TLS close_notify: https://docs.rs/rustls";
        let of = |kind, text: &str| broken_off(&io::Error::new(kind, text));
        assert_eq!(of(io::ErrorKind::UnexpectedEof, eof), BROKE_OFF);
        assert_eq!(of(io::ErrorKind::TimedOut, "x"), "the other side no longer answers");
        assert_eq!(of(io::ErrorKind::StorageFull, "no space"), "no space");
        let lost = tonic::Status::unknown("error reading a body from connection");
        assert_eq!(NetError::of_status(&lost).to_string(), "the connection was lost: it broke off");
        let within = io::Error::new(io::ErrorKind::ConnectionReset, "reset");
        assert_eq!(said_in(&tonic::Status::from_error(Box::new(within))), BROKE_OFF);
        let told = tonic::Status::unavailable("the server has finished");
        assert_eq!(said_in(&told), "the server has finished");
    }

    #[test]
    fn only_what_somebody_decided_ends_a_site_that_was_welcome() {
        let (server, reason) = (|| "s:1".to_owned(), || "r".to_owned());
        let of = |code| NetError::of_status(&tonic::Status::new(code, "r"));
        let check = |error: NetError, stranger, welcomed| {
            assert_eq!(error.fault(Standing::Stranger), stranger, "{error:?}");
            assert_eq!(error.fault(Standing::Welcomed), welcomed, "{error:?}");
        };
        for error in [
            NetError::Unreachable { server: server(), reason: reason() },
            NetError::Lost(reason()),
            of(tonic::Code::Unavailable),
            of(tonic::Code::Aborted),
        ] {
            check(error, Fault::Lost, Fault::Lost);
        }
        for error in [
            NetError::Garbled { server: server(), reason: reason() },
            NetError::Meaning { what: "a request", reason: reason() },
            of(tonic::Code::InvalidArgument),
            of(tonic::Code::OutOfRange),
        ] {
            check(error, Fault::Refused, Fault::Lost);
        }
        for error in [
            NetError::Distrusted { server: server(), reason: reason() },
            of(tonic::Code::FailedPrecondition),
            of(tonic::Code::AlreadyExists),
        ] {
            check(error, Fault::Refused, Fault::Refused);
        }
    }
}
