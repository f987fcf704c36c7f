//! CSV and TSV with a header, streamed record by record.
//!
//! Quoting follows RFC 4180: a field in double quotes may hold separators, line ends and doubled
//! quotes. A quote that never closes would swallow the rest of a file, so a record is bounded and
//! the complaint names the line where it began.

use std::path::Path;

use super::Reader;
use super::columns::{Cell, Complaint, Fields};
use super::source::{Limits, Source};
use crate::{DataError, Result, TableBuilder};

/// Reads every record under the header.
pub(super) fn read(
    reader: &Reader,
    path: &Path,
    separator: char,
    builder: &mut TableBuilder,
) -> Result<()> {
    let mut records = Records::open(path, separator, reader.limits)?;
    let header = records.header.clone();
    while let Some(values) = records.next()? {
        let mut record = Named { header: &header, values };
        let place = (path, records.line);
        let row = reader.columns.row(builder.task(), &mut record);
        let row =
            row.map_err(|(found, expected)| DataError::row(path, records.line, found, expected))?;
        reader.push(row, place, builder)?;
    }
    Ok(())
}

struct Named<'a> {
    header: &'a [String],
    values: Vec<String>,
}

impl Fields for Named<'_> {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Complaint> {
        let column = self.header.iter().position(|column| column == name);
        Ok(column.map(|column| Cell::One(std::mem::take(&mut self.values[column]))))
    }

    fn names(&self) -> Vec<&str> {
        self.header.iter().map(String::as_str).collect()
    }
}

/// The records of a delimited file, one at a time.
pub(super) struct Records {
    source: Source,
    separator: char,
    /// The names in the first record.
    pub header: Vec<String>,
    /// The line on which the last record began.
    pub line: u64,
}

impl Records {
    /// Opens a file and reads its header.
    pub fn open(path: &Path, separator: char, limits: Limits) -> Result<Self> {
        let source = Source::open(path, limits)?;
        let mut records = Self { source, separator, header: Vec::new(), line: 0 };
        records.header = records
            .record()?
            .ok_or_else(|| DataError::file(path, "no lines", "a header with column names"))?;
        Ok(records)
    }

    /// The column of a name, in any case, or the complaint that there is none.
    pub fn column(&self, name: &str) -> Result<usize> {
        let found = self.header.iter().position(|column| column.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let columns = format!("columns {}", self.header.join(", "));
            DataError::row(self.source.file(), 1, columns, format!("a column {name}"))
        })
    }

    /// The next record, with as many fields as the header.
    pub fn next(&mut self) -> Result<Option<Vec<String>>> {
        let Some(record) = self.record()? else { return Ok(None) };
        if record.len() != self.header.len() {
            let found = format!("{} fields", record.len());
            let expected = format!("{} as in the header", self.header.len());
            return Err(DataError::row(self.source.file(), self.line, found, expected));
        }
        Ok(Some(record))
    }

    fn record(&mut self) -> Result<Option<Vec<String>>> {
        let mut parser = Parser::new(self.separator);
        let mut began = None;
        loop {
            let limit = self.source.record_bytes();
            let Some(line) = self.source.next_line()? else {
                let Some(line) = began else { return Ok(None) };
                let file = self.source.file();
                return Err(DataError::row(file, line, "a quote that never closes", "its end"));
            };
            if began.is_none() && line.is_empty() {
                continue;
            }
            let outcome = parser.line(line);
            let size = parser.size as u64;
            self.line = *began.get_or_insert(self.source.line());
            match outcome {
                Ok(true) => return Ok(Some(parser.fields)),
                Ok(false) if size > limit => {
                    return Err(DataError::TooLarge {
                        file: self.source.file().to_owned(),
                        line: self.line,
                        what: "one record",
                        limit,
                    });
                }
                Ok(false) => {}
                Err(found) => {
                    let (file, line) = (self.source.file(), self.source.line());
                    let expected = "a separator or a doubled quote after a quote";
                    return Err(DataError::row(file, line, found, expected));
                }
            }
        }
    }
}

/// One record on its way from lines to fields.
struct Parser {
    separator: char,
    fields: Vec<String>,
    field: String,
    quoted: bool,
    size: usize,
}

impl Parser {
    fn new(separator: char) -> Self {
        Self { separator, fields: Vec::new(), field: String::new(), quoted: false, size: 0 }
    }

    /// Takes in one line; true when the record is complete.
    fn line(&mut self, line: &str) -> Result<bool, String> {
        self.size += line.len() + 1;
        // Between fields; a line inside a quoted field continues it.
        let mut fresh = !self.quoted;
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            if self.quoted {
                if letter != '"' {
                    self.field.push(letter);
                } else if letters.next_if_eq(&'"').is_some() {
                    self.field.push('"');
                } else {
                    self.quoted = false;
                    if let Some(&after) = letters.peek()
                        && after != self.separator
                    {
                        return Err(format!("{after:?} after a closing quote"));
                    }
                }
            } else if letter == self.separator {
                self.fields.push(std::mem::take(&mut self.field));
                fresh = true;
                continue;
            } else if letter == '"' && fresh {
                self.quoted = true;
            } else {
                self.field.push(letter);
            }
            fresh = false;
        }
        if self.quoted {
            self.field.push('\n');
            return Ok(false);
        }
        self.fields.push(std::mem::take(&mut self.field));
        Ok(true)
    }
}
