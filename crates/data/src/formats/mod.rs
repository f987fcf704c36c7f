//! Files of the world outside, read into one table.
//!
//! A [`Reader`] pushes rows into a [`TableBuilder`], so training and test files, or one file a
//! hospital, add up to a single table with one numbering of labels. A row that cannot be read stops
//! the reading and names its file and line: silently skipped rows are how results go wrong.
//!
//! ```
//! use fedra_data::{Format, Reader, Split, TableBuilder, Task};
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("notes.jsonl");
//! # std::fs::write(&path, "{\"text\": \"cough\", \"label\": \"lung\"}\n").unwrap();
//! let mut builder = TableBuilder::new(Task::Classes);
//! let reader = Reader { split: Some(Split::Train), ..Reader::default() };
//! reader.read(Format::JsonLines, &path, &mut builder)?;
//! assert_eq!(builder.finish().examples.len(), 1);
//! # Ok::<(), fedra_data::DataError>(())
//! ```

mod batches;
mod columns;
mod conll;
mod delimited;
mod encoding;
mod i2b2;
mod json;
mod json_lines;
mod mimic;
mod nested;
mod parquet;
mod prompt;
mod record;
mod source;
mod survey;
mod texts;

pub use columns::{Columns, TextColumns};
pub use encoding::Encoding;
pub use mimic::{Mimic, Uncoded};
pub use prompt::{AnswerTemplates, ChoiceTemplates, Prompt, PromptTemplate};
pub use record::{Field, Record};
pub use source::Limits;
pub use survey::{ColumnSurvey, FoundFormat, Survey};
pub use texts::{TextFile, TextFormat, TextRow, TextSink, WordsAre};

use std::path::Path;

use serde::{Deserialize, Serialize};

use self::columns::NoRow;
use crate::{DataError, Result, Row, Split, TableBuilder, Task, Trimmed, Work};

/// How a source is written, by the name it has in an experiment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// One JSON object a line.
    #[serde(rename = "jsonl")]
    JsonLines,
    /// Comma-separated with a header, fields quoted as in RFC 4180.
    #[serde(rename = "csv")]
    Csv,
    /// The same with tabs.
    #[serde(rename = "tsv")]
    Tsv,
    /// Parquet, flat columns and lists.
    #[serde(rename = "parquet")]
    Parquet,
    /// One word a line with its tag last, blank lines between sentences.
    #[serde(rename = "conll")]
    Conll,
    /// The i2b2 2010 directory: `txt/*.txt` and `concept/*.con`.
    #[serde(rename = "i2b2-2010")]
    I2b2,
}

/// What a reader needs to know beyond the file itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// Which column means what, for formats that have columns.
    pub columns: Columns,
    /// How prompt and answers are written from columns, for tasks that are answered in text.
    pub prompt: Option<Prompt>,
    /// The split of rows that declare none.
    pub split: Option<Split>,
    /// The client of rows that declare none.
    pub client: Option<String>,
    /// What stands between the fields of CSV and TSV, where it is not their usual one.
    pub delimiter: Option<char>,
    /// How the letters of a text file are written.
    pub encoding: Encoding,
    /// What becomes of rows without a text or a label.
    pub missing: Missing,
    /// How much a file may become.
    pub limits: Limits,
}

/// What becomes of rows without a text or a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// The file is refused, with the first of them and how many there are.
    #[default]
    Refuse,
    /// They are left out and counted.
    Drop,
}

impl Missing {
    /// The choice of a name as experiment files write it.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "refuse" => Some(Self::Refuse),
            "drop" => Some(Self::Drop),
            _ => None,
        }
    }
}

impl Reader {
    /// Reads a file, or a directory where the format is one, into a table.
    pub fn read(&self, format: Format, path: &Path, builder: &mut TableBuilder) -> Result<()> {
        self.read_with(&Work::default(), (format, path), builder)
    }

    /// The same for somebody who follows it: he is told how many bytes of the file are read.
    pub fn read_with(
        &self,
        work: &Work<'_>,
        (format, path): (Format, &Path),
        builder: &mut TableBuilder,
    ) -> Result<()> {
        let before = builder.len();
        let left_out = builder.by_file(|builder| match format {
            Format::JsonLines => json_lines::read(self, (path, work), builder),
            Format::Csv => delimited::read(self, (path, work), ',', builder),
            Format::Tsv => delimited::read(self, (path, work), '\t', builder),
            Format::Conll => conll::read(self, (path, work), builder),
            Format::I2b2 => i2b2::read(self, path, builder),
            Format::Parquet => parquet::read(self, (path, work), builder),
        })?;
        let kept = (builder.len() - before) as u64;
        if left_out.rows == 0 {
            return Ok(());
        }
        match self.missing {
            Missing::Drop if kept > 0 => Ok(()),
            Missing::Drop | Missing::Refuse => Err(left_out.refused(kept + left_out.rows)),
        }
    }

    /// The row that a record means.
    fn row(&self, task: Task, fields: &mut dyn columns::Fields) -> Result<Row, NoRow> {
        match &self.prompt {
            Some(prompt) => self.columns.prompted_row(prompt, fields),
            None => self.columns.row(task, fields),
        }
    }

    /// Adds what the row leaves open, and the row to the table; one that lacks its text or label is
    /// counted instead.
    fn push(
        &self,
        row: Result<Row, NoRow>,
        (file, line): (&Path, u64),
        builder: &mut TableBuilder,
    ) -> Result<()> {
        let place = builder.place(file, line);
        let mut row = match row {
            Ok(row) => row,
            Err(NoRow::Wrong((found, expected))) => {
                return Err(DataError::row(file, line, found, expected));
            }
            Err(NoRow::Missing(complaint)) => {
                builder.leave_out(place, complaint);
                return Ok(());
            }
        };
        let trimmed = Trimmed::of(&mut row);
        row.split = row.split.or(self.split);
        row.client = row.client.or_else(|| self.client.clone());
        if let Some((found, expected)) = builder.missing(&row) {
            builder.leave_out(place, (found.to_owned(), expected.to_owned()));
            return Ok(());
        }
        if let Some((found, expected)) = builder.complaint(&row) {
            return Err(DataError::row(file, line, found, expected));
        }
        row.place = place;
        builder.report.trimmed.add(trimmed);
        builder.push(row)
    }
}
