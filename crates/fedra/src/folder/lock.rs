//! One process at a time in a folder.
//!
//! The lock is the operating system's, on a file in the folder: it ends with the process, however
//! that ends, so a file that is left behind by a killed process holds nobody up. The file has the
//! holder's process number, for people.

use crate::error::{Context, Result, refuse};
use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The file.
pub const FILE: &str = "fedra.lock";

/// Held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: Option<File>,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of a folder that exists, or says who holds it.
    pub fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        loop {
            let mut options = File::options();
            let file = options.read(true).write(true).create(true).truncate(false).open(&path);
            let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
            hold(&file, folder)?;
            // Whoever held it before removes the file last of all: then another one is there now.
            if !is_still(&file, &path) {
                continue;
            }
            file.set_len(0)
                .and_then(|()| writeln!(file, "{}", std::process::id()))
                .and_then(|()| file.flush())
                .with_context(|| format!("cannot write {}", path.display()))?;
            return Ok(Self { file: Some(file), path });
        }
    }

    /// Refuses a folder in which somebody is at work, and leaves it as it is.
    pub fn check(folder: &Path) -> Result<()> {
        match opened(folder) {
            Ok(file) => hold(&file, folder),
            Err(_) => Ok(()),
        }
    }
}

/// The file of a folder's lock.
fn opened(folder: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).open(folder.join(FILE))
}

/// Whether a process is at work in a folder, as far as its file system can tell.
pub fn is_at_work(folder: &Path) -> bool {
    match opened(folder) {
        Ok(file) => file.try_lock().is_err(),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// Who is at work in a folder, in words; nobody where its lock is free, or cannot be asked for.
pub fn holder(folder: &Path) -> Option<String> {
    let file = opened(folder).ok()?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Some(named(&file)),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// The process that a lock's file names.
fn named(file: &File) -> String {
    let mut holder = String::new();
    let read = (&mut &*file).take(20).read_to_string(&mut holder);
    match holder.trim() {
        number if read.is_ok() && !number.is_empty() => format!("process {number}"),
        _ => "another process".to_owned(),
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // First the name, then the lock: nobody takes a file that is about to go.
        let _absent = fs::remove_file(&self.path);
        drop(self.file.take());
    }
}

/// Locks a file; refuses when another process has done so.
fn hold(file: &File, folder: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let who = named(file);
            refuse!(
                "{who} is using {}\n\
                 hint: wait until it has finished, or stop it",
                folder.display()
            );
        }
        // A file system without locks: better to run unguarded than not at all.
        Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => {
            Ok(())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", folder.display()))
        }
    }
}

/// Whether the path still leads to this file.
#[cfg(unix)]
fn is_still(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(there)) => (held.dev(), held.ino()) == (there.dev(), there.ino()),
        (_, _) => false,
    }
}

/// An open file keeps its name there.
#[cfg(not(unix))]
fn is_still(_file: &File, _path: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_others_are_told_who_and_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take(folder.path()).unwrap();
        let expected = format!("process {} is using", std::process::id());
        for refused in [Lock::take(folder.path()).map(drop), Lock::check(folder.path())] {
            let message = refused.unwrap_err().to_string();
            assert!(message.starts_with(&expected), "{message}");
        }
        assert!(is_at_work(folder.path()));
        drop(lock);
        assert!(!is_at_work(folder.path()));
        assert!(!folder.path().join(FILE).exists());
        Lock::check(folder.path()).unwrap();
        // What a killed process left.
        fs::write(folder.path().join(FILE), "123456789\n").unwrap();
        let lock = Lock::take(folder.path()).unwrap();
        let held = fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert_eq!(held.trim(), std::process::id().to_string());
        drop(lock);
    }
}
