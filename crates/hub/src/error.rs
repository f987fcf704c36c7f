//! What can go wrong between a name and a folder.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A name that no model of the hub has.
    #[error("found {found:?}, expected {expected}")]
    Name {
        /// What was written.
        found: String,
        /// What a name looks like.
        expected: &'static str,
    },
    /// A variable of the environment that cannot be used.
    #[error("{variable}: found {found:?}, expected {expected}")]
    Setting {
        /// Its name.
        variable: &'static str,
        /// Its value.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Nothing says where the cache is.
    #[error(
        "found neither HF_HUB_CACHE, HF_HOME nor HOME, expected one of them: it says where the cache is"
    )]
    NoCache,
    /// Connections are forbidden.
    #[error("{name} {state} the cache {}, and HF_HUB_OFFLINE forbids to fetch it", cache.display())]
    Offline {
        /// The model.
        name: String,
        /// What the cache has of it.
        state: CacheState,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// The hub does not give it to this person.
    #[error("{name}: {reason}")]
    Denied {
        /// The model.
        name: String,
        /// What is missing.
        reason: String,
    },
    /// The hub does not have it.
    #[error("{name}: {what}")]
    Absent {
        /// The model.
        name: String,
        /// What is not there.
        what: String,
    },
    /// The repository holds nothing that can be used.
    #[error("{name}: found {found}, expected {expected}")]
    Unusable {
        /// The model.
        name: String,
        /// What it has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// The server is there and does not serve for now.
    #[error("{host} answered {status} to every attempt{}", later(*status))]
    Refused {
        /// The server.
        host: String,
        /// The status of HTTP.
        status: u16,
    },
    /// The server does not get a file across.
    #[error(
        "{host} stopped at byte {have} of {size} of {file}, in every attempt ({reason}); what arrived is kept, and the \
         next attempt resumes"
    )]
    CutOff {
        /// The server.
        host: String,
        /// The file.
        file: String,
        /// How much of it arrived.
        have: u64,
        /// How much there is.
        size: u64,
        /// What happened last.
        reason: String,
    },
    /// The server cannot be reached.
    #[error("cannot reach {host}: {reason}")]
    Unreachable {
        /// The server.
        host: String,
        /// What happened last.
        reason: String,
    },
    /// The server said something that no hub says.
    #[error("{host} answered for {about}: found {found}, expected {expected}")]
    Reply {
        /// The server.
        host: String,
        /// What was asked for.
        about: String,
        /// What it said.
        found: String,
        /// What a hub says.
        expected: String,
    },
    /// Bytes arrived that are not the file's.
    #[error(
        "{file} of {name}: found the hash {found}, expected {expected}; what arrived was removed"
    )]
    Hash {
        /// The model.
        name: String,
        /// The file.
        file: String,
        /// The hash of what arrived.
        found: String,
        /// What the hub said.
        expected: String,
    },
    /// The cache cannot be written or read.
    #[error("cannot {doing} {}{}", path.display(), advice(source))]
    Disk {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The caller asked to stop; what arrived is kept.
    #[error("stopped while {0} was fetched; what arrived is kept, and the next attempt resumes")]
    Stopped(String),
}

/// What the cache has of a model that cannot be opened from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheState {
    /// Nothing.
    Absent,
    /// Some of its files: weights, config.json or what reads its rows is missing.
    Incomplete,
}

impl fmt::Display for CacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "is not in",
            Self::Incomplete => "is incomplete in",
        })
    }
}

/// What a status means for whoever waits.
fn later(status: u16) -> &'static str {
    match status {
        429 => " (too many requests); try again later, or set HF_TOKEN",
        _ => " (an error of the server); try again later",
    }
}

impl HubError {
    /// Whether the caller asked to stop: no failure.
    pub const fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped(_))
    }

    pub(crate) fn disk(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { doing, path: path.to_owned(), source }
    }
}

/// What to do about an error of the disk.
fn advice(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::StorageFull {
        return " (the disk is full; what arrived is kept, and the next attempt resumes)";
    }
    let is_closed = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem]
        .contains(&error.kind());
    if is_closed { " (HF_HUB_CACHE names another place for the cache)" } else { "" }
}
