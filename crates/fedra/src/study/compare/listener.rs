//! Those who follow a comparison from outside.

use crate::run::listener::{Listener, Silent};

/// Follows the runs of a comparison, of which several may be on at a time.
pub trait CompareListener {
    /// Something that a person should know.
    fn note(&self, line: &str);

    /// Who follows the rows of the runs while they are read and tokenised, before anything runs.
    fn preparation(&self) -> &dyn Listener;

    /// Runs are about to begin: those that tune, or those that are compared.
    fn begin(&self, runs: &RunsAhead<'_>);

    /// A round of the named run is complete.
    fn round(&self, run: &str, told: &str);

    /// How far the round is that the named run is at: `in round 3/20: step 120/400`.
    fn within(&self, run: &str, told: &str);

    /// The named run is complete; what its last round told comes with it.
    fn complete(&self, run: &str, told: &str);

    /// The named run broke down; the others go on.
    fn failed(&self, run: &str, reason: &str);

    /// The runs that began last are over.
    fn end(&self);

    /// Whether to stop. Runs that are on end after their step.
    fn stops(&self) -> bool;
}

/// Runs that are about to begin or go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunsAhead<'a> {
    /// What they are for.
    pub what: &'a str,
    /// Runs that are complete already.
    pub complete: u64,
    /// Rounds of all runs together, those that are complete among them.
    pub rounds: u64,
    /// Rounds that are done already.
    pub done: u64,
}

impl CompareListener for Silent {
    fn note(&self, _line: &str) {}

    fn preparation(&self) -> &dyn Listener {
        self
    }

    fn begin(&self, _runs: &RunsAhead<'_>) {}

    fn round(&self, _run: &str, _told: &str) {}

    fn within(&self, _run: &str, _told: &str) {}

    fn complete(&self, _run: &str, _told: &str) {}

    fn failed(&self, _run: &str, _reason: &str) {}

    fn end(&self) {}

    fn stops(&self) -> bool {
        false
    }
}
