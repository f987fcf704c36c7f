//! How sites are waited for, and who hears about them.

use std::time::Duration;

use crate::protocol::Counts;

/// How sites are waited for.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// How long a request may take.
    pub deadline: Duration,
    /// How long a site that was lost may be away before it counts as absent.
    pub grace: Duration,
    /// Before a round with too few updates is repeated for the first time: how long clients that are away
    /// are waited for. It doubles with each repetition.
    pub retry_after: Duration,
    /// After the last round: how long clients that are away are waited for, to tell them that it was.
    pub farewell: Duration,
    /// Memory for answers that are coming in.
    pub memory: u64,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_hours(1),
            grace: Duration::from_secs(30),
            retry_after: Duration::from_secs(30),
            farewell: Duration::ZERO,
            memory: 512 << 20,
        }
    }
}

/// When rounds begin: once all are there, or before that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Once so many sites are there.
    pub wait_for: Option<usize>,
    /// After this time, if at least one site is there.
    pub start_after: Option<Duration>,
}

/// What the sites have, in the order of the experiment's names; zeros for one that never came.
pub type CountsByClient = Vec<(String, Counts)>;
