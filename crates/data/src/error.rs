//! Everything that can go wrong with data, each with the place where it went wrong.
//!
//! One enum for the crate. A row that cannot be read names its file and line, because the person
//! who fixes it has an editor open and nothing else.

use std::path::{Path, PathBuf};

use crate::RowPlace;

/// What was done, where, what was found and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The operating system refused a file.
    #[error("cannot {action} {}: {source}", file.display())]
    Io {
        /// What was being done, as in `open` or `read`.
        action: &'static str,
        /// The file or directory.
        file: PathBuf,
        /// The system's own words.
        source: std::io::Error,
    },
    /// A row, line or record that does not read as its format says.
    #[error("{}:{line}: found {found}, expected {expected}", file.display())]
    Row {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1; for a multi-line record, its first line.
        line: u64,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: String,
    },
    /// A file whose whole is wrong, where no line is to blame.
    #[error("{}: found {found}, expected {expected}", file.display())]
    File {
        /// The file or directory.
        file: PathBuf,
        /// What it holds.
        found: String,
        /// What it should hold.
        expected: String,
    },
    /// A file that grows past a limit when it is read.
    #[error(
        "{}:{line}: more than {limit} bytes of {what}; raise the limit if the file is trusted",
        file.display()
    )]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// The line reached.
        line: u64,
        /// What grew: `expanded data` or `one record`.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
    },
    /// An example whose labels do not suit the task.
    #[error("cannot use example {example} for task {task}: found {found}, expected {expected}")]
    Example {
        /// The example's identifier or position.
        example: String,
        /// The task.
        task: &'static str,
        /// What it has.
        found: String,
        /// What the task needs.
        expected: String,
    },
    /// A setting outside its range.
    #[error("cannot use {name} = {found}: expected {expected}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        found: String,
        /// The legal values.
        expected: String,
    },
    /// Whoever follows the work asked for its end.
    #[error("stopped while rows were prepared")]
    Stopped,
}

/// The crate's result.
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// Keys of an experiment file and the flags that say the same on a command line.
const FLAGS: [(&str, &str); 5] = [
    ("data.encoding", "--encoding"),
    ("data.missing = ", "--missing "),
    ("data.delimiter = ", "--delimiter "),
    ("data.columns.", "--columns "),
    ("data.delimiter", "--delimiter"),
];

impl DataError {
    /// The same for somebody who gave flags and wrote no experiment file.
    pub fn in_flags(mut self) -> Self {
        match &mut self {
            Self::Row { expected, .. } | Self::File { expected, .. } => {
                for (key, flag) in FLAGS {
                    *expected = expected.replace(key, flag);
                }
            }
            Self::Io { .. }
            | Self::TooLarge { .. }
            | Self::Example { .. }
            | Self::Setting { .. }
            | Self::Stopped => {}
        }
        self
    }

    /// The same as a complaint about a row, where it is one and the row's place is known.
    pub(crate) fn at(self, place: &RowPlace) -> Self {
        match (self, place.get()) {
            (Self::Setting { name: "text" | "word", found, expected }, Some((file, line))) => {
                Self::row(file, line, found, expected)
            }
            (error, _) => error,
        }
    }

    pub(crate) fn io(action: &'static str, file: &Path, source: std::io::Error) -> Self {
        Self::Io { action, file: file.to_owned(), source }
    }

    pub(crate) fn row(
        file: &Path,
        line: u64,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::Row { file: file.to_owned(), line, found: found.into(), expected: expected.into() }
    }

    pub(crate) fn file(file: &Path, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::File { file: file.to_owned(), found: found.into(), expected: expected.into() }
    }

    pub(crate) fn setting(
        name: &'static str,
        found: &dyn std::fmt::Display,
        expected: impl Into<String>,
    ) -> Self {
        Self::Setting { name, found: found.to_string(), expected: expected.into() }
    }
}
