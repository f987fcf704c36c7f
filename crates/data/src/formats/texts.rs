//! Texts to say something about, row by row, with whatever else their rows hold.
//!
//! Unlike a [`super::Reader`] this reads no label and keeps no table: rows are pushed into a
//! [`TextSink`] as they are read, so a file may be larger than memory. A row that cannot be read is
//! handed to the sink as an error with its line, and the sink decides whether the reading continues.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::columns::{Columns, TextColumns};
use super::encoding::Encoding;
use super::fields::{Cell, Fields as _, missing, single};
use super::reader::{Limits, Reader};
use super::record::Record;
use super::records::{Event, RecordFile};
use super::text_format::TextFormat;
use crate::error::Mismatch;
use crate::{Body, DataError, Image, Result};

/// Whether a list or a text is what a row is asked for first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordsAre {
    /// Words that are given as a list have an answer each.
    Answered,
    /// A list is a text in parts.
    Joined,
}

/// A source of texts and how it is read.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// The file, or what messages call a source without one.
    pub path: PathBuf,
    /// How it is written.
    pub format: TextFormat,
    /// The column or columns to read; the usual one unless given.
    pub columns: Option<TextColumns>,
    /// The column of images, in place of texts, for a model that reads images.
    pub image: Option<String>,
    /// What a list in that column is.
    pub words: WordsAre,
    /// How its letters are written.
    pub encoding: Encoding,
    /// Character between the fields of CSV and TSV, where it is not their usual one.
    pub delimiter: Option<char>,
    /// Whether paths of images are the caller's own and may lead anywhere; those of a table may not leave
    /// its folder.
    pub anywhere: bool,
    /// What an error about an absent column adds: who named it, and how another is named.
    pub column_hint: &'static str,
}

/// A text and the row that it came in.
#[derive(Clone, Debug)]
pub struct TextRow {
    /// The line on which it began, or the row of a Parquet file, from 1.
    pub line: u64,
    /// What is read.
    pub body: Body,
    /// All that the row holds.
    pub record: Record,
}

/// Where rows go.
pub trait TextSink {
    /// What stops the reading.
    type Error: From<DataError>;

    /// The names of the columns, before the first row, where the format has such names.
    fn columns(&mut self, names: &[String]) -> Result<(), Self::Error>;

    /// A row.
    fn row(&mut self, row: TextRow) -> Result<(), Self::Error>;

    /// A row that cannot be read.
    fn bad_row(&mut self, error: DataError) -> Result<(), Self::Error>;
}

/// Why a record has nothing to be read.
struct NoBody {
    /// The image that is to blame, where the caller named it and no table did.
    file: Option<PathBuf>,
    mismatch: Mismatch,
}

impl From<Mismatch> for NoBody {
    fn from(mismatch: Mismatch) -> Self {
        Self { file: None, mismatch }
    }
}

impl TextFile {
    /// Reads the file, or an open stream such as standard input, into a sink.
    pub fn read<S: TextSink>(
        &self,
        input: Option<Box<dyn Read>>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if let (TextFormat::Lines, Some(columns)) = (self.format, &self.columns) {
            let found = format!("the column {columns:?}");
            let expected = "none: a line of plain text has no columns";
            return Err(DataError::file(&self.path, found, expected).into());
        }
        // Rows go through and are not kept, so only a single one is bounded.
        let limits = Limits { expanded_bytes: u64::MAX, ..Limits::default() };
        let (encoding, delimiter) = (self.encoding, self.delimiter);
        let columns = Columns { image: self.image.clone(), ..Columns::default() };
        let images = self.path.parent().map(Path::to_owned);
        let settings =
            &Reader { columns, delimiter, encoding, images, limits, ..Reader::default() };
        let file =
            RecordFile { path: &self.path, format: self.format, settings, with_fields: false };
        file.read(input, &mut |event| match event {
            Event::Columns(names) => sink.columns(names),
            Event::Bad(error) => sink.bad_row(error),
            Event::Record(mut record, line, advice) => match self.body(settings, &mut record) {
                Ok(body) => sink.row(TextRow { line, body, record }),
                Err(NoBody { file: Some(file), mismatch: (found, expected) }) => {
                    sink.bad_row(DataError::row(&file, 0, found, expected))
                }
                Err(NoBody { file: None, mismatch: (found, expected) }) => {
                    let error = DataError::row(&self.path, line, found, expected);
                    sink.bad_row(error.advising(advice.cloned()))
                }
            },
        })
    }

    fn body(&self, settings: &Reader, record: &mut Record) -> Result<Body, NoBody> {
        if let Some(column) = &self.image {
            if self.anywhere {
                let path = record.take(column)?.map(|cell| single(cell, "")).unwrap_or_default();
                let named = |mismatch| NoBody { file: Some(PathBuf::from(&path)), mismatch };
                return Image::file(&path).map(Body::Image).map_err(named);
            }
            return settings.image(column, record).map_err(|no_row| no_row.mismatch.into());
        }
        let usual: &[&str] = match self.words {
            WordsAre::Answered => &["text", "tokens", "words"],
            WordsAre::Joined => &["text"],
        };
        let mut named = |name: &str| {
            if let Some(cell) = record.take(name)? {
                return Ok(cell);
            }
            let (found, expected) = missing(record, name);
            Err(NoBody::from((found, format!("{expected}{}", self.column_hint))))
        };
        match &self.columns {
            Some(TextColumns::One(name)) => Ok(self.read_cell(named(name)?)),
            Some(TextColumns::Pair([first, second])) => {
                Ok(Body::Pair(single(named(first)?, "\n"), single(named(second)?, "\n")))
            }
            None => {
                for name in usual {
                    if let Some(cell) = record.take(name)? {
                        return Ok(self.read_cell(cell));
                    }
                }
                let (found, expected) = missing(record, usual[0]);
                Err((found, format!("{expected}, or another one to be named")).into())
            }
        }
    }

