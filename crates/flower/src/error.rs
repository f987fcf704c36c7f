//! What can go wrong between a party and a SuperLink, in sentences for the party.

use std::fmt::Display;

use fedra_net::{Fault, NetError, Standing};

/// Why a SuperLink was of no use.
#[derive(Debug, thiserror::Error)]
pub enum FlowerError {
    /// An address that means nothing.
    #[error("--superlink: found {found:?}, expected {expected}")]
    Address {
        /// As it was given.
        found: String,
        /// What would have been accepted.
        expected: &'static str,
    },
    /// A file that cannot be used.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody answers there, or not any more. Whoever wants to may try again.
    #[error("cannot reach the SuperLink {superlink}: {reason}")]
    Unreachable {
        /// The address.
        superlink: String,
        /// Why.
        reason: String,
    },
    /// One of the two sides does not take the other's certificate.
    #[error("the SuperLink {superlink}: {reason}")]
    Distrusted {
        /// The address.
        superlink: String,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS broke: that port speaks something else, or bytes were damaged on their way.
    #[error("the SuperLink {superlink}: {reason}")]
    Garbled {
        /// The address.
        superlink: String,
        /// What was found.
        reason: String,
    },
    /// A SuperLink that nobody has tried with this program, and that does not speak the protocol.
    #[error("the SuperLink of version {found} does not support {call}, expected 1.40 to 1.42")]
    Version {
        /// What it says it is.
        found: String,
        /// What was asked.
        call: &'static str,
    },
    /// Something that says nothing of itself.
    #[error("found a SuperLink of version {found}, expected 1.40 to 1.42")]
    Undescribed {
        /// What it said in its place.
        found: String,
    },
    /// It answered, and the answer is no.
    #[error("the SuperLink refused {call}: {detail} (status {status}, code {code})")]
    Denied {
        /// What was asked.
        call: &'static str,
        /// The status of HTTP.
        status: u16,
        /// The SuperLink's own number for it; 0 where it has none.
        code: u32,
        /// Its words.
        detail: String,
    },
    /// An answer that breaks the rules.
    #[error("the SuperLink's answer to {call}: {reason}")]
    Reply {
        /// What was asked.
        call: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// An object that is not what it should be.
    #[error("the object {id}: {reason}")]
    Object {
        /// Its name.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An object that was announced and is not there yet, while there is something else to do.
    #[error("the object {id}: it was announced but has not arrived yet")]
    Unfinished {
        /// Its name.
        id: String,
    },
    /// The node cannot come online.
    #[error(
        "the SuperLink refused this node: its key is not registered there, or another process uses it\n\
         hint: `flwr supernode register FILE.pub` at the SuperLink; `fedra flower key` writes such a file"
    )]
    NotRegistered,
    /// What our own network would say.
    #[error(transparent)]
    Net(#[from] NetError),
}

/// The SuperLink's number for "this run is not running".
const RUN_NOT_RUNNING: u32 = 2007;
/// Its number for "this node cannot be activated".
const ACTIVATION_FAILED: u32 = 2004;

impl FlowerError {
    /// A file that cannot be used.
    pub(crate) fn file(file: impl Display, reason: impl Display) -> Self {
        Self::File { file: file.to_string(), reason: reason.to_string() }
    }

    /// An object that is not what it should be.
    pub(crate) fn object(id: &str, reason: impl Display) -> Self {
        Self::Object { id: shortened(id), reason: reason.to_string() }
    }

    /// A push session that ended again and again before all objects were there.
    pub(crate) fn unpushed(call: &'static str, sessions: usize) -> Self {
        let reason = format!("{sessions} sessions ended before all objects had arrived");
        Self::Reply { call, reason }
    }

    /// What it means to whoever wants to stay: the one place where that is decided. What a SuperLink answers to
    /// a call that was damaged on its way is no decision of anybody's, once it has let this process in.
    pub const fn fault(&self, standing: Standing) -> Fault {
        match self {
            Self::Unreachable { .. } => Fault::Lost,
            Self::Net(error) => error.fault(standing),
            Self::Garbled { .. }
            | Self::Undescribed { .. }
            | Self::Denied { .. }
            | Self::Reply { .. }
            | Self::Object { .. }
            | Self::Unfinished { .. } => standing.fault(),
            Self::Address { .. }
            | Self::File { .. }
            | Self::Distrusted { .. }
            | Self::Version { .. }
            | Self::NotRegistered => Fault::Refused,
        }
    }

    /// Whether the connection failed and nothing was answered, so that the same call may do better: for whoever
    /// the SuperLink has let in.
    pub(crate) const fn is_of_connection(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Garbled { .. })
    }

    /// Whether a run has finished for the SuperLink.
    pub(crate) const fn is_run_over(&self) -> bool {
        matches!(self, Self::Denied { code: RUN_NOT_RUNNING, .. })
    }

    /// Whether the node is online already, or unknown.
    pub(crate) const fn is_not_activated(&self) -> bool {
        matches!(self, Self::Denied { code: ACTIVATION_FAILED, .. })
    }

    /// Whether it does not take who asks for who it is.
    pub(crate) const fn is_unauthenticated(&self) -> bool {
        matches!(self, Self::Denied { status: 401, .. })
    }
}

/// Enough of a foreign text to recognise it.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_a_superlink_let_a_node_in_only_what_somebody_decided_ends_it() {
        let (superlink, reason) = (|| "s:1".to_owned(), || "r".to_owned());
        let denied = FlowerError::Denied { call: "/v1", status: 500, code: 0, detail: reason() };
        for damaged in [
            FlowerError::Garbled { superlink: superlink(), reason: reason() },
            FlowerError::Undescribed { found: reason() },
            FlowerError::Reply { call: "/v1", reason: reason() },
            denied,
        ] {
            assert_eq!(damaged.fault(Standing::Stranger), Fault::Refused, "{damaged}");
            assert_eq!(damaged.fault(Standing::Welcomed), Fault::Lost, "{damaged}");
        }
        for refused in [
            FlowerError::Distrusted { superlink: superlink(), reason: reason() },
            FlowerError::Version { found: reason(), call: "/v1" },
            FlowerError::NotRegistered,
        ] {
            assert_eq!(refused.fault(Standing::Welcomed), Fault::Refused, "{refused}");
        }
    }
}
