//! Everything that can stop a federation. A bad update does not: it is refused and counted.

use std::fmt::Display;
use std::path::Path;

use fedra_plan::{ByteCount, Digest, ParamId, PlanError, Probe};
use fedra_wire::{ClientId, WireError};

/// Why an experiment cannot start, or a round cannot end.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A setting makes no sense.
    #[error("`{key}` is {found}, expected {expected}")]
    Setting {
        /// The key in the experiment file.
        key: &'static str,
        /// The value as found.
        found: String,
        /// What would have been accepted.
        expected: &'static str,
    },
    /// A guarantee would be broken, or its ledger cannot be believed.
    #[error("privacy: {reason}")]
    Privacy {
        /// What is wrong.
        reason: String,
    },
    /// What comes next would spend more than was allowed.
    #[error("privacy: {reason}")]
    OverBudget {
        /// What it would bring epsilon to, and what is allowed.
        reason: String,
    },
    /// No method has this name.
    #[error("`method.name` is `{found}`, expected one of {expected}")]
    UnknownMethod {
        /// The name as found.
        found: String,
        /// The names there are.
        expected: String,
    },
    /// Blocks were to be chosen by what clients measure, and nobody measured anything.
    #[error("round {round}: no client measured {probe}, expected scores from at least one")]
    Unmeasured {
        /// The round, counted from 1.
        round: u32,
        /// What was asked for.
        probe: Probe,
    },
    /// The settings of a method cannot be read.
    #[error("the settings of the method `{method}` are wrong: {reason}")]
    MethodSettings {
        /// The method.
        method: String,
        /// What is wrong with them.
        reason: String,
    },
    /// The selection rule or its evidence does not fit the model.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The server's own values cannot be encoded.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The model to start from is not whole.
    #[error("the initial model has {found} parameters, expected all {expected} of the layout")]
    InitialModel {
        /// Parameters found.
        found: usize,
        /// Parameters of the layout.
        expected: usize,
    },
    /// A plan lets something learn that is stored quantised.
    #[error(
        "{id} is to learn and is stored in another format than f32: expected it frozen in all rounds"
    )]
    BaseLearns {
        /// The parameter.
        id: ParamId,
    },
    /// The fleet lists its clients twice, out of order or under the server's number.
    #[error(
        "{name} has the number {client} in the fleet, expected unique, ascending numbers, none of them \
         the server's"
    )]
    Clients {
        /// Its name.
        name: String,
        /// Its number.
        client: ClientId,
    },
    /// The global model has left the numbers; the last checkpoint has not.
    #[error(
        "the global model has non-finite values after round {round}: try a lower learning rate"
    )]
    Diverged {
        /// The round that did it, counted from 1 as people count.
        round: u32,
    },
    /// A loss has left the numbers and did not come back, though the model is finite.
    #[error(
        "the run has ended, and the loss of {of} has not been finite since round {round}: the model diverged, or \
         an update corrupted it\n\
         hint: `fedra report` plots the losses and lists updates far outside their cohort; a lower work.optimiser.rate, \
         or federation.max_norm (for client-level privacy, a lower privacy.clip in its place), may help"
    )]
    LossDiverged {
        /// A client or a set of examples, in words.
        of: String,
        /// The round of its last loss, counted from 1 as people count.
        round: u32,
    },
    /// Too few clients came back in every attempt at a round; the last checkpoint is of the round
    /// before.
    #[error(
        "round {round} was given up after {}: at most {arrived} of {} sent an update{reason}, \
         expected at least {expected} (federation.min_arrivals); the attempts sent {} up and {} down\n\
         hint: {}",
        counted(*attempts, "attempt"), counted(*cohort, "client"), up, down, advice(*diverged)
    )]
    TooFewArrivals {
        /// The round, counted from 1 as people count.
        round: u32,
        /// How often it was tried.
        attempts: usize,
        /// Updates that arrived in the best attempt.
        arrived: usize,
        /// Clients that were drawn for it.
        cohort: usize,
        /// Updates that it needed.
        expected: usize,
        /// What all attempts sent to the server.
        up: ByteCount,
        /// What they sent to clients.
        down: ByteCount,
        /// Why a client of it is missing, with a blank before it; empty when nobody was asked.
        reason: String,
        /// Whether its numbers have left the finite ones.
        diverged: bool,
    },
    /// Rounds may be empty, and all of them were.
    #[error("no client's update arrived in any of the {rounds} rounds: the model has not changed")]
    NobodyArrived {
        /// The rounds.
        rounds: u32,
    },

    /// Somebody asked to stop within a round, which is then as if it had not begun. No failure: a
    /// federation turns it into a round that is not complete.
    #[error("stopped within a round")]
    Stopped,

    /// A client or the fleet itself cannot go on.
    #[error("the fleet could not {doing}: {reason}")]
    Fleet {
        /// What was being done, as in "evaluate the model".
        doing: &'static str,
        /// Why it failed.
        reason: String,
    },
    /// A sink could not take a report.
    #[error("a round report could not be written: {0}")]
    Sink(String),

    /// A checkpoint, a ledger or a scratch file could not be read or written.
    #[error("{doing} {path}: {source}")]
    Disk {
        /// What was being done, as in "writing".
        doing: String,
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A checkpoint is torn or was edited.
    #[error("the checkpoint {path} cannot be used: {reason}")]
    Checkpoint {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A checkpoint is of another model.
    #[error(
        "the checkpoint is for another model: its layout is {found} and that of `model` here, with the \
         labels and the vocabulary of the data, is {expected}"
    )]
    OtherModel {
        /// Digest found.
        found: Digest,
        /// Digest of the layout here.
        expected: Digest,
    },
}

