//! A file of numbered pages for what does not fit in memory, gone when its owner is.
//!
//! It is not storage: nothing in it outlives the process. Where the system allows it (every Unix)
//! the file loses its name as soon as it is open, so a process that is killed leaves nothing behind
//! and no later one can take up what it wrote; elsewhere the name goes with the last owner, and what
//! a killed process left is replaced, never read.
//!
//! A page that is given back is the next to be used, lowest first. Hence records may grow and
//! shrink, and the file is never longer than the most that was in use at once.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a page: a client wastes half of one in the mean, and a state of some megabytes is a
/// few dozen calls of the system.
pub(crate) const PAGE: usize = 64 << 10;

/// Pages by number.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Where it was made.
    pub(crate) path: PathBuf,
    /// Whether the file still has its name.
    named: bool,
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Pages {
    file: File,
    /// How many there are, in use or not.
    count: u64,
    free: BTreeSet<u64>,
}

impl Scratch {
    /// An empty file at this place; one that is there already is replaced.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // `create_new` follows no link: what is opened here is ours.
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let named = fs::remove_file(path).is_err();
        let pages = Mutex::new(Pages { file, count: 0, free: BTreeSet::new() });
        Ok(Self { path: path.to_owned(), named, pages })
    }

    /// Writes at most a page somewhere, and says where.
    fn write(&self, bytes: &[u8]) -> io::Result<u64> {
        let mut pages = self.pages();
        let page = pages.free.first().copied().unwrap_or(pages.count);
        pages.file.seek(SeekFrom::Start(page * PAGE as u64))?;
        pages.file.write_all(bytes)?;
        if !pages.free.remove(&page) {
            pages.count += 1;
        }
        Ok(page)
    }

    /// Reads the start of a page.
    fn read(&self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut pages = self.pages();
        pages.file.seek(SeekFrom::Start(page * PAGE as u64))?;
        pages.file.read_exact(bytes)
    }

    /// Takes pages back that nobody will read again.
    fn give_back(&self, pages: &[u64]) {
        self.pages().free.extend(pages);
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        // Nothing in here panics while it holds the lock.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.named {
            // What cannot be removed now is replaced by the next run in the folder.
            let _left = fs::remove_file(&self.path);
        }
    }
}

/// Bytes in a scratch file, written once; its pages go back with it.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) scratch: Arc<Scratch>,
    pages: Vec<u64>,
    bytes: usize,
    checksum: u32,
}

impl Record {
    /// Writes bytes as they are.
    pub(crate) fn write(scratch: &Arc<Scratch>, bytes: &[u8]) -> io::Result<Self> {
        let (pages, checksum) = (Vec::new(), crc32fast::hash(bytes));
        let mut record = Self { scratch: scratch.clone(), pages, bytes: bytes.len(), checksum };
        for page in bytes.chunks(PAGE) {
            record.pages.push(scratch.write(page)?);
        }
        Ok(record)
    }

    /// The bytes that were written.
    pub(crate) fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes];
        for (page, place) in self.pages.iter().zip(bytes.chunks_mut(PAGE)) {
            self.scratch.read(*page, place)?;
        }
        if crc32fast::hash(&bytes) == self.checksum {
            return Ok(bytes);
        }
        let reason = "its checksum does not match what was written";
        Err(io::Error::new(ErrorKind::InvalidData, reason))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.scratch.give_back(&self.pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_come_back_are_used_again_and_the_file_does_not_grow() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(&folder.path().join("scratch")).unwrap();
        let pages: Vec<u64> = (0..5_u8).map(|n| scratch.write(&vec![n; PAGE]).unwrap()).collect();
        assert_eq!(pages, [0, 1, 2, 3, 4]);
        scratch.give_back(&[3, 1]);
        assert_eq!([8_u8, 9, 10].map(|n| scratch.write(&[n; 100]).unwrap()), [1, 3, 5]);
        let read = |page| {
            let mut bytes = [0; 100];
            scratch.read(page, &mut bytes).unwrap();
            bytes
        };
        for (page, expected) in [(0, 0), (1, 8), (2, 2), (3, 9), (4, 4), (5, 10)] {
            assert_eq!(read(page), [expected; 100], "page {page}");
        }
        let length = scratch.pages().file.metadata().unwrap().len();
        assert!(length <= 6 * PAGE as u64, "{length}");
    }

    #[test]
    fn what_another_left_is_replaced_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, precious) = (folder.path().join("scratch"), folder.path().join("precious"));
        fs::write(&precious, "mine").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        let scratch = Scratch::create(&path).unwrap();
        scratch.write(b"something").unwrap();
        assert!(scratch.read(0, &mut [0; 10]).is_err(), "nine bytes are all there is");
        drop(scratch);
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    }

    #[test]
    fn a_record_comes_back_bit_by_bit_and_one_that_was_changed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Arc::new(Scratch::create(&folder.path().join("scratch")).unwrap());
        let long: Vec<u8> = (0..2 * PAGE + 16).map(|n| (n * n / 7) as u8).collect();
        let record = Record::write(&scratch, &long).unwrap();
        assert_eq!(record.pages, [0, 1, 2]);
        assert_eq!(record.bytes().unwrap(), long);

        let mut pages = scratch.pages();
        pages.file.seek(SeekFrom::Start(PAGE as u64)).unwrap();
        pages.file.write_all(&[0xff]).unwrap();
        drop(pages);
        assert!(record.bytes().unwrap_err().to_string().contains("checksum"));
        drop(record);
        assert_eq!(scratch.pages().free.len(), 3);
    }
}
