//! What can go wrong in this crate: one enum, and every case names the file or parameter it is
//! about, what was found there and what was expected.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use fedra_compute::ComputeError;
use fedra_plan::{ParamId, PlanError};

/// An error of the model crate.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The operating system refused to read or write a file.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was attempted, as a verb: `read`, `create`, `rename`.
        action: &'static str,
        /// The file it was attempted on.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },

    /// A file as a whole is not what it should be.
    #[error("{}: found {found}, expected {expected}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
        /// What it should hold.
        expected: String,
    },

    /// One tensor of a weights file is not what it should be.
    #[error("{}: tensor {tensor:?}: found {found}, expected {expected}", path.display())]
    Tensor {
        /// The weights file.
        path: PathBuf,
        /// The tensor's name in that file.
        tensor: String,
        /// What the file says.
        found: String,
        /// What it should say.
        expected: String,
    },

    /// One key of a `config.json` has a value this crate cannot work with.
    #[error("{}: {key}: found {found}, expected {expected}", path.display())]
    Config {
        /// The configuration file.
        path: PathBuf,
        /// The key, with dots for nested objects.
        key: String,
        /// Its value.
        found: String,
        /// What would have been accepted.
        expected: String,
    },

    /// A parameter's tensor is missing, has another shape, or has no place.
    #[error("{}: {id} as {tensor:?}: found {found}, expected {expected}", path.display())]
    Parameter {
        /// The weights file.
        path: PathBuf,
        /// The parameter.
        id: ParamId,
        /// The tensor's name in that file.
        tensor: String,
        /// What the file has.
        found: String,
        /// What the model needs.
        expected: String,
    },

    /// A batch cannot be run through the model.
    #[error("batch: {what} is {found}, expected {expected}")]
    Batch {
        /// What is wrong with it.
        what: &'static str,
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
    },

    /// A model of this family cannot have this head or this adapter.
    #[error("{what}: found {found}, expected {expected}")]
    Structure {
        /// What was asked for.
        what: &'static str,
        /// What it was.
        found: String,
        /// What would have been accepted.
        expected: String,
    },

    /// An operation refused its operands.
    #[error(transparent)]
    Compute(#[from] ComputeError),

    /// A parameter set, range or rule refused.
    #[error(transparent)]
    Plan(#[from] PlanError),

    /// A model has a parameter that the class it is saved as does not have.
    #[error("cannot save {id}: {class} has no such parameter")]
    Unnamed {
        /// The parameter.
        id: ParamId,
        /// The class.
        class: String,
    },
}

impl ModelError {
    /// Attaches the action and the path to an error of the operating system; made for `map_err`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }

    /// A batch that does not suit the model.
    pub(crate) fn batch(what: &'static str, found: &dyn Display, expected: &dyn Display) -> Self {
        Self::Batch { what, found: found.to_string(), expected: expected.to_string() }
    }

    /// A model that cannot be built, cut or saved so.
    pub(crate) fn structure(
        what: &'static str,
        found: &dyn Display,
        expected: &dyn Display,
    ) -> Self {
        Self::Structure { what, found: found.to_string(), expected: expected.to_string() }
    }

    /// A setting of a configuration, its value shortened to what a line can hold.
    pub(crate) fn config(
        path: &Path,
        key: &str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::Config {
            path: path.to_path_buf(),
            key: shortened(key.to_owned()),
            found: shortened(found.into()),
            expected: expected.into(),
        }
    }

    /// A parameter that its file lacks or has in another form.
    pub(crate) fn parameter(
        path: &Path,
        (id, tensor): (ParamId, &str),
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let (found, expected) = (found.into(), expected.into());
        Self::Parameter { path: path.to_path_buf(), id, tensor: tensor.to_owned(), found, expected }
    }

    /// A file that is wrong as a whole.
    pub fn file(path: &Path, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::File {
            path: path.to_path_buf(),
            found: shortened(found.into()),
            expected: expected.into(),
        }
    }

    /// A tensor that is wrong.
    pub fn tensor(
        path: &Path,
        tensor: &str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::Tensor {
            path: path.to_path_buf(),
            tensor: shortened(tensor.to_owned()),
            found: shortened(found.into()),
            expected: expected.into(),
        }
    }
}

/// Enough of a text from outside to recognise it by: a hostile file must not fill a log.
pub(crate) fn shortened(text: String) -> String {
    const SHOWN: usize = 200;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
