//! A file read line by line as UTF-8: gzip is opened on sight, other encodings are turned into it,
//! and nothing grows without a bound.
//!
//! gzip is recognised by its first two bytes and not by the name, since both lie often. The
//! expanded bytes are counted against a limit, and so is every single record, so that a small
//! hostile file cannot fill the memory.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;

use super::encoding::{Encoding, guess};
use super::other_file;
use super::reader::{Limits, Reader as Settings};
use crate::{Advice, DataError, Result};

/// Bytes that are asked of the system at a time.
const READ: usize = 1 << 16;

/// An open text file that knows where it is.
pub(super) struct Source {
    pub file: PathBuf,
    reader: Box<dyn BufRead>,
    pub limits: Limits,
    encoding: Encoding,
    /// The number of the line read last, from 1.
    pub line: u64,
    expanded: u64,
    buffer: Vec<u8>,
    /// Whether a line had letters of several bytes in UTF-8: then the file is UTF-8, and a byte that is not is damage.
    has_letters: bool,
    is_json_array: bool,
    /// Bytes of the file itself, before anything is expanded.
    taken: Rc<Cell<u64>>,
}

/// Counts what is read of a file.
struct Counted {
    input: Box<dyn Read>,
    taken: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.taken.set(self.taken.get() + count as u64);
        Ok(count)
    }
}

impl Source {
    /// Opens a file, through gzip if it is that.
    pub fn open(file: &Path, settings: &Settings) -> Result<Self> {
        let plain = File::open(file).map_err(|error| DataError::io("open", file, error))?;
        Self::of(Box::new(plain), file, settings)
    }

    /// Text that comes from anywhere; `file` is what messages call it.
    pub fn of(input: Box<dyn Read>, file: &Path, settings: &Settings) -> Result<Self> {
        let (limits, encoding) = (settings.limits, settings.encoding);
        let taken = Rc::default();
        let mut plain = BufReader::with_capacity(READ, Counted { input, taken: Rc::clone(&taken) });
        let head = plain.fill_buf().map_err(|error| DataError::io("read", file, error))?;
        other_file::refuse(head, file)?;
        let is_json_array = other_file::is_json_array(head);
        let reader: Box<dyn Read> = if head.starts_with(&[0x1f, 0x8b]) {
            encoding.decoded(MultiGzDecoder::new(plain))
        } else {
            encoding.decoded(plain)
        };
        let reader: Box<dyn BufRead> = Box::new(BufReader::with_capacity(READ, reader));
        let file = file.to_owned();
        let (buffer, has_letters) = (Vec::new(), false);
        let (line, expanded) = (0, 0);
        Ok(Self {
            file,
            reader,
            limits,
            encoding,
            line,
            expanded,
            buffer,
            has_letters,
            is_json_array,
            taken,
        })
    }

    /// The same, unless it is one JSON array, which has no records.
    pub fn of_records(self) -> Result<Self> {
        if self.is_json_array { Err(other_file::json_array(&self.file)) } else { Ok(self) }
    }

    /// The next line without its end, or `None` after the last.
    pub fn next_line(&mut self) -> Result<Option<&str>> {
        self.buffer.clear();
        let mut bounded = self.reader.by_ref().take(self.limits.record_bytes.saturating_add(1));
        let read = bounded.read_until(b'\n', &mut self.buffer);
        self.line += 1;
        let count = read.map_err(|error| {
            let (mut found, mut expected) =
                (format!("unreadable data ({error})"), "text".to_owned());
            if error.kind() == ErrorKind::InvalidData && self.encoding != Encoding::Utf8 {
                found = error.to_string();
                expected = format!("text in {}", self.encoding.name());
            }
            DataError::row(&self.file, self.line, found, expected)
        })? as u64;
        if count == 0 {
            return Ok(None);
        }
        // A line end of old Macintosh files makes one line of them all.
        if self.line == 1 && !self.buffer.ends_with(b"\n") && self.buffer.contains(&b'\r') {
            let inside = self.buffer.iter().position(|&byte| byte == b'\r');
            if inside.is_some_and(|place| place + 1 < self.buffer.len()) {
                let found = "lines that end with a carriage return alone (CR)";
                return Err(DataError::file(&self.file, found, "line ends LF or CRLF: convert it"));
            }
        }
        if count > self.limits.record_bytes {
            return Err(self.too_large("one record", self.limits.record_bytes));
        }
        self.expanded += count;
        if self.expanded > self.limits.expanded_bytes {
            return Err(self.too_large("expanded data", self.limits.expanded_bytes));
        }
        let mut line = self.buffer.as_slice();
        if self.line == 1 {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(at) = line.iter().position(|&byte| byte == 0) {
            let found = format!("the byte 0x00 at byte {} of the line", at + 1);
            let usual = if self.line == 1 { guess(line) } else { None };
            let advice = usual.map(|usual| {
                Advice::new("data.encoding", Some(usual.name().to_owned()), "may read it")
            });
            return Err(DataError::row(&self.file, self.line, found, "text").advising(advice));
        }
        match std::str::from_utf8(line) {
            Ok(text) => {
                self.has_letters = self.has_letters || !text.is_ascii();
                Ok(Some(text))
            }
            Err(error) => {
                let at = error.valid_up_to();
                let found = format!("the byte {:#04x} at byte {} of the line", line[at], at + 1);
                if self.has_letters || !line[..at].is_ascii() {
                    let expected = "UTF-8 like the letters before it: the byte is damaged, or this part is of \
                                    another file";
                    return Err(DataError::row(&self.file, self.line, found, expected));
                }
                let usual = if self.line == 1 { guess(line) } else { None };
                let usual = usual.unwrap_or(Encoding::Windows1252).name().to_owned();
                let advice = Advice::new("data.encoding", Some(usual), "may read it");
                Err(DataError::row(&self.file, self.line, found, "UTF-8").advising(advice))
            }
        }
    }

    /// What the line read last ended with.
    pub fn line_end(&self) -> &'static str {
        if self.buffer.ends_with(b"\r\n") { "\r\n" } else { "\n" }
    }

    /// How many bytes of the file are read.
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// The error that something grew past its limit.
    pub fn too_large(&self, what: &'static str, limit: u64) -> DataError {
        DataError::TooLarge { file: self.file.clone(), line: self.line, what, limit }
    }
}
