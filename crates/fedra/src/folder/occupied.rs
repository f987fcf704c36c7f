//! Why a run may not begin in a folder, and what can be done about it.

use std::path::PathBuf;

/// A folder that holds another run.
#[derive(Debug, thiserror::Error)]
#[error("found {found} in {}, expected a free folder", folder.display())]
pub struct Occupied {
    /// The folder.
    pub folder: PathBuf,
    /// What it holds.
    pub found: String,
    /// How the run in it goes on, where it can.
    pub goes_on: Option<GoesOn>,
    /// A folder beside it that is free.
    pub free: PathBuf,
}

/// How an unfinished run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoesOn {
    /// In one process ([`crate::resume`]).
    Resume,
    /// Served once more, as it was.
    Serve,
}
