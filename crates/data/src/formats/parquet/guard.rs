//! Calls into the `parquet` crate, and its errors as our own.

use parquet::errors::ParquetError;

use crate::caught::caught;
use crate::error::Mismatch;

/// What is expected of a file that does not read.
pub(super) const EXPECTED: &str = "a Parquet file";

/// What a call into the crate gives; a panic inside it is an error like any other.
pub(super) fn guarded<T>(
    call: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, ParquetError> {
    caught(call)
        .unwrap_or_else(|words| Err(ParquetError::General(format!("damaged data ({words})"))))
}

/// What the crate says is wrong, in our words; our own checks bring what they expected.
pub(super) fn said(error: ParquetError) -> Mismatch {
    let text = if let ParquetError::General(text) = error { text } else { error.to_string() };
    match text.split_once(", expected ") {
        Some((found, expected)) => (found.to_owned(), expected.to_owned()),
        None => (text, EXPECTED.to_owned()),
    }
}
