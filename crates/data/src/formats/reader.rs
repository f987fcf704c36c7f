//! How rows of a file become rows of a table, whichever format it has.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::columns::Columns;
use super::encoding::Encoding;
use super::fields::{Fields, NoRow};
use super::prompt::Prompt;
use crate::words::words;
use crate::{DataError, Result, Row, Split, TableBuilder, Task, Trimmed};

words! {
    /// How a source is written, by the name it has in an experiment file.
    pub enum Format {
        /// One JSON object a line.
        JsonLines = "jsonl",
        /// Comma-separated with a header, fields quoted as in RFC 4180.
        Csv = "csv",
        /// The same with tabs.
        Tsv = "tsv",
        /// Parquet, flat columns and lists.
        Parquet = "parquet",
        /// One word a line with its tag last, blank lines between sentences.
        Conll = "conll",
        /// The i2b2 2010 directory: `txt/*.txt` and `concept/*.con`.
        I2b2 = "i2b2-2010",
        /// A folder of PNG and JPEG files, one folder a class.
        Images = "images",
        /// Files of MNIST and its kin: images and their labels.
        Idx = "idx",
    }
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
    /// Character between the fields of CSV and TSV, where it is not their usual one.
    pub delimiter: Option<char>,
    /// How the letters of a text file are written.
    pub encoding: Encoding,
    /// What becomes of rows without a text or a label.
    pub missing: Missing,
    /// Where paths of images start; at the table that names them unless given.
    pub images: Option<PathBuf>,
    /// How much a file may become.
    pub limits: Limits,
}

words! {
    /// What becomes of rows without a text or a label.
    #[derive(Default)]
    pub enum Missing {
        /// The file is refused, with the first of them and how many there are.
        #[default]
        Refuse = "refuse",
        /// They are left out and counted.
        Drop = "drop",
    }
}

/// How much a file may become while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a whole file after decompression.
    pub expanded_bytes: u64,
    /// Bytes of one line, or of one record that spans lines.
    pub record_bytes: u64,
}

impl Default for Limits {
    /// 8 GiB a file, which holds the 4 GB of MIMIC-III's notes, and 16 MiB a record.
    fn default() -> Self {
        Self { expanded_bytes: 8 << 30, record_bytes: 16 << 20 }
    }
}

impl Reader {
    /// The row that a record means.
    pub(super) fn row(&self, task: Task, fields: &mut dyn Fields) -> Result<Row, NoRow> {
        match (&self.prompt, &self.columns.image) {
            (Some(prompt), _) => self.columns.prompted_row(prompt, fields),
            (None, None) if task == Task::Chat => self.columns.conversation_row(fields),
            (None, None) if task == Task::Preference => self.columns.preference_row(fields),
            (None, Some(column)) => {
                let body = self.image(column, fields)?;
                self.columns.labelled_row(body, task, fields)
            }
            (None, None) => self.columns.row(task, fields),
        }
    }

    /// Adds what the row leaves open, and the row to the table; one that lacks its text or label is
    /// counted instead.
    pub(super) fn push(
        &self,
        row: Result<Row, NoRow>,
        (file, line): (&Path, u64),
        builder: &mut TableBuilder,
    ) -> Result<()> {
        let place = builder.place(file, line);
        let mut row = match row {
            Ok(row) => row,
            Err(NoRow { mismatch, is_missing: true, advice }) => {
                builder.leave_out(place, mismatch, advice);
                return Ok(());
            }
            Err(NoRow { mismatch: (found, expected), is_missing: false, advice }) => {
                return Err(DataError::row(file, line, found, expected).advising(advice));
            }
        };
        let trimmed = Trimmed::of(&mut row);
        row.split = row.split.or(self.split);
        row.client = row.client.or_else(|| self.client.clone());
        if let Some((found, expected)) = builder.missing(&row) {
            builder.leave_out(place, (found.to_owned(), expected.to_owned()), None);
            return Ok(());
        }
        if let Some((found, expected)) = builder.mismatch(&row) {
            return Err(DataError::row(file, line, found, expected));
        }
        row.place = place;
        builder.trimmed(trimmed);
        builder.push(row)
    }
}
