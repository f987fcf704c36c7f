//! What can go wrong in an audit.

use std::fmt::Display;

use fedra_client::ClientError;
use fedra_compute::ComputeError;
use fedra_model::ModelError;

/// What was asked, what was found and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A setting, a model or a text that no attack can be run with.
    #[error("{what}: found {found}, expected {expected}")]
    Setting {
        /// Which one.
        what: &'static str,
        /// What there is.
        found: String,
        /// What would do.
        expected: String,
    },
    /// A client's work failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The model refused.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl AuditError {
    /// Refuses a setting.
    pub(crate) fn setting(
        what: &'static str,
        found: impl Display,
        expected: impl Into<String>,
    ) -> Self {
        Self::Setting { what, found: format!("{found}"), expected: expected.into() }
    }
}

impl From<ComputeError> for AuditError {
    fn from(error: ComputeError) -> Self {
        Self::Model(error.into())
    }
}

/// The crate's result.
pub type Result<T, E = AuditError> = std::result::Result<T, E>;
