//! What a file holds, before anybody says what it means: its columns, their values and lengths.
//!
//! A person who starts from nothing knows the file and not our names for its parts. So every column is
//! looked at through the readers that will later read it, which is what makes a proposal that runs at
//! once possible. Values are counted up to a bound, so that a column of long texts costs no memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::conversation::MESSAGES;
use super::encoding::{Encoding, Utf8Letters, guess};
use super::fields::{Cell, Fields as _};
use super::json::DEEPEST;
use super::reader::{Format, Reader};
use super::record::Record;
use super::records::{Event, RecordFile};
use super::text_format::TextFormat;
use super::{conll, delimited, other_file};
use crate::{Body, DataError, Labels, Result, TableBuilder, Task, Work};

/// Different values of a column that are counted one by one.
const MOST_VALUES: usize = 2000;
/// Letters of a value that are kept: labels and names of clients are shorter.
const LONGEST_VALUE: usize = 200;
/// Columns that are looked at; a record with more is data of another kind.
const MOST_COLUMNS: usize = 512;
/// Bytes by which a format is told.
const HEAD: u64 = 64 << 10;

/// A file as found.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Rows that were looked at.
    pub rows: usize,
    /// Whether these are all.
    pub is_whole: bool,
    /// The columns in the order of the first record that has them.
    pub columns: Vec<ColumnSurvey>,
    /// A name that two columns have.
    repeated: Option<String>,
}

/// A column as found.
#[derive(Clone, Debug, Default)]
pub struct ColumnSurvey {
    /// Its name.
    pub name: String,
    /// Rows in which it has a value.
    pub filled: usize,
    /// Rows in which that is a list.
    pub lists: usize,
    /// Rows in which it is a number.
    pub numbers: usize,
    /// Rows in which it is a list of messages.
    pub conversations: usize,
    /// Rows in which it is something that no task reads, such as an object.
    pub unreadable: usize,
    /// How often each value occurs; items one by one where they are lists.
    pub values: BTreeMap<String, usize>,
    /// Whether there were more values than are counted one by one, or longer ones.
    pub has_more: bool,
    /// Words of each value, summed over the items of lists.
    words: Vec<u32>,
}

impl Survey {
    /// Looks at the first rows of a file.
    pub fn of(format: Format, path: &Path, reader: &Reader, most: usize) -> Result<Self> {
        let mut survey = Self { is_whole: true, ..Self::default() };
        let format = match format {
            Format::JsonLines => TextFormat::JsonLines,
            Format::Csv => TextFormat::Csv,
            Format::Tsv => TextFormat::Tsv,
            Format::Parquet => TextFormat::Parquet,
            Format::Conll => {
                survey.take_words(reader, path)?;
                return Ok(survey);
            }
            Format::I2b2 => {
                return Err(DataError::file(path, "a folder of i2b2", "a file with columns"));
            }
            Format::Images | Format::Idx => {
                return Err(DataError::file(path, "images", "a file with columns"));
            }
        };
        // `None` ends it where enough is known.
        let file = RecordFile { path, format, settings: reader, with_fields: true };
        let looked = file.read(None, &mut |event| {
            let (record, line) = match event {
                Event::Columns(_) => return Ok(()),
                Event::Bad(error) => return Err(Some(error)),
                Event::Record(record, line, _) => (record, line),
            };
            survey.is_whole = survey.rows < most;
            if !survey.is_whole {
                return Err(None);
            }
            let record = record.flat(DEEPEST);
            survey.take(
                record.map_err(|(found, expected)| DataError::row(path, line, found, expected))?,
            );
            if survey.repeated.is_none() { Ok(()) } else { Err(None) }
        });
        if let Err(Some(error)) = looked {
            return Err(error);
        }
        if let Some(name) = &survey.repeated {
            let found = format!("two columns called {name:?}");
            return Err(DataError::file(path, found, "every name once: rename one of them"));
        }
        Ok(survey)
    }

