//! A checkpoint as a list of sections, each read when it is wanted.
//!
//! The file may be larger than memory, so it is read twice: once from end to end for its checksum,
//! then section by section. Lengths are held against the file's own before memory is taken for them.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use fedra_privacy::Head;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::EngineError;

/// The name of a checkpoint in its directory.
pub(crate) const FILE: &str = "checkpoint.fedra";
/// Bytes of the checksum at the end.
const CHECKSUM: u64 = 4;

/// The sections of a file whose checksum is right.
#[derive(Debug)]
pub(crate) struct Sections {
    path: PathBuf,
    file: File,
    /// Where each begins, and its length.
    pub(crate) spans: Vec<(u64, usize)>,
}

/// The part of the notes that says where the ledger of a private run ends.
#[derive(Deserialize)]
struct Ended {
    #[serde(default)]
    ledger: Option<Head>,
}

impl Sections {
    /// What a checkpoint begins with: its kind and the version of its form.
    pub(crate) const MAGIC: &[u8] = b"FDCK\x04";

    /// Opens the checkpoint in a directory; `None` when there is none.
    pub(crate) fn open(directory: &Path) -> Result<Option<Self>, EngineError> {
        let (path, magic) = (&directory.join(FILE), Self::MAGIC);
        let failed = |error| EngineError::disk("reading", path, error);
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let length = file.metadata().map_err(failed)?.len();
        let mut sections = Self { path: path.to_owned(), file, spans: Vec::new() };
        let end = length.checked_sub(CHECKSUM).ok_or_else(|| sections.refuse("it is truncated"))?;
        if !sections.checksum_matches(end).map_err(failed)? {
            return Err(sections.refuse("its checksum does not match its content"));
        }
        let mut start = vec![0; magic.len()];
        sections.file.rewind().map_err(failed)?;
        if end < magic.len() as u64
            || sections.file.read_exact(&mut start).is_err()
            || start != magic
        {
            return Err(sections.refuse("it is no checkpoint, or one of another version of fedra"));
        }
        sections.spans = sections.find_spans(magic.len() as u64, end)?;
        Ok(Some(sections))
    }

    /// The notes of the checkpoint.
    pub(crate) fn notes<N: DeserializeOwned>(&self) -> Result<N, EngineError> {
        serde_json::from_slice(&self.read(0)?).map_err(|error| self.refuse(error))
    }

    /// Where the ledger ended when the checkpoint in a directory was written; `None` when there is no checkpoint,
    /// or no ledger.
    pub(crate) fn ledger_head(directory: &Path) -> Result<Option<Head>, EngineError> {
        let Some(sections) = Self::open(directory)? else { return Ok(None) };
        Ok(sections.notes::<Ended>()?.ledger)
    }

    /// One of them.
    pub(crate) fn read(&self, number: usize) -> Result<Vec<u8>, EngineError> {
        let cut = || self.refuse("a section is truncated");
        let &(start, length) = self.spans.get(number).ok_or_else(cut)?;
        let mut bytes = vec![0; length];
        // A file's position is its own, not this value's: `&File` moves it.
        let mut file = &self.file;
        file.seek(SeekFrom::Start(start))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|error| EngineError::disk("reading", &self.path, error))?;
        Ok(bytes)
    }

    /// That the file cannot be used, and why.
    pub(crate) fn refuse(&self, reason: impl Display) -> EngineError {
        EngineError::checkpoint(&self.path, reason)
    }

    fn checksum_matches(&self, end: u64) -> io::Result<bool> {
        let (mut content, mut checksum) = ((&self.file).take(end), Hasher::new());
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = content.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            checksum.update(&buffer[..count]);
        }
        let mut found = [0; CHECKSUM as usize];
        (&self.file).read_exact(&mut found)?;
        Ok(checksum.finalize() == u32::from_le_bytes(found))
    }

    /// Every section from one place to another.
    fn find_spans(&self, mut at: u64, end: u64) -> Result<Vec<(u64, usize)>, EngineError> {
        let cut = || self.refuse("a section is truncated");
        let (mut file, mut spans) = (&self.file, Vec::new());
        while at < end {
            let (mut length, start) = ([0; 8], at + 8);
            file.seek(SeekFrom::Start(at))
                .and_then(|_| file.read_exact(&mut length))
                .map_err(|error| EngineError::disk("reading", &self.path, error))?;
            let length = u64::from_le_bytes(length);
            at = start.checked_add(length).filter(|next| *next <= end).ok_or_else(cut)?;
            spans.push((start, usize::try_from(length).map_err(|_| cut())?));
        }
        Ok(spans)
    }
}
