//! Everything that can stop a federation. A bad update does not: it is refused and counted.

use std::path::Path;

use fedra_plan::{Digest, PlanError};
use fedra_wire::{ClientId, WireError};

/// Why an experiment cannot start, or a round cannot end.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A setting makes no sense.
    #[error("`{key}` is {found}: expected {expected}")]
    Setting {
        /// The key in the experiment file.
        key: &'static str,
        /// The value as found.
        found: String,
        /// What would have been accepted.
        expected: &'static str,
    },
    /// No method has this name.
    #[error("`method.name` is `{found}`: expected one of {expected}")]
    UnknownMethod {
        /// The name as found.
        found: String,
        /// The names there are.
        expected: String,
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
    #[error("the initial model has {found} parameters: expected all {expected} of the layout")]
    InitialModel {
        /// Parameters found.
        found: usize,
        /// Parameters of the layout.
        expected: usize,
    },
    /// The fleet lists its clients twice, out of order or under the server's number.
    #[error("client {client} is out of place in the fleet: expected unique, ascending numbers")]
    Clients {
        /// The client.
        client: ClientId,
    },
    /// The global model has left the numbers; the last checkpoint has not.
    #[error("the global model is no longer finite after round {round}: try a lower rate")]
    Diverged {
        /// The round that did it, counted from 1 as people count.
        round: u32,
    },

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

    /// A checkpoint or a scratch file could not be read or written.
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
    /// What the system said when this was done to a file.
    pub(crate) fn disk(doing: impl Into<String>, path: &Path, source: std::io::Error) -> Self {
        Self::Disk { doing: doing.into(), path: path.display().to_string(), source }
    }
}
