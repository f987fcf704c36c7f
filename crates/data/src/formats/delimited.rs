//! CSV, TSV and other delimited tables with a header, record by record.
//!
//! Fields are read by the `csv` crate, which follows RFC 4180 and forgives what breaks it. A missing
//! quote would then join rows without a word, so quotes are checked first: one that closes is
//! followed by a delimiter or the end of the line, one that never closes is an error about the
//! line where its record began, and a record is bounded.
//!
//! A first line such as `sep=;`, which spreadsheets write, is no record: it says what the delimiter is,
//! and is believed before anybody else.

use std::io::{Cursor, Read as _};
use std::path::Path;

use super::batches::{self, Batch};
use super::conversation;
use super::fields::{Cell, Fields, NoRow};
use super::reader::Reader;
use super::source::Source;
use crate::error::{Mismatch, counted};
use crate::reading_report::trim;
use crate::{Advice, DataError, Message, Result, TableBuilder, Trimmed, Work};

/// Delimiters that a header with a single name may stand for.
const LIKELY: [char; 4] = [',', ';', '\t', '|'];

/// Reads every record under the header.
pub(super) fn read(
    reader: &Reader,
    (path, work): (&Path, &Work<'_>),
    usual: char,
    builder: &mut TableBuilder,
) -> Result<()> {
    let mut records = Records::open(path, reader.delimiter.unwrap_or(usual), reader)?;
    let (header, advice) = (records.header.clone(), records.advice());
    builder.trimmed(Trimmed { columns: records.trimmed, ..Trimmed::default() });
    let (delimiter, task) = (records.delimiter, builder.task);
    batches::read(
        reader,
        (path, work),
        builder,
        |batch| {
            let Some(line) = records.raw(&mut batch.text)? else { return Ok(None) };
            batch.end_record(line);
            Ok(Some(records.source.taken()))
        },
        |batch: &Batch| {
            let mut parser = settings(delimiter).from_reader(FIRST.chain(batch.text.as_slice()));
            let mut record = csv::StringRecord::new();
            let _first = parser.read_record(&mut record);
            let row = |&(line, end): &(u64, usize)| {
                let read =
                    parser.read_record(&mut record).map(drop).map_err(|error| error.to_string());
                let read =
                    read.and_then(|()| whole(parser.position().byte(), (FIRST.len() + end) as u64));
                let row = match read {
                    Err(found) => Err(NoRow::from((found, RECORD.to_owned()))),
                    Ok(()) if record.len() != header.len() => {
                        let mismatch = other_length(record.len(), header.len());
                        Err(NoRow::from(mismatch).advising(advice.as_ref()))
                    }
                    Ok(()) => {
                        let row = reader.row(task, &mut Named { header: &header, values: &record });
                        row.map_err(|no_row| no_row.advising(advice.as_ref()))
                    }
                };
                (line, row)
            };
            batch.ends.iter().map(row).collect()
        },
    )
}

/// Read before a batch: a parser takes a byte order mark for none of the text where it begins, and a batch
/// begins anywhere.
const FIRST: &[u8] = b"x\n";

/// What a record should be.
const RECORD: &str = "a record";

/// A record with another number of fields than the header.
fn other_length(found: usize, expected: usize) -> Mismatch {
    (counted(found as u64, "field"), format!("{expected} as in the header"))
}

/// Refuses a record that the parser ended before its last byte: it takes any carriage return for a line
/// end, and what is behind it would be taken for another record.
fn whole(read: u64, end: u64) -> Result<(), String> {
    if read == end { Ok(()) } else { Err("a carriage return within a line".to_owned()) }
}

struct Named<'a> {
    header: &'a [String],
    values: &'a csv::StringRecord,
}

