//! Errors of the library as exceptions of the package, in the words of somebody who wrote Python.

use fedra::Error;
use fedra::folder::occupied::{Forced, ResumedBy};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// The exception for an error.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others are the same exception")]
pub fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let words = error.in_words();
    match error {
        Error::Config(refusal) => {
            raise(py, "ConfigError", &words, |it| it.setattr("key", &refusal.key))
        }
        Error::Occupied(occupied) => {
            let resumed = match occupied.resumed_by {
                Some(ResumedBy::Resume) => "resume=True continues it; ",
                Some(ResumedBy::Serve) | None => "",
            };
            let forced = match occupied.forced {
                Forced::Replaced => "replaces it",
                Forced::Kept => "begins a run among these files",
            };
            let free = occupied.free.display();
            let words = format!("{words}\nhint: {resumed}overwrite=True {forced}; {free} is free");
            raise(py, "FolderOccupied", &words, |it| it.setattr("folder", &occupied.folder))
        }
        Error::BrokeDown { how, .. } => raise(py, "RunError", &format!("{words} ({how})"), |it| {
            it.setattr("rounds", how.rounds)?;
            it.setattr("folder", &how.folder)
        }),
        Error::Data(_) => raise(py, "DataError", &words, |_| Ok(())),
        Error::Within { source, .. } if matches!(**source, Error::Config(_) | Error::Data(_)) => {
            raise(
                py,
                if matches!(**source, Error::Data(_)) { "DataError" } else { "ConfigError" },
                &words,
                |_| Ok(()),
            )
        }
        _ if error.is_breakdown() => raise(py, "RunError", &words, |_| Ok(())),
        _ => raise(py, "Error", &words, |_| Ok(())),
    }
}

/// The exception for a sentence about an argument.
pub fn refused(py: Python<'_>, argument: &str, sentence: &str) -> PyErr {
    let words = format!("{argument}: {sentence}");
    raise(py, "ConfigError", &words, |it| it.setattr("key", argument))
}

/// The exception for any other error of the workspace.
pub fn failed(py: Python<'_>, error: impl Into<Error>) -> PyErr {
    raised(py, &error.into())
}

/// That somebody pressed Ctrl-C.
pub fn interrupted() -> PyErr {
    PyKeyboardInterrupt::new_err(())
}

fn raise(
    py: Python<'_>,
    class: &str,
    words: &str,
    describe: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<()>,
) -> PyErr {
    let made = py.import("fedra.errors").and_then(|errors| {
        let error = errors.getattr(class)?.call1((words,))?;
        describe(&error)?;
        Ok(error)
    });
    made.map_or_else(|error| error, PyErr::from_value)
}