    /// Adds what another file holds, whose columns have the same meaning.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.is_whole &= other.is_whole;
        for found in other.columns {
            let Some(column) = self.named(&found.name) else { continue };
            column.filled += found.filled;
            column.lists += found.lists;
            column.numbers += found.numbers;
            column.conversations += found.conversations;
            column.unreadable += found.unreadable;
            column.has_more |= found.has_more;
            column.words.extend(found.words);
            for (value, count) in found.values {
                column.count(&value, count);
            }
        }
    }

    /// Adds a row whose values are known, for sources that have no columns of their own.
    pub fn add(&mut self, cells: &[(&str, Option<&str>)]) {
        self.rows += 1;
        self.is_whole = true;
        for (name, value) in cells {
            if let Some(value) = value
                && let Some(column) = self.named(name)
            {
                column.take(&Cell::One((*value).to_owned()));
            }
        }
    }

    /// The column of a name.
    pub fn column(&self, name: &str) -> Option<&ColumnSurvey> {
        self.columns.iter().find(|column| column.name == name)
    }

    fn take(&mut self, mut record: Record) {
        self.rows += 1;
        let names: Vec<String> = record.names().into_iter().map(str::to_owned).collect();
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name.clone()) {
                // Blank columns at the end of a table have no name, and nobody asks for them.
                if !name.is_empty() {
                    self.repeated = Some(name);
                }
                continue;
            }
            let cell = record.take(&name);
            let is_conversation = MESSAGES.contains(&name.as_str())
                && record.messages(&name).is_ok_and(|messages| messages.is_some());
            let Some(column) = self.named(&name) else { continue };
            if is_conversation {
                column.conversations += 1;
                column.filled += 1;
                continue;
            }
            match cell {
                Ok(Some(cell)) => column.take(&cell),
                Ok(None) => {}
                Err(_) => column.unreadable += 1,
            }
        }
    }

    fn named(&mut self, name: &str) -> Option<&mut ColumnSurvey> {
        if let Some(place) = self.columns.iter().position(|column| column.name == name) {
            return self.columns.get_mut(place);
        }
        if self.columns.len() == MOST_COLUMNS {
            return None;
        }
        self.columns.push(ColumnSurvey { name: name.to_owned(), ..ColumnSurvey::default() });
        self.columns.last_mut()
    }

    /// `CoNLL` has words, tags and perhaps documents and clients, under the names that columns have.
    fn take_words(&mut self, reader: &Reader, path: &Path) -> Result<()> {
        let mut builder = TableBuilder::new(Task::Tokens);
        conll::read(reader, (path, &Work::default()), &mut builder)?;
        let table = builder.finish();
        self.rows = table.examples.len();
        for example in &table.examples {
            if let (Body::Words(words), Labels::PerWord(tags)) = (&example.body, &example.labels) {
                let tags = tags.iter().map(|tag| table.labels.name(*tag).to_owned()).collect();
                let cells = [("tokens", Cell::List(words.clone())), ("tags", Cell::List(tags))];
                for (name, cell) in cells {
                    if let Some(column) = self.named(name) {
                        column.take(&cell);
                    }
                }
            }
            let places = [("client", &example.client), ("document", &example.document)];
            for (name, value) in places {
                if let (Some(value), Some(column)) = (value, self.named(name)) {
                    column.take(&Cell::One(value.clone()));
                }
            }
        }
        self.columns.retain(|column| column.filled > 0);
        Ok(())
    }
}

impl ColumnSurvey {
    fn take(&mut self, cell: &Cell) {
        match cell {
            Cell::One(value) if value.trim().is_empty() => return,
            Cell::One(value) => {
                self.numbers += usize::from(value.trim().parse::<f64>().is_ok());
                self.count(value, 1);
                self.words.push(value.split_whitespace().count() as u32);
            }
            Cell::List(items) => {
                self.lists += 1;
                for item in items {
                    self.count(item, 1);
                }
                let words = items.iter().map(|item| item.split_whitespace().count().max(1));
                self.words.push(words.sum::<usize>() as u32);
            }
        }
        self.filled += 1;
    }

    /// Counts a value without the blanks around it, as rows are read.
    fn count(&mut self, value: &str, times: usize) {
        let value = value.trim();
        if let Some(count) = self.values.get_mut(value) {
            *count += times;
        } else if self.values.len() < MOST_VALUES && value.chars().count() <= LONGEST_VALUE {
            self.values.insert(value.to_owned(), times);
        } else {
            self.has_more = true;
        }
    }

    /// Words of a value, in the mean.
    pub fn mean_words(&self) -> f64 {
        let total: f64 = self.words.iter().map(|words| f64::from(*words)).sum();
        if self.words.is_empty() { 0.0 } else { total / self.words.len() as f64 }
    }

    /// Whether its values are lists.
    pub fn is_list(&self) -> bool {
        self.lists > 0
    }

    /// Different values, as far as they were counted.
    pub fn distinct(&self) -> usize {
        self.values.len()
    }
}

/// How a file is written, by its first bytes and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundFormat {
    /// The format.
    pub format: Format,
    /// What stands between fields, where it is not the format's usual character.
    pub delimiter: Option<char>,
    /// How letters are written, where it is not UTF-8.
    pub encoding: Option<Encoding>,
}

