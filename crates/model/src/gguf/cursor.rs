//! A file read from its beginning, never past what it has or past a limit.
//!
//! Lengths in the file are compared with what is left before anything is read for them.

use std::io::Read;
use std::path::Path;

use crate::error::ModelError;

/// Bytes of a header in order.
pub(super) struct Cursor<'p, R> {
    path: &'p Path,
    inner: R,
    position: u64,
    end: u64,
}

impl<'p, R: Read> Cursor<'p, R> {
    /// Reads at most the first `end` bytes.
    pub fn new(path: &'p Path, inner: R, end: u64) -> Self {
        Self { path, inner, position: 0, end }
    }

    /// Bytes read so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Refuses a count of things that could not fit into what is left.
    pub fn check_room(&self, what: &str, count: u64, width: u64) -> Result<(), ModelError> {
        let left = self.end - self.position;
        if count.checked_mul(width).is_some_and(|bytes| bytes <= left) {
            return Ok(());
        }
        let found = format!("{count} {what} at byte {} of the header", self.position);
        let expected = format!("what fits into the {left} bytes that are left for it");
        Err(ModelError::file(self.path, found, expected))
    }

    pub fn u32(&mut self) -> Result<u32, ModelError> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, ModelError> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// A text with its length before it, of at most `longest` bytes.
    pub fn text(&mut self, what: &str, longest: u64) -> Result<String, ModelError> {
        let length = self.u64()?;
        if length > longest {
            let found = format!("{what} of {length} bytes");
            return Err(ModelError::file(self.path, found, format!("at most {longest}")));
        }
        self.check_room("bytes of text", length, 1)?;
        let mut bytes = vec![0; length as usize];
        self.inner.read_exact(&mut bytes).map_err(ModelError::io("read", self.path))?;
        self.position += length;
        String::from_utf8(bytes).map_err(|error| {
            let found = format!("{what} that is no UTF-8 ({})", error.utf8_error());
            ModelError::file(self.path, found, "text")
        })
    }

    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], ModelError> {
        self.check_room("bytes", N as u64, 1)?;
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes).map_err(ModelError::io("read", self.path))?;
        self.position += N as u64;
        Ok(bytes)
    }
}
