//! One run of a comparison, and what it tells.

use std::path::PathBuf;

/// A run to be carried out: its folder holds the experiment.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name for people.
    pub name: String,
    /// The folder, made already.
    pub folder: PathBuf,
    /// The threads it asks for, had it the machine to itself.
    pub threads: Option<usize>,
}

/// What a run tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A round is complete: `round 3/20` and how it went.
    Round(String),
    /// It is over.
    Over(Ending),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Complete.
    Complete,
    /// Stopped between two rounds.
    Interrupted,
    /// Broken down, in its own words.
    Failed(String),
}
