//! What can go wrong at a client.

use std::fmt::Display;

use crate::device_failure::DeviceFailure;
use crate::session_error::SessionError;
use fedra_compute::ComputeError;
use fedra_data::DataError;
use fedra_engine::{EngineError, Failure};
use fedra_model::ModelError;
use fedra_plan::{ParamId, PlanError};
use fedra_wire::WireError;

/// What was done, by which client, what was found and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Somebody asked to stop between two steps: what was on is as if it had not begun.
    #[error("stopped between two steps")]
    Stopped,
    /// A loss that is no number: the rate is too high, or the model came in broken.
    #[error(
        "{client}: the loss of step {step} is {found}, expected a finite number; a lower learning rate may help"
    )]
    NotFinite {
        /// The client.
        client: String,
        /// The step, counted from 1.
        step: u32,
        /// The loss.
        found: f32,
    },
    /// A client that has nothing to do its work with.
    #[error("{client}: found no {what}, expected at least one")]
    Nothing {
        /// The client.
        client: String,
        /// What is missing.
        what: &'static str,
    },
    /// A parameter with a wrong number of values.
    #[error("{id} came with {found} values, expected {expected}")]
    Length {
        /// The parameter.
        id: ParamId,
        /// How many came.
        found: usize,
        /// How many it has.
        expected: usize,
    },
    /// A target that the model's head has no answer for.
    #[error("targets: found {found}, expected {expected}")]
    Targets {
        /// What the examples carry.
        found: String,
        /// What the head answers.
        expected: String,
    },
    /// A probe that this model or task has no evidence for.
    #[error("cannot probe {probe}: {reason}")]
    Probe {
        /// What was to be measured.
        probe: String,
        /// Why it cannot be.
        reason: &'static str,
    },
    /// A request that would break what the client guarantees, or that it cannot keep a guarantee for.
    #[error("privacy: {reason}")]
    Privacy {
        /// Why.
        reason: String,
    },
    /// The client's own ledger cannot be written, so it must not release anything.
    #[error("{doing}: {source}")]
    Ledger {
        /// What was being done, and to which file.
        doing: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The other half of a cut model failed, or refused.
    #[error("{reason}")]
    Peer {
        /// What it was.
        reason: String,
    },
    /// A generation that cannot be, or a peer that answers what it was not asked.
    #[error("{what}: found {found}, expected {expected}")]
    Generate {
        /// What is wrong.
        what: &'static str,
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A server refused a step of a cut decoder.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The way to a peer is broken.
    #[error("the peer cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A GPU failed in a training step.
    #[error("{0}")]
    Device(Box<DeviceFailure>),
    /// Data refused.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The model refused.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Bytes refused, or numbers that cannot be written as such.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A plan refused.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl ClientError {
    /// Whether numbers have left the finite ones, so that the same work would end in the same way again.
    pub fn is_divergence(&self) -> bool {
        matches!(self, Self::NotFinite { .. })
            || matches!(self, Self::Wire(error) if error.is_divergence())
    }

    /// Whether a GPU has failed, on which nothing is computed from now on.
    pub fn is_device_failure(&self) -> bool {
        matches!(self, Self::Device(_) | Self::Model(ModelError::Compute(ComputeError::Device(_))))
    }

    pub(crate) fn nothing(client: &str, what: &'static str) -> Self {
        Self::Nothing { client: client.to_owned(), what }
    }

    pub(crate) fn targets(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Targets { found: found.into(), expected: expected.into() }
    }

    pub(crate) fn privacy(reason: impl Display) -> Self {
        Self::Privacy { reason: format!("{reason}") }
    }

    pub(crate) fn peer(reason: impl Into<String>) -> Self {
        Self::Peer { reason: reason.into() }
    }

    pub(crate) fn generate(
        what: &'static str,
        found: impl Display,
        expected: impl Into<String>,
    ) -> Self {
        Self::Generate { what, found: format!("{found}"), expected: expected.into() }
    }

    /// The same for an engine, whose fleet was doing this.
    pub(crate) fn of_fleet(&self, doing: &'static str) -> EngineError {
        if matches!(self, Self::Stopped) {
            return EngineError::Stopped;
        }
        EngineError::Fleet { doing, reason: self.to_string() }
    }

    /// What a server is told of it.
    pub fn failure(&self) -> Failure {
        Failure { reason: self.to_string(), diverged: self.is_divergence() }
    }
}

impl From<ComputeError> for ClientError {
    fn from(error: ComputeError) -> Self {
        Self::Model(error.into())
    }
}

/// The crate's result.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;
