//! What can go wrong, and whether a run was refused or broke down on its way.
//!
//! Most errors refuse: a key, a row or a folder cannot be used, and nothing was written. A run that
//! began and could not go on is another matter ([`Breakdown`]): something may be lost, something is
//! kept, and what is kept is said, with how to go on from it.

pub mod config_error;
pub mod occupied;

use std::fmt;
use std::path::{Path, PathBuf};

use fedra_client::ClientError;
use fedra_compute::ComputeError;
use fedra_data::DataError;
use fedra_engine::EngineError;
use fedra_hub::{HubError, ModelName};
use fedra_model::ModelError;
use fedra_plan::PlanError;

pub use self::config_error::ConfigError;
use self::config_error::Problem;
use self::occupied::Occupied;
use crate::run_files::{CHECKPOINT, EXPERIMENT, SITES};

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key of an experiment, or a value that stands for one, cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Something else was found than expected; the sentence says both.
    #[error("{0}")]
    Refused(String),
    /// Rows, or a tokenizer.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A model or its folder.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A model of the hub.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// Tensors.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// Which part of a model.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A client's work.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The rounds.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A folder that holds another run.
    #[error(transparent)]
    Occupied(Box<Occupied>),
    /// A file or a process.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A file in JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// An experiment that cannot be written as TOML.
    #[error(transparent)]
    Toml(#[from] toml::ser::Error),
    /// Results could not be written: the disk is full, or it is gone.
    #[error("cannot write {what}")]
    Unwritten {
        /// What was to be written.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another error, and what was being done.
    #[error("{what}")]
    Within {
        /// What was being done, or to which key.
        what: String,
        /// What went wrong.
        source: Box<Error>,
    },
    /// A run that began could not go on.
    #[error("{how}")]
    BrokeDown {
        /// What is kept of it.
        how: Breakdown,
        /// What went wrong.
        source: Box<Error>,
    },
}

impl Error {
    /// Whether a run ended on its way, and was not refused before anything was written.
    pub fn is_breakdown(&self) -> bool {
        matches!(self, Self::BrokeDown { .. } | Self::Unwritten { .. })
            || self.engine().is_some_and(is_breakdown)
    }

    /// Whether the caller asked to stop within a round, or while its model was scored: no failure.
    pub(crate) fn is_stop(&self) -> bool {
        matches!(self, Self::Engine(EngineError::Stopped) | Self::Client(ClientError::Stopped))
            || self.cause().is_some_and(Self::is_stop)
    }

    /// Whether the caller stopped a preparation: nothing was refused, and nothing was written.
    pub fn is_stopped_preparation(&self) -> bool {
        // Not through a breakdown: a run that began has written something.
        if let Self::Within { source, .. } = self {
            return source.is_stopped_preparation();
        }
        matches!(self, Self::Data(DataError::Stopped))
    }

    /// Whether the caller stopped the download of a model: what arrived is kept.
    pub fn is_stopped_download(&self) -> bool {
        matches!(self, Self::Hub(error) if error.is_stop())
    }

    /// The model of the hub that is not on this machine, where that is what is wrong.
    pub fn unfetched(&self) -> Option<&ModelName> {
        if let Self::Config(refusal) = self
            && let Problem::Unfetched { name, .. } = &*refusal.problem
        {
            return Some(name);
        }
        self.cause()?.unfetched()
    }

    /// What is kept of a run that ended on its way.
    pub const fn breakdown(&self) -> Option<&Breakdown> {
        if let Self::BrokeDown { how, .. } = self { Some(how) } else { None }
    }

    /// The error and its causes in one line ([`in_words`]).
    pub fn in_words(&self) -> String {
        in_words(self)
    }

    /// The engine's error, whatever was being done.
    fn engine(&self) -> Option<&EngineError> {
        if let Self::Engine(error) = self { Some(error) } else { self.cause()?.engine() }
    }

    /// The error that this one only adds words to.
    fn cause(&self) -> Option<&Self> {
        if let Self::Within { source, .. } | Self::BrokeDown { source, .. } = self {
            return Some(source);
        }
        None
    }
}

/// An error and its causes in one line; a cause that its error has told already is left out. What is
/// kept of a run is not said here but by [`Error::breakdown`].
pub fn in_words(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(Error::BrokeDown { source, .. }) = error.downcast_ref::<Error>() {
        return source.in_words();
    }
    let said = |error: &(dyn std::error::Error + 'static)| {
        // A cause may stand in a box.
        let boxed = || error.downcast_ref::<Box<Error>>().map(AsRef::as_ref);
        match error.downcast_ref::<Error>().or_else(boxed) {
            Some(Error::Config(refusal)) => refusal.in_full(),
            Some(_) | None => error.to_string(),
        }
    };
    let mut told = said(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = said(error);
        if !told.ends_with(&text) {
            told = format!("{told}: {text}");
        }
        cause = error.source();
    }
    told
}

/// How far a run came that could not go on.
#[derive(Clone, Debug)]
pub struct Breakdown {
    /// Rounds that are kept.
    pub rounds: u32,
    /// Number of rounds.
    pub of: u32,
    /// The run's folder, from which it can be resumed.
    pub folder: PathBuf,
    /// Whether its clients are elsewhere.
    pub is_served: bool,
    /// Whether what it could be resumed from is gone.
    pub is_gone: bool,
}

impl Breakdown {
    /// An error on the way, with how many of how many rounds the folder keeps; a refusal stays one.
    pub(crate) fn of(error: Error, (rounds, of): (u32, u32), folder: &Path) -> Error {
        // The same rounds would diverge again.
        let ends = |engine: &EngineError| engine.diverged_in().is_some() || !is_breakdown(engine);
        if error.engine().is_some_and(ends) {
            return error;
        }
        let has = |name: &str| folder.join(name).exists();
        let (is_served, is_gone) = (has(SITES), !has(EXPERIMENT));
        // A folder may be removed while a run is at work in it.
        let rounds = if has(CHECKPOINT) && !is_gone { rounds } else { 0 };
        let how = Self { rounds, of, folder: folder.to_owned(), is_served, is_gone };
        Error::BrokeDown { how, source: Box::new(error) }
    }
}

impl fmt::Display for Breakdown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, of, folder, .. } = self;
        if self.is_gone {
            return write!(formatter, "no round is kept: {} is gone", folder.display());
        }
        write!(formatter, "{rounds} of {of} rounds are kept in {}", folder.display())
    }
}

/// Whether an error of the engine ends a run on its way; the others refuse one.
pub fn is_breakdown(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Diverged { .. }
            | EngineError::LossDiverged { .. }
            | EngineError::TooFewArrivals { .. }
            | EngineError::NobodyArrived { .. }
            | EngineError::Unmeasured { .. }
            | EngineError::Wire(_)
            | EngineError::Fleet { .. }
            | EngineError::Sink(_)
            | EngineError::Disk { .. }
    )
}

/// Says what was being done when something went wrong.
pub(crate) trait Context<T>: Sized {
    /// In words that are at hand.
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.with_context(|| what.into())
    }

    /// In words that have to be put together.
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Within { what: what(), source: Box::new(error.into()) })
    }
}

impl<T> Context<T> for Option<T> {
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.ok_or_else(|| Error::Refused(what()))
    }
}

/// Refuses with a sentence.
macro_rules! refuse {
    ($($sentence:tt)*) => {
        return Err($crate::error::Error::Refused(format!($($sentence)*)))
    };
}
pub(crate) use refuse;
