//! Files that are there whole or not at all, whatever happens to the process or the power.

use std::fs::{self, File};
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
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// Lets what was created, moved or removed in a folder reach the disk, where folders can be synced.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Removes a file; what is not there need not be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
