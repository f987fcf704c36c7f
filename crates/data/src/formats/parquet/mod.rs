//! Parquet: tables stored column by column.
//!
//! A reader of our own, because all that is wanted here is flat columns and lists of names, and a
//! general library takes longer to build than the rest of this crate together.
//!
//! ```text
//! footer -> columns -> row group -> column chunk -> pages -> levels and values -> one row's cell
//! ```
//!
//! Read: flat columns and lists of one level (in the standard and both older shapes) of text,
//! whole and floating numbers and truth values; plain, dictionary, run-length and delta encodings;
//! pages of both versions; no compression, Snappy, gzip and Zstandard. A column that is not asked
//! for is never opened, so what else a file holds does not matter. Checksums are not checked.
//!
//! A file is never believed: each length is compared with the bytes there are, compressed data may
//! grow only to what its header says, and runs are handed out one value at a time. Rows are counted
//! from 1 and stand in the place of lines in complaints.

mod bytes;
mod codec;
mod column;
mod delta;
mod footer;
mod hybrid;
mod page;
mod schema;
mod thrift;
mod values;

use std::fs::File;
use std::io::{Read as _, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use self::bytes::{Bytes, Read, complaint};
use self::column::ColumnReader;
use self::footer::{Footer, Group};
use self::schema::Column;
use super::columns::{Cell, Complaint, Fields};
use super::{Limits, Reader};
use crate::{DataError, Result, TableBuilder};

/// A footer grows with columns times row groups; this is a hundred thousand of them.
const LARGEST_FOOTER: u64 = 64 << 20;
/// Before the footer and after it.
const MAGIC: &[u8; 4] = b"PAR1";
const EXPECTED: &str = "a Parquet file";

/// Reads every row of a file.
pub(super) fn read(reader: &Reader, path: &Path, builder: &mut TableBuilder) -> Result<()> {
    let mut stored = Stored::open(path)?;
    let footer = stored.footer()?;
    let broken = |(found, expected): Complaint| DataError::file(path, found, expected);
    let (columns, leaves) = schema::columns(&footer.schema).map_err(broken)?;
    let mut rows_read = 0;
    let mut expanded = 0;
    for (number, group) in footer.groups.iter().enumerate() {
        if group.chunks.len() != leaves {
            let found = format!("{} columns in row group {}", group.chunks.len(), number + 1);
            return Err(DataError::file(path, found, format!("the {leaves} of the schema")));
        }
        let mut open = OpenGroup {
            stored: &mut stored,
            columns: &columns,
            group,
            number: number + 1,
            readers: columns.iter().map(|_| None).collect(),
            row: 0,
            limits: reader.limits,
            taken: 0,
            failure: None,
        };
        for row in 0..group.rows {
            rows_read += 1;
            (open.row, open.taken) = (row, 0);
            let record = reader.columns.row(builder.task(), &mut open);
            if let Some(failure) = open.failure.take() {
                return Err(failure);
            }
            let record = record
                .map_err(|(found, expected)| DataError::row(path, rows_read, found, expected))?;
            expanded += open.taken;
            for (taken, what, limit) in [
                (open.taken, "one record", reader.limits.record_bytes),
                (expanded, "expanded data", reader.limits.expanded_bytes),
            ] {
                if taken > limit {
                    let (file, line) = (path.to_owned(), rows_read);
                    return Err(DataError::TooLarge { file, line, what, limit });
                }
            }
            reader.push(record, (path, rows_read), builder)?;
        }
        open.check_end()?;
    }
    Ok(())
}

/// A file whose length is known.
struct Stored {
    file: File,
    path: PathBuf,
    length: u64,
}

impl Stored {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| DataError::io("open", path, error))?;
        let length = file.metadata().map_err(|error| DataError::io("open", path, error))?.len();
        Ok(Self { file, path: path.to_owned(), length })
    }

    fn footer(&mut self) -> Result<Footer> {
        let refuse = |path: &Path, found: &str| Err(DataError::file(path, found, EXPECTED));
        if self.length < 12 {
            return refuse(&self.path, &format!("{} bytes", self.length));
        }
        let end = self.bytes(self.length - 8, 8)?;
        if &end[4..] == b"PARE" {
            return refuse(&self.path, "an encrypted footer");
        }
        if &end[4..] != MAGIC || self.bytes(0, 4)? != MAGIC {
            return refuse(&self.path, "other first or last letters than PAR1");
        }
        let size = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
        if size > self.length - 12 || size > LARGEST_FOOTER {
            return refuse(&self.path, &format!("a footer of {size} bytes"));
        }
        let mut bytes = Bytes::new(self.bytes(self.length - 8 - size, size)?);
        Footer::read(&mut bytes).map_err(|(found, expected)| {
            DataError::file(&self.path, format!("{found} in the footer"), expected)
        })
    }

    /// Some bytes of the file, whose end was compared with the file's.
    fn bytes(&mut self, start: u64, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self
            .file
            .seek(SeekFrom::Start(start))
            .and_then(|_| self.file.by_ref().take(length).read_to_end(&mut bytes));
        read.map_err(|error| DataError::io("read", &self.path, error))?;
        if bytes.len() as u64 != length {
            let found = format!("{} bytes from byte {start}", bytes.len());
            return Err(DataError::file(&self.path, found, format!("{length}")));
        }
        Ok(bytes)
    }
}

