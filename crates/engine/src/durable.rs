//! Files that are there whole or not at all, whatever happens to the process or the power.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Writes a file beside its place, syncs it, moves it there and syncs the folder.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = path.with_file_name(format!("{name}.part"));
    let written = File::create(&unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let moved = written.and_then(|()| fs::rename(&unfinished, path));
    if moved.is_err() {
        // What was cut short only takes room.
        let _absent = fs::remove_file(&unfinished);
    }
    moved?;
    sync_folder_of(path)
}

/// Adds to the end of a file that is there, and syncs it.
pub fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Lets what was created, moved or removed in a folder reach the disk, where folders can be synced.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The same of the folder that a file is in.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    // A name alone is in the folder at work.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync_folder(folder.unwrap_or(Path::new(".")))
}

/// Removes a file; what is not there need not be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("end");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        append(&path, b", three").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two, three");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(append(&folder.path().join("absent"), b"x").is_err());
        assert!(sync_folder_of(Path::new("a-name-alone")).is_ok());
    }
}