impl Fields for Named<'_> {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Mismatch> {
        let named = name.trim();
        let mut columns = self.header.iter().enumerate().filter(|(_, column)| *column == named);
        let column = columns.next().map(|(place, _)| place);
        if columns.next().is_some() {
            let found = format!("two columns called {name:?}");
            return Err((found, "one of that name".to_owned()));
        }
        Ok(column.map(|column| Cell::One(self.values[column].to_owned())))
    }

    fn bytes(&mut self, _name: &str) -> Result<Option<Vec<u8>>, Mismatch> {
        Ok(None)
    }

    fn messages(&mut self, name: &str) -> Result<Option<Vec<Message>>, Mismatch> {
        match self.take(name)? {
            Some(Cell::One(text)) if !text.trim().is_empty() => {
                conversation::of_json(&text).map(Some)
            }
            Some(Cell::One(_) | Cell::List(_)) | None => Ok(None),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.header.iter().map(String::as_str).collect()
    }

    fn are_columns(&self) -> bool {
        true
    }
}

/// The records of a delimited file, one at a time.
pub(super) struct Records {
    source: Source,
    delimiter: u8,
    /// Fed with one whole record at a time.
    parser: csv::Reader<Cursor<Vec<u8>>>,
    /// The names in the first record, without blanks around them.
    pub header: Vec<String>,
    /// How many of them had such blanks.
    trimmed: u64,
    /// The line on which the last record began.
    pub line: u64,
}

impl Records {
    /// Opens a file and reads its header.
    pub fn open(path: &Path, delimiter: char, settings: &Reader) -> Result<Self> {
        Self::of(Source::open(path, settings)?, delimiter)
    }

    /// The records of an open text, of which the header is read.
    pub fn of(source: Source, delimiter: char) -> Result<Self> {
        let delimiter =
            u8::try_from(delimiter).ok().filter(|byte| is_delimiter(*byte)).ok_or_else(|| {
                let expected = "one ASCII character that is no quote and no line end";
                DataError::setting("delimiter", &format!("{delimiter:?}"), expected)
            })?;
        let (source, parser) = (source.of_records()?, parser(delimiter));
        let (header, trimmed) = (Vec::new(), 0);
        let mut records = Self { source, delimiter, parser, header, trimmed, line: 0 };
        records.header = records.record()?.ok_or_else(|| {
            DataError::file(&records.source.file, "no lines", "a header with column names")
        })?;
        records.trimmed = records.header.iter_mut().map(trim).sum();
        Ok(records)
    }

    /// The column of a name, in any case, or the error that there is none.
    pub fn column(&self, name: &str) -> Result<usize> {
        let found = self.header.iter().position(|column| column.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let columns = format!("columns {}", self.header.join(", "));
            DataError::row(&self.source.file, 1, columns, format!("a column {name}"))
        })
    }

    /// The next record, with as many fields as the header.
    pub fn next(&mut self) -> Result<Option<Vec<String>>> {
        let Some(record) = self.record()? else { return Ok(None) };
        if record.len() != self.header.len() {
            let (found, expected) = other_length(record.len(), self.header.len());
            let error = DataError::row(&self.source.file, self.line, found, expected);
            return Err(error.advising(self.advice()));
        }
        Ok(Some(record))
    }

    /// What an error adds where the header seems to be cut at the wrong character.
    pub fn advice(&self) -> Option<Advice> {
        let [only] = self.header.as_slice() else { return None };
        let likely = LIKELY.into_iter().find(|&other| only.contains(other))?;
        Some(Advice::new("data.delimiter", Some(likely.to_string()), "would cut it"))
    }

    fn record(&mut self) -> Result<Option<Vec<String>>> {
        let mut raw = Vec::new();
        match self.raw(&mut raw)? {
            Some(_) => self.parse(raw).map(Some),
            None => Ok(None),
        }
    }

    /// Adds the bytes of the next record, and a line end behind it; the line on which it began.
    fn raw(&mut self, raw: &mut Vec<u8>) -> Result<Option<u64>> {
        let mut quotes = Quotes { delimiter: self.delimiter, is_open: false };
        let (start, mut began) = (raw.len(), None);
        loop {
            let limit = self.source.limits.record_bytes;
            let Some(line) = self.source.next_line()? else {
                let Some(line) = began else { return Ok(None) };
                let file = &self.source.file;
                return Err(DataError::row(file, line, "a quote that never closes", "its end"));
            };
            if began.is_none() && line.is_empty() {
                continue;
            }
            // Before the first record, and after no other line.
            if let (0, Some(declared)) = (self.line, declared_delimiter(line)) {
                (self.delimiter, quotes.delimiter) = (declared, declared);
                (self.parser, self.line) = (parser(declared), 1);
                continue;
            }
            let checked = quotes.check(line);
            raw.extend_from_slice(line.as_bytes());
            // Inside a quoted cell a line's end is part of the cell.
            let end = if quotes.is_open { self.source.line_end() } else { "\n" };
            raw.extend_from_slice(end.as_bytes());
            self.line = *began.get_or_insert(self.source.line);
            if let Err(found) = checked {
                let (file, line) = (&self.source.file, self.source.line);
                let expected = "a delimiter or a doubled quote after a quote";
                return Err(DataError::row(file, line, found, expected));
            }
            if !quotes.is_open {
                return Ok(Some(self.line));
            }
            if (raw.len() - start) as u64 > limit {
                let (file, line) = (self.source.file.clone(), self.line);
                return Err(DataError::TooLarge { file, line, what: "one record", limit });
            }
        }
    }

    /// The fields of a record that ends where its bytes end.
    fn parse(&mut self, raw: Vec<u8>) -> Result<Vec<String>> {
        let end = self.parser.position().byte() + raw.len() as u64;
        *self.parser.get_mut() = Cursor::new(raw);
        let mut record = csv::StringRecord::new();
        let read = self.parser.read_record(&mut record).map_err(|error| error.to_string());
        let read = read.and_then(|_| whole(self.parser.position().byte(), end));
        if let Err(found) = read {
            // What is left in the parser is no part of the next record.
            self.parser = parser(self.delimiter);
            return Err(DataError::row(&self.source.file, self.line, found, RECORD));
        }
        Ok(record.iter().map(str::to_owned).collect())
    }
}

