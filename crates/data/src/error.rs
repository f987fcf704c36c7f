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
    #[error("{}: found {found}, expected {expected}{}", place(file, *line), told(advice.as_deref()))]
    Row {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1; for a multi-line record, its first line. A row that is a whole file has 0.
        line: u64,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: String,
        /// A setting that would help.
        advice: Option<Box<Advice>>,
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
        "{}:{line}: more than {limit} bytes of {what}, which is more than Fedra reads",
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
    #[error("cannot use {name} = {found}, expected {expected}")]
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

/// What is wrong, before it is known in which file: found, expected.
pub type Mismatch = (String, String);

/// The crate's result.
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// A setting of a reader that helps with a row, by its key in an experiment file. Whoever has another
/// name for it puts that in the key's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The key.
    pub key: String,
    /// The value that would help, where one is known.
    pub value: Option<String>,
    /// What the setting does.
    pub effect: &'static str,
}

impl Advice {
    /// Rows without what they need may be left out.
    pub(crate) fn drop_missing() -> Self {
        Self::new("data.missing", Some("drop".to_owned()), "leaves such rows out")
    }

    pub(crate) fn new(key: impl Into<String>, value: Option<String>, effect: &'static str) -> Self {
        Self { key: key.into(), value, effect }
    }
}

/// A number of things, as in `1 field` and `2 fields`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

fn place(file: &Path, line: u64) -> RowPlace {
    RowPlace::new(file.into(), line)
}

fn told(advice: Option<&Advice>) -> String {
    match advice {
        None => String::new(),
        Some(Advice { key, value: None, effect }) => format!("; {key} {effect}"),
        Some(Advice { key, value: Some(value), effect }) => format!("; {key} = {value:?} {effect}"),
    }
}

impl DataError {
    /// The setting that would help, where there is one.
    pub fn advice_mut(&mut self) -> Option<&mut Advice> {
        if let Self::Row { advice, .. } = self { advice.as_deref_mut() } else { None }
    }

    /// The same error about a row, with a setting that would help.
    pub(crate) fn advising(mut self, helpful: impl Into<Option<Advice>>) -> Self {
        if let Self::Row { advice, .. } = &mut self {
            *advice = helpful.into().map(Box::new);
        }
        self
    }

    /// The same as an error about a row, where it is one and the row's place is known.
    pub(crate) fn at(self, place: &RowPlace) -> Self {
        match (self, place.get()) {
            (
                Self::Setting { name: "text" | "word" | "image" | "conversation", found, expected },
                Some((file, line)),
            ) => Self::row(file, line, found, expected),
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
        let (file, found, expected) = (file.to_owned(), found.into(), expected.into());
        Self::Row { file, line, found, expected, advice: None }
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
