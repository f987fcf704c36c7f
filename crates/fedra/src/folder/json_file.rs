//! The JSON files of a run's folder: read only if they are plain files, written whole or not at all.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Context, Result};
use crate::folder::regular_file;

/// Reads a file, and says what it should hold if it does not.
pub fn read<T: DeserializeOwned>(path: &Path, what: &str) -> Result<T> {
    let shown = path.display();
    let text =
        regular_file::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    serde_json::from_str(&text).with_context(|| format!("{shown}: found no {what} of this version"))
}

/// The same; `None` where there is no such file.
pub fn read_if_there<T: DeserializeOwned>(path: &Path, what: &str) -> Result<Option<T>> {
    if matches!(fs::exists(path), Ok(false)) {
        return Ok(None);
    }
    read(path, what).map(Some)
}

/// Writes a file, for people to read too.
pub fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    regular_file::write(path, text.as_bytes())
}
