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
mod class_names;
mod columns;
mod conll;
mod conversation;
mod delimited;
mod encoding;
mod fields;
mod i2b2;
mod idx;
mod image_column;
mod image_folder;
mod json;
mod json_lines;
mod mimic;
mod nested;
mod options;
mod other_file;
mod parquet;
mod prompt;
mod reader;
mod record;
mod records;
mod source;
mod survey;
mod text_format;
mod texts;

pub use class_names::{ClassNames, TableFeatures};
pub use columns::{Columns, TextColumns};
pub use conversation::{PAIRS as CONVERSATION_PAIRS, PREFERENCE as PREFERENCE_COLUMNS};
pub use encoding::Encoding;
pub use fields::{Cell, Fields};
pub use idx::{IdxFiles, idx_files};
pub use image_folder::{ImageFile, OtherFormats, image_files};
pub use mimic::{Mimic, Uncoded};
pub use options::{AnswerBy, OptionColumns, OptionTemplates};
pub use parquet::image_columns;
pub use prompt::{AnswerTemplates, ChoiceTemplates, Prompt, PromptTemplate};
pub use reader::{Format, Limits, Missing, Reader};
pub use record::{Field, Record};
pub use survey::{ColumnSurvey, FoundFormat, Survey};
pub use text_format::TextFormat;
pub use texts::{TextFile, TextRow, TextSink, WordsAre};

use std::path::Path;

use crate::{LeftOut, Message, Result, TableBuilder, Work};

/// The messages in a text of JSON: a list of them, or an object that has one under `messages`; else what was found and
/// expected.
pub fn messages_of_json(text: &str) -> Result<Vec<Message>, (String, String)> {
    conversation::of_json(text)
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
        let placed;
        let mut reader = self;
        if self.columns.image.is_some() && self.images.is_none() {
            // Paths in a table start at the table.
            placed = Self { images: path.parent().map(Path::to_owned), ..self.clone() };
            reader = &placed;
        }
        let before = builder.len();
        let left_out = builder.by_file(|builder| match format {
            Format::JsonLines => json_lines::read(reader, (path, work), builder),
            Format::Csv => delimited::read(reader, (path, work), ',', builder),
            Format::Tsv => delimited::read(reader, (path, work), '\t', builder),
            Format::Conll => conll::read(reader, (path, work), builder),
            Format::I2b2 => i2b2::read(reader, path, builder),
            Format::Parquet => parquet::read(reader, (path, work), builder),
            Format::Images => image_folder::read(reader, (path, work), builder),
            Format::Idx => idx::read(reader, (path, work), builder),
        })?;
        self.judge(&left_out, builder.len() - before)
    }

    /// Reads records that a program has in memory, as those of a file: `name` is what messages call them, and
    /// records are counted from 1.
    pub fn read_records<F: Fields>(
        &self,
        name: &Path,
        records: impl IntoIterator<Item = Result<F>>,
        builder: &mut TableBuilder,
    ) -> Result<()> {
        let before = builder.len();
        let left_out = builder.by_file(|builder| {
            for (place, record) in (1..).zip(records) {
                let row = self.row(builder.task, &mut record?);
                self.push(row, (name, place), builder)?;
            }
            Ok(())
        })?;
        self.judge(&left_out, builder.len() - before)
    }

    /// Whether what was read may be used without what was left out.
    fn judge(&self, left_out: &LeftOut, kept: usize) -> Result<()> {
        let kept = kept as u64;
        if left_out.rows == 0 {
            return Ok(());
        }
        match self.missing {
            Missing::Drop if kept > 0 => Ok(()),
            Missing::Drop | Missing::Refuse => Err(left_out.refused(kept + left_out.rows)),
        }
    }
}