impl EngineError {
    /// The round, counted from 1, in which numbers ran away, if they did.
    pub fn diverged_in(&self) -> Option<u32> {
        if let Self::Diverged { round }
        | Self::LossDiverged { round, .. }
        | Self::TooFewArrivals { round, diverged: true, .. } = self
        {
            return Some(*round);
        }
        None
    }

    /// A setting that makes no sense.
    pub(crate) fn setting(key: &'static str, found: impl Display, expected: &'static str) -> Self {
        Self::Setting { key, found: found.to_string(), expected }
    }

    /// A checkpoint that cannot be used.
    pub(crate) fn checkpoint(path: &Path, reason: impl Display) -> Self {
        Self::Checkpoint { path: path.display().to_string(), reason: reason.to_string() }
    }

    /// What the system said when this was done to a file.
    pub(crate) fn disk(doing: impl Into<String>, path: &Path, source: std::io::Error) -> Self {
        Self::Disk { doing: doing.into(), path: path.display().to_string(), source }
    }
}

/// Refuses a setting that makes no sense.
pub(crate) fn refuse<T>(
    key: &'static str,
    found: impl Display,
    expected: &'static str,
) -> Result<T, EngineError> {
    Err(EngineError::setting(key, found, expected))
}

/// Refuses what is not a finite number above 0.
pub(crate) fn positive(key: &'static str, found: f64) -> Result<(), EngineError> {
    if found.is_finite() && found > 0.0 {
        return Ok(());
    }
    refuse(key, found, "a finite number above 0")
}

/// Refuses what is not a finite number from 0.
pub(crate) fn not_negative(key: &'static str, found: f32) -> Result<(), EngineError> {
    if found.is_finite() && found >= 0.0 {
        return Ok(());
    }
    refuse(key, found, "a finite number, 0 or more")
}

/// The first reason whose condition holds.
pub(crate) fn first<T, const N: usize>(reasons: [(bool, T); N]) -> Option<T> {
    reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
}

/// What helps where too few clients came back.
fn advice(diverged: bool) -> &'static str {
    if diverged {
        "the same rounds would fail again: lower work.optimiser.rate and start a new run"
    } else {
        "the rounds before it are kept; to continue, raise federation.retries in the run's experiment.toml and \
         resume the run"
    }
}

fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
