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

use crc32fast::Hasher;

/// Bytes of a page: a client wastes half of one in the mean, and a state of some megabytes is a
/// few dozen calls of the system.
pub(crate) const PAGE: usize = 64 << 10;

/// Pages by number.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
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

    /// Where it was made.
    pub(crate) fn path(&self) -> &Path {
        &self.path
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

/// A run of numbers in a scratch file, written once; its pages go back with it.
#[derive(Debug)]
pub(crate) struct Record {
    scratch: Arc<Scratch>,
    pages: Vec<u64>,
    bytes: usize,
    checksum: u32,
}

impl Record {
    /// Writes these numbers, one slice after another.
    pub(crate) fn write<'n>(
        scratch: &Arc<Scratch>,
        slices: impl Iterator<Item = &'n [f32]>,
    ) -> io::Result<Self> {
        let mut record =
            Self { scratch: scratch.clone(), pages: Vec::new(), bytes: 0, checksum: 0 };
        let (mut page, mut checksum) = (Vec::with_capacity(PAGE), Hasher::new());
        let mut turn = |page: &mut Vec<u8>| {
            checksum.update(page);
            record.bytes += page.len();
            // What was written before an error goes back with the record.
            record.pages.push(scratch.write(page)?);
            page.clear();
            io::Result::Ok(())
        };
        for mut numbers in slices {
            while !numbers.is_empty() {
                let (now, later) = numbers.split_at(numbers.len().min((PAGE - page.len()) / 4));
                append(&mut page, now);
                numbers = later;
                if page.len() == PAGE {
                    turn(&mut page)?;
                }
            }
        }
        if !page.is_empty() {
            turn(&mut page)?;
        }
        record.checksum = checksum.finalize();
        Ok(record)
    }

    /// Writes bytes as they are.
    pub(crate) fn write_bytes(scratch: &Arc<Scratch>, bytes: &[u8]) -> io::Result<Self> {
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
        if crc32fast::hash(&bytes) == self.checksum { Ok(bytes) } else { Err(damaged()) }
    }

    /// Where the file was made.
    pub(crate) fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Reads from the start.
    pub(crate) fn read(&self) -> Reading<'_> {
        Reading { record: self, turned: 0, page: Vec::new(), at: 0, checksum: Hasher::new() }
    }
}

/// Numbers as bytes behind those that are there; a loop that the compiler turns into a plain copy.
fn append(page: &mut Vec<u8>, numbers: &[f32]) {
    let start = page.len();
    page.resize(start + 4 * numbers.len(), 0);
    let (words, _) = page[start..].as_chunks_mut::<4>();
    for (word, number) in words.iter_mut().zip(numbers) {
        *word = number.to_le_bytes();
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.scratch.give_back(&self.pages);
    }
}

/// A record as far as it was read.
pub(crate) struct Reading<'r> {
    record: &'r Record,
    turned: usize,
    page: Vec<u8>,
    /// What of the page was taken.
    at: usize,
    checksum: Hasher,
}

impl Reading<'_> {
    /// The next so many numbers.
    pub(crate) fn take(&mut self, count: usize) -> io::Result<Vec<f32>> {
        let mut numbers = Vec::with_capacity(count);
        while numbers.len() < count {
            if self.at == self.page.len() {
                self.turn()?;
            }
            let (words, _) = self.page[self.at..].as_chunks::<4>();
            let fit = words.len().min(count - numbers.len());
            numbers.extend(words[..fit].iter().map(|bytes| f32::from_le_bytes(*bytes)));
            self.at += 4 * fit;
        }
        Ok(numbers)
    }

    fn turn(&mut self) -> io::Result<()> {
        let Record { scratch, pages, bytes, .. } = self.record;
        let page = *pages.get(self.turned).ok_or(ErrorKind::UnexpectedEof)?;
        self.page.resize((bytes - self.turned * PAGE).min(PAGE), 0);
        scratch.read(page, &mut self.page)?;
        self.checksum.update(&self.page);
        (self.turned, self.at) = (self.turned + 1, 0);
        Ok(())
    }

    /// Refuses numbers that are not what was written.
    pub(crate) fn finish(self) -> io::Result<()> {
        if self.checksum.finalize() == self.record.checksum { Ok(()) } else { Err(damaged()) }
    }
}

fn damaged() -> io::Error {
    let reason = "its checksum does not match what was written";
    io::Error::new(ErrorKind::InvalidData, reason)
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
        let odd = [f32::NAN, f32::INFINITY, -0.0, f32::MIN_POSITIVE / 2.0];
        let long: Vec<f32> = (0..PAGE / 2).map(|n| n as f32).collect();
        let record = Record::write(&scratch, [&odd[..], &[], &long].into_iter()).unwrap();
        assert_eq!(record.pages, [0, 1, 2]);
        let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let mut reading = record.read();
        assert_eq!(bits(reading.take(4).unwrap()), odd.map(f32::to_bits));
        assert!(reading.take(0).unwrap().is_empty());
        assert_eq!(reading.take(long.len()).unwrap(), long);
        assert!(reading.take(1).is_err());
        reading.finish().unwrap();

        let mut pages = scratch.pages();
        pages.file.seek(SeekFrom::Start(PAGE as u64)).unwrap();
        pages.file.write_all(&[0xff]).unwrap();
        drop(pages);
        let mut reading = record.read();
        reading.take(4 + long.len()).unwrap();
        assert!(reading.finish().unwrap_err().to_string().contains("checksum"));
        drop(record);
        assert_eq!(scratch.pages().free.len(), 3);
    }
}