/// What a first line such as `sep=;` declares: spreadsheets write it for each other.
pub(super) fn declared_delimiter(line: &str) -> Option<u8> {
    let (start, rest) = line.split_at_checked(4)?;
    let mut letters = rest.bytes();
    match (start.eq_ignore_ascii_case("sep="), letters.next(), letters.next()) {
        (true, Some(byte), None) => is_delimiter(byte).then_some(byte),
        (_, _, _) => None,
    }
}

fn is_delimiter(byte: u8) -> bool {
    byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r' | 0)
}

/// A parser that is fed with one record at a time.
fn parser(delimiter: u8) -> csv::Reader<Cursor<Vec<u8>>> {
    settings(delimiter).from_reader(Cursor::default())
}

fn settings(delimiter: u8) -> csv::ReaderBuilder {
    let mut settings = csv::ReaderBuilder::new();
    settings.has_headers(false).flexible(true).delimiter(delimiter);
    settings
}

/// Follows quotes from line to line.
struct Quotes {
    delimiter: u8,
    /// Whether a quoted field continues in the next line.
    is_open: bool,
}

impl Quotes {
    /// Takes in one line; what stands behind a closing quote, if it may not.
    fn check(&mut self, line: &str) -> Result<(), String> {
        let bytes = line.as_bytes();
        let mut at = 0;
        loop {
            // At the start of a field, or inside a quoted one that began above.
            if !self.is_open && bytes.get(at) == Some(&b'"') {
                self.is_open = true;
                at += 1;
            }
            while self.is_open {
                let Some(quote) = bytes[at..].iter().position(|&byte| byte == b'"') else {
                    return Ok(());
                };
                at += quote + 1;
                match bytes.get(at) {
                    Some(b'"') => at += 1,
                    Some(&after) if after != self.delimiter => {
                        let after = line[at..].chars().next().unwrap_or_default();
                        return Err(format!("{after:?} after a closing quote"));
                    }
                    Some(_) | None => self.is_open = false,
                }
            }
            let Some(next) = bytes[at..].iter().position(|&byte| byte == self.delimiter) else {
                return Ok(());
            };
            at += next + 1;
        }
    }
}
