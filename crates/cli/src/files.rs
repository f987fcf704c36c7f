//! Folders and files that commands write, with errors that name them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Makes a folder and those above it, where they are not there.
pub fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// Writes a file.
pub fn write(file: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    fs::write(file, contents).with_context(|| format!("cannot write {}", file.display()))
}