    fn read_cell(&self, cell: Cell) -> Body {
        match (cell, self.words) {
            (Cell::List(words), WordsAre::Answered) => Body::Words(words),
            (cell, WordsAre::Answered | WordsAre::Joined) => Body::Text(single(cell, "\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[derive(Default)]
    struct Told {
        columns: Vec<String>,
        rows: Vec<TextRow>,
        bad: Vec<String>,
    }

    impl TextSink for Told {
        type Error = DataError;

        fn columns(&mut self, names: &[String]) -> Result<()> {
            self.columns = names.to_vec();
            Ok(())
        }

        fn row(&mut self, row: TextRow) -> Result<()> {
            self.rows.push(row);
            Ok(())
        }

        fn bad_row(&mut self, error: DataError) -> Result<()> {
            self.bad.push(error.to_string());
            Ok(())
        }
    }

    fn file(format: TextFormat, columns: Option<TextColumns>) -> TextFile {
        TextFile {
            path: "in".into(),
            format,
            columns,
            image: None,
            words: WordsAre::Answered,
            encoding: Encoding::Utf8,
            delimiter: None,
            anywhere: false,
            column_hint: "",
        }
    }

    fn read(file: &TextFile, text: &[u8]) -> Told {
        let mut told = Told::default();
        file.read(Some(Box::new(Cursor::new(text.to_vec()))), &mut told).unwrap();
        told
    }

    #[test]
    fn rows_of_every_format_keep_their_other_columns() {
        let json = br#"{"id": 7, "text": "cough"}

{"text": null}
[1]
{"tokens": ["no", "pain"]}
"#;
        let told = read(&file(TextFormat::JsonLines, None), json);
        assert_eq!(told.rows.len(), 2, "{:?}", told.bad);
        assert_eq!(told.rows[0].body, Body::Text("cough".into()));
        assert_eq!(told.rows[0].record.fields[0].1.to_json(), "7");
        assert_eq!(
            (told.rows[1].line, &told.rows[1].body),
            (5, &Body::Words(vec!["no".into(), "pain".into()]))
        );
        assert_eq!(told.bad.len(), 2);
        assert!(
            told.bad[0].starts_with("in:3: found no value, expected column \"text\""),
            "{:?}",
            told.bad
        );
        assert!(told.bad[1].starts_with("in:4: found [1]"), "{:?}", told.bad);

        let table = b"id,note\n1,\"a, b\"\n2\n3,c\n";
        let told = read(&file(TextFormat::Csv, Some("note".into())), table);
        assert_eq!(told.columns, ["id", "note"]);
        assert_eq!(told.rows.len(), 2);
        assert_eq!(told.rows[0].body, Body::Text("a, b".into()));
        assert!(told.bad[0].starts_with("in:3: found 1 field,"), "{:?}", told.bad);

        // Line ends inside a cell are the cell's; blanks around a column's name are nobody's.
        let told =
            read(&file(TextFormat::Csv, Some("note".into())), b"id, note \r\n1,\"a\r\nb\nc\"\r\n");
        assert_eq!(told.columns, ["id", "note"]);
        assert_eq!(told.rows[0].body, Body::Text("a\r\nb\nc".into()));

        let told = read(&file(TextFormat::Lines, None), b"one\n\nthree\xff\nfour");
        let texts: Vec<String> = told.rows.iter().map(|row| row.body.to_text()).collect();
        assert_eq!((texts, told.bad.len()), (vec!["one".into(), String::new(), "four".into()], 1));
    }

    #[test]
    fn a_column_that_is_not_there_is_named_with_those_that_are() {
        let told = read(&file(TextFormat::Tsv, Some("note".into())), b"id\ttext\n1\tx\n");
        assert_eq!(
            told.bad,
            ["in:2: found the columns \"id\", \"text\", expected column \"note\""]
        );
        let pair = TextColumns::Pair(["question".into(), "passage".into()]);
        let told = read(&file(TextFormat::Csv, Some(pair)), b"question,passage\nwhy,because\n");
        assert_eq!(told.rows[0].body, Body::Pair("why".into(), "because".into()));
    }

    #[test]
    fn the_name_of_a_file_says_its_format() {
        for (name, format) in [
            ("a/b.JSONL", Some(TextFormat::JsonLines)),
            ("b.csv.gz", Some(TextFormat::Csv)),
            ("b.tsv", Some(TextFormat::Tsv)),
            ("notes.txt", Some(TextFormat::Lines)),
            ("x.parquet", Some(TextFormat::Parquet)),
            ("x.docx", None),
            ("noend", None),
        ] {
            assert_eq!(TextFormat::of(name.as_ref()), format, "{name}");
        }
    }
}
