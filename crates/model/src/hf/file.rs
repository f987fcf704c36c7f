//! Files, read with a limit and written whole. A reader of a folder being written, or one written
//! when the power failed, sees the old file or the new one and never a part.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use fedra_files::Replacing;

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

/// Writes a file through another one beside it.
pub fn write(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let mut file = Replacing::begin_beside_others(path).map_err(ModelError::io("create", path))?;
    fill(&mut file)?;
    file.finish().map_err(ModelError::io("write", path))
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
