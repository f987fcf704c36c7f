//! Parquet: tables stored column by column, decoded by the `parquet` crate.
//!
//! ```text
//! footer -> columns -> row group -> column chunk -> pages -> levels and values -> one row's cell
//! ```
//!
//! Read: flat columns and lists of one level (in the standard and both older shapes) of text,
//! whole and floating numbers and truth values, structures of these, and lists of such structures, which
//! messages are; no compression, Snappy, gzip and Zstandard. A column
//! that is not asked for is never opened, so what else a file holds does not matter. Checksums are
//! not checked.
//!
//! A file is never believed, and neither is the crate's belief in it: the places of chunks are
//! compared with the file, pages are opened here within bounds ([`codec`]), the counts that the crate
//! takes memory for are compared with the bytes there are ([`footer`], [`pages`], [`delta`]), and a
//! panic inside it is an error. Rows are counted from 1 and stand in the place of lines in
//! errors.

mod codec;
mod column;
mod delta;
mod footer;
mod guard;
mod pages;
mod schema;

use std::fs::File;
use std::io::{Read as _, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parquet::column::reader::get_column_reader;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use self::column::{CellValue, Cells};
use self::guard::{EXPECTED, guarded, said};
use self::pages::Pages;
use self::schema::Column;
use super::class_names::TableFeatures;
use super::conversation;
use super::fields::{Cell, Fields};
use super::reader::{Limits, Reader};
use crate::error::Mismatch;
use crate::work::CHUNK;
use crate::{DataError, Message, Result, Stage, TableBuilder, Work};

/// A footer grows with columns times row groups; this is twenty thousand of them.
const LARGEST_FOOTER: u64 = 16 << 20;
/// Before the footer and after it.
const MAGIC: &[u8; 4] = b"PAR1";

/// Reads every row of a file.
pub(super) fn read(
    reader: &Reader,
    (path, work): (&Path, &Work<'_>),
    builder: &mut TableBuilder,
) -> Result<()> {
    let total = std::fs::metadata(path).map_or(0, |file| file.len());
    each(path, reader.limits, &mut |line, open| {
        if line.is_multiple_of(CHUNK as u64) {
            work.tell(Stage::Reading, open.read_of(total, line), total)?;
        }
        let record = reader.row(builder.task, open);
        open.check(line, record.is_ok())?;
        reader.push(record, (path, line), builder)
    })
}

/// Hands over every row of a file, with its number from 1.
pub(super) fn each<E: From<DataError>>(
    path: &Path,
    limits: Limits,
    row: &mut dyn FnMut(u64, &mut OpenGroup<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut stored = Stored::open(path)?;
    let footer = stored.footer()?;
    let mut columns = schema::columns(footer.file_metadata().schema());
    let entries = footer.file_metadata().key_value_metadata().into_iter().flatten();
    let mut entries = entries.filter(|entry| entry.key == TableFeatures::KEY);
    let entry = entries.next().and_then(|entry| entry.value.as_deref());
    let features = TableFeatures::parse(entry.unwrap_or_default());
    for column in columns.iter_mut().filter(|column| !column.is_inner) {
        column.classes = features.classes(&column.name);
    }
    let all_rows = footer.row_groups().iter().map(RowGroupMetaData::num_rows);
    let all_rows =
        all_rows.filter_map(|rows| u64::try_from(rows).ok()).fold(0, u64::saturating_add);
    let mut rows_read = 0;
    let mut expanded = 0;
    for (number, group) in footer.row_groups().iter().enumerate() {
        let rows = u64::try_from(group.num_rows()).map_err(|_| {
            let found = format!("{} rows in row group {}", group.num_rows(), number + 1);
            DataError::file(path, found, "at least 0")
        })?;
        let mut open = OpenGroup {
            stored: &mut stored,
            columns: &columns,
            group,
            rows,
            all_rows,
            number: number + 1,
            cells: columns.iter().map(|_| None).collect(),
            row: 0,
            limits,
            taken: 0,
            expanded,
            failure: None,
        };
        for place in 0..rows {
            rows_read += 1;
            (open.row, open.taken) = (place, 0);
            row(rows_read, &mut open)?;
        }
        open.check_end()?;
        expanded = open.expanded;
    }
    Ok(())
}

/// The names of the columns that can be read, whether or not there is a row.
pub(super) fn readable_columns(path: &Path) -> Result<Vec<String>> {
    let footer = Stored::open(path)?.footer()?;
    let columns = schema::columns(footer.file_metadata().schema());
    let readable = columns.into_iter().filter(|column| column.leaf.is_ok() && !column.is_inner);
    Ok(readable.map(|column| column.name).collect())
}

/// The names of the fields of structures that can be read, but for those of messages and images.
pub(super) fn structure_fields(path: &Path) -> Result<Vec<String>> {
    let mut held = message_columns(path)?;
    held.extend(image_columns(path)?);
    let footer = Stored::open(path)?.footer()?;
    let columns = schema::columns(footer.file_metadata().schema());
    let is_held = |name: &str| {
        let top = name.split_once('.').map_or(name, |(top, _)| top);
        held.iter().any(|held| held == top)
    };
    let is_field =
        |column: &Column| column.is_inner && column.leaf.is_ok_and(|leaf| !leaf.is_bytes);
    let fields = columns.into_iter().filter(is_field).map(|column| column.name);
    Ok(fields.filter(|name| !is_held(name)).collect())
}

/// The names of the columns that hold lists of messages.
pub(super) fn message_columns(path: &Path) -> Result<Vec<String>> {
    let footer = Stored::open(path)?.footer()?;
    let columns = schema::columns(footer.file_metadata().schema());
    let is_there = |name: String| columns.iter().any(|column| column.name == name);
    let tops = columns.iter().filter(|column| !column.is_inner).map(|column| &column.name);
    let holds = |name: &&String| {
        let both = |[role, content]: [&str; 2]| {
            is_there(format!("{name}.{role}")) && is_there(format!("{name}.{content}"))
        };
        both(["role", "content"]) || both(["from", "value"])
    };
    Ok(tops.filter(holds).cloned().collect())
}

/// The names of the columns that hold encoded images: bytes that are no text, or a structure that has
/// such under `bytes`, as Hugging Face datasets write it.
pub fn image_columns(path: &Path) -> Result<Vec<String>> {
    let footer = Stored::open(path)?.footer()?;
    let columns = schema::columns(footer.file_metadata().schema());
    let bytes = columns.into_iter().filter(|column| column.leaf.is_ok_and(|leaf| leaf.is_bytes));
    let name = |column: Column| {
        if !column.is_inner {
            return Some(column.name);
        }
        column.name.strip_suffix(".bytes").map(str::to_owned)
    };
    Ok(bytes.filter_map(name).collect())
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

    fn footer(&mut self) -> Result<ParquetMetaData> {
        let refuse = |path: &Path, found: &str| Err(DataError::file(path, found, EXPECTED));
        if self.length < 12 {
            return refuse(&self.path, &format!("{} bytes", self.length));
        }
        let end = self.bytes(self.length - 8, 8)?;
        if &end[4..] == b"PARE" {
            return refuse(&self.path, "an encrypted footer");
        }
        if &end[4..] != MAGIC || self.bytes(0, 4)? != MAGIC {
            return refuse(&self.path, "other first or last bytes than PAR1");
        }
        let size = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
        if size > self.length - 12 || size > LARGEST_FOOTER {
            return refuse(&self.path, &format!("a footer of {size} bytes"));
        }
        let bytes = self.bytes(self.length - 8 - size, size)?;
        let read = guarded(|| Ok(footer::read(&bytes))).map_err(said);
        read.and_then(|read| read)
            .map_err(|(found, expected)| DataError::file(&self.path, found, expected))
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
pub(super) struct OpenGroup<'a> {
    stored: &'a mut Stored,
    columns: &'a [Column],
    group: &'a RowGroupMetaData,
    rows: u64,
    /// Of all groups.
    all_rows: u64,
    /// From 1.
    number: usize,
    cells: Vec<Option<Cells>>,
    row: u64,
    limits: Limits,
    /// What the fields of this row have cost.
    taken: u64,
    /// What the fields of all rows so far have cost.
    expanded: u64,
    /// A fault of the file itself, which says more than the error about the row.
    failure: Option<DataError>,
}

impl OpenGroup<'_> {
    /// The share of so many bytes that the rows before one make, about.
    fn read_of(&self, total: u64, line: u64) -> u64 {
        let share = u128::from(total) * u128::from(line) / u128::from(self.all_rows.max(1));
        u64::try_from(share).map_or(total, |share| share.min(total))
    }

    /// Refuses a file that is damaged or whose rows grow too large, once a row's fields were taken; a
    /// row that could not be made of them counts for nothing.
    pub fn check(&mut self, line: u64, is_whole: bool) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if !is_whole {
            return Ok(());
        }
        self.expanded = self.expanded.saturating_add(self.taken);
        for (taken, what, limit) in [
            (self.taken, "one record", self.limits.record_bytes),
            (self.expanded, "expanded data", self.limits.expanded_bytes),
        ] {
            if taken > limit {
                let file = self.stored.path.clone();
                return Err(DataError::TooLarge { file, line, what, limit });
            }
        }
        Ok(())
    }

    fn cell(&mut self, place: usize) -> Result<Option<CellValue>> {
        let mut cells = match self.cells[place].take() {
            Some(cells) => cells,
            None => self.open(place)?,
        };
        let taken = cells.at(self.row, self.limits.record_bytes);
        let (cell, bytes) = taken.map_err(|mismatch| self.at(place, mismatch))?;
        self.cells[place] = Some(cells);
        self.taken += bytes;
        Ok(cell)
    }

    fn open(&mut self, place: usize) -> Result<Cells> {
        let leaf = self.columns[place].leaf.map_err(|what| {
            let expected = "text, numbers, truth values or lists of them";
            self.at(place, (what.to_owned(), expected.to_owned()))
        })?;
        let chunk = self.group.column(leaf.index);
        if chunk.file_path().is_some() {
            let found = "a column in another file".to_owned();
            return Err(self.at(place, (found, "one in the file itself".to_owned())));
        }
        // Some writers put 0 where there is no dictionary; the file's first four bytes are magic.
        let dictionary = chunk.dictionary_page_offset().filter(|&at| at > 0);
        let start =
            dictionary.map_or(chunk.data_page_offset(), |at| at.min(chunk.data_page_offset()));
        let range = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
        let range = range.filter(|(start, length)| {
            start.checked_add(*length).is_some_and(|end| end <= self.stored.length)
        });
        let Some((start, length)) = range else {
            let found = format!("{} bytes from byte {start}", chunk.compressed_size());
            let expected = format!("a place within the {} of the file", self.stored.length);
            return Err(self.at(place, (found, expected)));
        };
        let bytes = Bytes::from(self.stored.bytes(start, length)?);
        let opened = guarded(|| {
            let pages = Pages::new(bytes, chunk, usize::try_from(self.rows)?)?;
            Ok(get_column_reader(chunk.column_descr_ptr(), Box::new(pages)))
        });
        let cells = opened.map_err(said).and_then(|reader| Cells::new(reader, leaf, self.rows));
        cells.map_err(|mismatch| self.at(place, mismatch))
    }

    /// A column that was read to the last row must have no values beyond it.
    fn check_end(&mut self) -> Result<()> {
        for place in 0..self.cells.len() {
            if let Some(mut cells) = self.cells[place].take() {
                cells.check_end().map_err(|mismatch| self.at(place, mismatch))?;
            }
        }
        Ok(())
    }

    fn at(&self, place: usize, (found, expected): Mismatch) -> DataError {
        let (name, number) = (&self.columns[place].name, self.number);
        let found = format!("{found} in column {name:?} of row group {number}");
        DataError::file(&self.stored.path, found, expected)
    }
}

impl OpenGroup<'_> {
    /// The value of a column in this row, and which column that is.
    fn value(&mut self, name: &str) -> Result<Option<(usize, CellValue)>, Mismatch> {
        let Some(place) = self.columns.iter().position(|column| column.name == name) else {
            return Ok(None);
        };
        match self.cell(place) {
            Ok(cell) => Ok(cell.map(|cell| (place, cell))),
            Err(failure) => Err(self.failed(failure)),
        }
    }

    fn failed(&mut self, failure: DataError) -> Mismatch {
        let said = (failure.to_string(), EXPECTED.to_owned());
        self.failure = Some(failure);
        said
    }
}

impl Fields for OpenGroup<'_> {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Mismatch> {
        match self.value(name)? {
            None => Ok(None),
            Some((place, CellValue::Text(cell))) => match &self.columns[place].classes {
                None => Ok(Some(cell)),
                Some(classes) => classes.of(cell),
            },
            Some((place, CellValue::Bytes(_))) => {
                let mismatch = ("bytes that are not UTF-8".to_owned(), "UTF-8 text".to_owned());
                let failure = self.at(place, mismatch);
                Err(self.failed(failure))
            }
        }
    }

    fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, Mismatch> {
        // A structure is no value, but may have one inside.
        let is_read = |column: &Column| column.name == name && column.leaf.is_ok();
        if !self.columns.iter().any(is_read) {
            return Ok(None);
        }
        Ok(match self.value(name)? {
            Some((_, CellValue::Bytes(bytes))) => Some(bytes),
            Some((_, CellValue::Text(_))) | None => None,
        })
    }

    fn messages(&mut self, name: &str) -> Result<Option<Vec<Message>>, Mismatch> {
        for (role, content) in [("role", "content"), ("from", "value")] {
            let [role, content] = [role, content].map(|field| format!("{name}.{field}"));
            let lists = (self.take(&role)?, self.take(&content)?);
            if let (Some(Cell::List(roles)), Some(Cell::List(contents))) = lists {
                return conversation::of_lists(roles, contents).map(Some);
            }
        }
        // A column of text may hold JSON, as in other tables; a list of messages that is null has no value.
        let is_text = |column: &Column| column.name == name && column.leaf.is_ok();
        if !self.columns.iter().any(is_text) {
            return Ok(None);
        }
        match self.take(name)? {
            Some(Cell::One(text)) if !text.trim().is_empty() => {
                conversation::of_json(&text).map(Some)
            }
            Some(Cell::List(_)) => {
                Err(("a list of texts".to_owned(), "a list of messages".to_owned()))
            }
            Some(Cell::One(_)) | None => Ok(None),
        }
    }

    fn names(&self) -> Vec<&str> {
        let columns = self.columns.iter().filter(|column| !column.is_inner);
        columns.map(|column| column.name.as_str()).collect()
    }

    fn are_columns(&self) -> bool {
        true
    }
}
