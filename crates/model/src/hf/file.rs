//! Files, read with a limit and written whole. A reader of a folder being written, or one written
//! when the power failed, sees the old file or the new one and never a part.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ModelError;

/// Opens a regular file and says how long it is. A pipe or a device would block or never end.
pub fn open(path: &Path) -> Result<(File, u64), ModelError> {
    let metadata = fs::metadata(path).map_err(ModelError::io("open", path))?;
    if !metadata.is_file() {
        return Err(ModelError::file(path, "a folder, pipe or device", "a regular file"));
    }
    let file = File::open(path).map_err(ModelError::io("open", path))?;
    let length = file.metadata().map_err(ModelError::io("open", path))?.len();
    Ok((file, length))
}

/// Reads a whole file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, ModelError> {
    let (file, length) = open(path)?;
    let too_long = |length: u64| {
        ModelError::file(path, format!("{length} bytes"), format!("at most {limit} bytes"))
    };
    if length > limit {
        return Err(too_long(length));
    }
    let mut bytes = Vec::with_capacity(length as usize);
    // The file may have grown since: one byte past the limit is enough to know.
    file.take(limit + 1).read_to_end(&mut bytes).map_err(ModelError::io("read", path))?;
    if bytes.len() as u64 > limit {
        return Err(too_long(bytes.len() as u64));
    }
    Ok(bytes)
}

/// Writes `path` through a temporary file beside it, synced and then renamed over it.
pub fn write(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let temporary = Temporary::beside(path);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary.0)
        .map_err(ModelError::io("create", &temporary.0))?;
    let mut buffered = BufWriter::with_capacity(1 << 20, file);
    fill(&mut buffered)?;
    let file =
        buffered.into_inner().map_err(|e| ModelError::io("write", &temporary.0)(e.into_error()))?;
    file.sync_all().map_err(ModelError::io("sync", &temporary.0))?;
    drop(file);
    fs::rename(&temporary.0, path).map_err(ModelError::io("rename to", path))?;
    sync_folder(path)
}

/// A path that is removed again unless it was renamed away.
struct Temporary(PathBuf);

impl Temporary {
    fn beside(path: &Path) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let process = std::process::id();
        Self(path.with_file_name(format!(".{name}.{process}-{serial}.partial")))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Gone after a successful rename; after a failure there is an earlier error to report.
        let _ = fs::remove_file(&self.0);
    }
}

/// Makes the rename itself durable, where folders can be synced.
fn sync_folder(path: &Path) -> Result<(), ModelError> {
    if !cfg!(unix) {
        return Ok(());
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    File::open(folder).and_then(|f| f.sync_all()).map_err(ModelError::io("sync", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_keeps_the_old_file_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept");
        fs::write(&path, b"old").unwrap();
        let result = write(&path, |out| {
            out.write_all(b"half of the new").unwrap();
            Err(ModelError::file(Path::new("x"), "y", "z"))
        });
        assert!(result.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn one_byte_past_the_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, [7; 10]).unwrap();
        assert_eq!(read(&path, 10).unwrap(), [7; 10]);
        let message = read(&path, 9).unwrap_err().to_string();
        assert!(message.ends_with("found 10 bytes, expected at most 9 bytes"), "{message}");
    }

    #[test]
    fn a_folder_is_not_a_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path(), 10).unwrap_err().to_string().contains("regular file"));
    }
}
