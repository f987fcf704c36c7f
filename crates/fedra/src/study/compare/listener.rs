//! Those who follow a comparison from outside.

use crate::listener::{Listener, Silent};

/// Follows the runs of a comparison, of which several may be on at a time.
pub trait CompareListener {
    /// Something happened to the runs.
    fn hear(&self, event: RunEvent<'_>);

    /// Who takes notes, and follows the rows of the runs while they are read and tokenised, before anything runs.
    fn preparation(&self) -> &dyn Listener;

    /// Whether to stop. Runs that are on end after their step.
    fn stops(&self) -> bool;
}

/// What happens to the runs of a comparison, each by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEvent<'a> {
    /// Runs are about to begin: those that tune, or those that are compared.
    Begin {
        /// What they are for.
        what: &'a str,
        /// Runs that are complete already.
        complete: u64,
        /// Rounds of all runs together, those that are complete among them.
        rounds: u64,
        /// Rounds that are done already.
        done: u64,
    },
    /// A round is complete, and how it went.
    Round(&'a str, &'a str),
    /// How far the current round is: `in round 3/20: step 120/400`.
    Within(&'a str, &'a str),
    /// A run is complete, and how its last round went.
    Complete(&'a str, &'a str),
    /// A run broke down, and why; the others go on.
    Failed(&'a str, &'a str),
    /// The runs that began last have ended.
    End,
}

impl CompareListener for Silent {
    fn hear(&self, _event: RunEvent<'_>) {}

    fn preparation(&self) -> &dyn Listener {
        self
    }

    fn stops(&self) -> bool {
        false
    }
}