/// A row group whose columns open when they are first asked for.
struct OpenGroup<'a> {
    stored: &'a mut Stored,
    columns: &'a [Column],
    group: &'a Group,
    /// From 1.
    number: usize,
    readers: Vec<Option<ColumnReader>>,
    row: u64,
    limits: Limits,
    /// What the fields of this row have cost.
    taken: u64,
    /// A fault of the file itself, which says more than the complaint about the row.
    failure: Option<DataError>,
}

impl OpenGroup<'_> {
    fn cell(&mut self, place: usize) -> Result<Option<Cell>> {
        let mut reader = match self.readers[place].take() {
            Some(reader) => reader,
            None => self.open(place)?,
        };
        let value = reader.at(self.row, self.limits.record_bytes);
        let value = value.map_err(|complaint| self.at(place, complaint))?;
        self.readers[place] = Some(reader);
        self.taken += value.bytes;
        Ok(value.cell)
    }

    fn open(&mut self, place: usize) -> Result<ColumnReader> {
        let leaf = self.columns[place].leaf.as_ref().map_err(|&what| {
            self.at(place, complaint(what, "a flat column or a list of values"))
        })?;
        let chunk = &self.group.chunks[leaf.index];
        let inside = chunk.start.checked_add(chunk.length).is_some_and(|e| e <= self.stored.length);
        if !inside {
            let found = format!("{} bytes from byte {}", chunk.length, chunk.start);
            let expected = format!("a place within the {} of the file", self.stored.length);
            return Err(self.at(place, complaint(found, expected)));
        }
        let bytes = self.stored.bytes(chunk.start, chunk.length)?;
        let reader: Read<ColumnReader> = ColumnReader::new(*leaf, chunk, bytes);
        reader.map_err(|complaint| self.at(place, complaint))
    }

    /// A column that was read to the last row must have no values beyond it.
    fn check_end(&self) -> Result<()> {
        for (place, reader) in self.readers.iter().enumerate() {
            if let Some(reader) = reader
                && reader.read() == self.group.rows
                && !reader.is_done()
            {
                let expected = format!("the {} of its rows", self.group.rows);
                return Err(self.at(place, complaint("more values", expected)));
            }
        }
        Ok(())
    }

    fn at(&self, place: usize, (found, expected): Complaint) -> DataError {
        let (name, number) = (&self.columns[place].name, self.number);
        let found = format!("{found} in column {name:?} of row group {number}");
        DataError::file(&self.stored.path, found, expected)
    }
}

impl Fields for OpenGroup<'_> {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Complaint> {
        let Some(place) = self.columns.iter().position(|column| column.name == name) else {
            return Ok(None);
        };
        self.cell(place).map_err(|failure| {
            let said = complaint(failure.to_string(), EXPECTED);
            self.failure = Some(failure);
            said
        })
    }

    fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|column| column.name.as_str()).collect()
    }
}
