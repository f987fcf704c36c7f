//! Files of a run folder, opened only if they are plain files, written whole or not at all.
//!
//! Opening a pipe waits for whoever writes to it, and a device may never end. A folder that came from
//! somebody else may hold either under the name of a log, so it is looked at before it is opened.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use fedra_engine::durable;

use crate::error::{Context, Result};

/// Opens a plain file for reading.
pub fn open(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("found no plain file, expected one"));
    }
    File::open(path)
}

/// The text of a plain file.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a file whole or not at all.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    durable::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes a file, if it is there.
pub fn remove(path: &Path) -> Result<()> {
    durable::remove(path).with_context(|| format!("cannot remove {}", path.display()))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_device_and_a_folder_are_not_waited_for() {
        for path in ["/dev/zero", "/"] {
            let refused = read_to_string(Path::new(path)).unwrap_err().to_string();
            assert!(refused.contains("expected one"), "{path}: {refused}");
        }
    }
}