impl FoundFormat {
    /// Finds out. Where the letters decide nothing, the name does.
    pub fn of(path: &Path) -> Result<Self> {
        let plain = File::open(path).map_err(|error| DataError::io("open", path, error))?;
        let mut plain = BufReader::new(plain);
        let start = plain.fill_buf().map_err(|error| DataError::io("read", path, error))?;
        let mut head = Vec::new();
        let read = if start.starts_with(&[0x1f, 0x8b]) {
            MultiGzDecoder::new(plain).take(HEAD).read_to_end(&mut head)
        } else {
            plain.take(HEAD).read_to_end(&mut head)
        };
        read.map_err(|error| DataError::io("read", path, error))?;
        let found = |format| Self { format, delimiter: None, encoding: None };
        if head.starts_with(b"PAR1") {
            return Ok(found(Format::Parquet));
        }
        other_file::refuse(&head, path)?;
        let encoding = encoding_of(&head);
        let text = match encoding {
            None => String::from_utf8_lossy(&head).into_owned(),
            Some(encoding) => {
                let mut text = String::new();
                // What cannot be decoded is the reader's to refuse, with its line.
                let _rest = encoding.decoded(std::io::Cursor::new(head)).read_to_string(&mut text);
                text
            }
        };
        let text = text.trim_start_matches('\u{feff}');
        let Some(first) = text.lines().find(|line| !line.trim().is_empty()) else {
            return Err(DataError::file(path, "no lines", "rows"));
        };
        if other_file::is_json_array(text.as_bytes()) {
            return Err(other_file::json_array(path));
        }
        let declared = delimited::declared_delimiter(first).map(char::from);
        let format = if let Some(declared) = declared {
            separated_by(declared)
        } else if first.trim_start().starts_with('{') {
            found(Format::JsonLines)
        } else if is_conll(text, first) || is_called(path, ".conll") {
            found(Format::Conll)
        } else {
            delimited_as(path, first)?
        };
        Ok(Self { encoding, ..format })
    }
}

/// `None` for UTF-8, whose last letter may be cut, and which may be damaged: its reader says where.
fn encoding_of(head: &[u8]) -> Option<Encoding> {
    match guess(head) {
        Some(Encoding::Utf8) => None,
        Some(other) => Some(other),
        None => match std::str::from_utf8(head) {
            Ok(_) => None,
            Err(error) if error.error_len().is_none() => None,
            Err(_) if Utf8Letters::of(head).are_the_most() => None,
            Err(_) => Some(Encoding::Windows1252),
        },
    }
}

/// Whether a name ends so, perhaps with gzip's ending behind it.
fn is_called(path: &Path, end: &str) -> bool {
    path.to_string_lossy().to_lowercase().trim_end_matches(".gz").ends_with(end)
}

/// A blank line between sentences, lines of few columns, and a last column of tags.
fn is_conll(text: &str, first: &str) -> bool {
    let is_comment = |line: &str| line.starts_with("# ") || line.starts_with("-DOCSTART-");
    if is_comment(first) {
        return true;
    }
    let lines: Vec<&str> = text.lines().collect();
    // The last line may be cut.
    let lines = &lines[..lines.len().saturating_sub(1).max(1)];
    let words = lines.iter().filter(|line| !line.trim().is_empty() && !is_comment(line));
    let is_tag = |tag: &str| {
        tag == "O" || ["B-", "I-", "E-", "S-"].iter().any(|start| tag.starts_with(start))
    };
    let mut all = words.map(|line| line.split_whitespace().next_back().is_some_and(is_tag));
    let has_gaps = lines.iter().any(|line| line.trim().is_empty());
    all.next() == Some(true) && all.all(|it| it) && (has_gaps || lines.len() < 3)
}

/// The delimiter that the header has most of.
fn delimited_as(path: &Path, header: &str) -> Result<FoundFormat> {
    let count = |delimiter: char| header.matches(delimiter).count();
    let most = ['\t', ',', ';', '|'].into_iter().max_by_key(|&delimiter| {
        // Of equals the first counts.
        (count(delimiter), usize::from(delimiter == ','))
    });
    match most.filter(|&delimiter| count(delimiter) > 0) {
        Some(delimiter) => Ok(separated_by(delimiter)),
        None if is_called(path, ".csv") => Ok(separated_by(',')),
        None if is_called(path, ".tsv") => Ok(separated_by('\t')),
        None => {
            let expected = "CSV or TSV with a header, JSON lines, Parquet or CoNLL";
            Err(DataError::file(path, "lines without columns", expected))
        }
    }
}

/// A table with this delimiter, by the format whose usual one it is.
fn separated_by(delimiter: char) -> FoundFormat {
    let (format, delimiter) = match delimiter {
        '\t' => (Format::Tsv, None),
        ',' => (Format::Csv, None),
        other => (Format::Csv, Some(other)),
    };
    FoundFormat { format, delimiter, encoding: None }
}
