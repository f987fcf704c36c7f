//! How long the phases of a round took.
//!
//! They are times of the machine and no part of the run, so the mark of a log leaves them out
//! ([`LogMark`](crate::LogMark)): two runs of one experiment differ in them and are still the same.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::number::sums;

/// Seconds of each phase of a round, failed attempts included. What is left of the round's seconds went
/// into everything between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// Encoding what clients lack and bringing them up to date.
    pub sync: f64,
    /// Measuring: attention, and the blocks that a choice is made of.
    pub probe: f64,
    /// Training at the clients, and folding their updates as they arrive.
    pub train: f64,
    /// Noise on the mean, and the step of the server.
    pub apply: f64,
    /// Scoring the model.
    pub evaluate: f64,
}

sums!(Phases { sync, probe, train, apply, evaluate });

/// Tells the time between two phases.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Seconds since it was started or last asked.
    pub(crate) fn lap(&mut self) -> f64 {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.0, now)).as_secs_f64()
    }
}
