//! Why a run may not begin in a folder, and what can be done about it.

use std::path::PathBuf;

/// A folder that holds another run, or somebody's own files.
#[derive(Debug, thiserror::Error)]
#[error("found {found} in {}, expected a free folder", folder.display())]
pub struct Occupied {
    /// The folder.
    pub folder: PathBuf,
    /// What it holds.
    pub found: String,
    /// How the run in it resumes, where it can.
    pub resumed_by: Option<ResumedBy>,
    /// What becomes of it where a run is to begin there all the same.
    pub forced: Forced,
    /// A folder beside it that is free.
    pub free: PathBuf,
}

/// What becomes of the content of a folder in which a run begins all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forced {
    /// The run in it is replaced.
    Replaced,
    /// Files of no run stay, among those of the new one.
    Kept,
}

/// How an unfinished run resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumedBy {
    /// In one process ([`crate::resume`]).
    Resume,
    /// Served once more, as it was.
    Serve,
}
