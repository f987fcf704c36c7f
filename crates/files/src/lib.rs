//! Files that are there whole or not at all, whatever happens to the process or the power.
//!
//! What replaces a file is written beside it, synced and moved to its place, and then the folder is synced.

#![forbid(unsafe_code)]

pub mod model_folder;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file on its way to its place. One that is dropped before it is whole leaves nothing behind.
#[derive(Debug)]
pub struct Replacing {
    file: BufWriter<File>,
    path: PathBuf,
    /// Where it is until it is whole.
    part: PathBuf,
    is_moved: bool,
}

impl Replacing {
    /// Begins a file of which one process at a time writes another: what a killed one left is written over.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let part = path.with_file_name(format!("{}.part", name_of(path)));
        Self::open(path, part, OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// The same of a file that only its owner may read.
    pub fn begin_private(path: &Path) -> io::Result<Self> {
        let part = path.with_file_name(format!("{}.part", name_of(path)));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Self::open(path, part, &options)
    }

    /// Begins a file that others may write at the same time: each has a place of its own until it is whole.
    pub fn begin_beside_others(path: &Path) -> io::Result<Self> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let (process, serial) = (std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let part = path.with_file_name(format!(".{}.{process}-{serial}.part", name_of(path)));
        Self::open(path, part, OpenOptions::new().write(true).create_new(true))
    }

    fn open(path: &Path, part: PathBuf, options: &OpenOptions) -> io::Result<Self> {
        let file = BufWriter::with_capacity(1 << 20, options.open(&part)?);
        Ok(Self { file, path: path.to_owned(), part, is_moved: false })
    }

    /// Moves it to its place.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.part, &self.path)?;
        self.is_moved = true;
        sync_folder_of(&self.path)
    }
}

impl Write for Replacing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacing {
    fn drop(&mut self) {
        if !self.is_moved {
            // What was cut short only takes room.
            let _absent = fs::remove_file(&self.part);
        }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Replaces a file.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = Replacing::begin(path)?;
    file.write_all(bytes)?;
    file.finish()
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
