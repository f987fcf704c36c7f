//! Every record of a file in order: of rows to predict, and of a file that is looked at first.

use std::io::Read;
use std::path::Path;

use super::conversation;
use super::delimited::Records;
use super::fields::{Cell, Fields as _};
use super::parquet;
use super::reader::Reader;
use super::record::{Field, Record};
use super::source::Source;
use super::text_format::TextFormat;
use crate::error::Mismatch;
use crate::{Advice, DataError, Result};

/// A file, how it is written and how it is read.
pub(super) struct RecordFile<'a> {
    pub path: &'a Path,
    pub format: TextFormat,
    pub settings: &'a Reader,
    /// Whether fields of structures are columns too, where the format has structures.
    pub with_fields: bool,
}

/// What is come upon.
pub(super) enum Event<'a> {
    /// The names of the columns, where the format has such names.
    Columns(&'a [String]),
    /// A record, its line, and what may help where it is not as it should be.
    Record(Record, u64, Option<&'a Advice>),
    /// A record that cannot be read.
    Bad(DataError),
}

/// Takes what is come upon; an error ends the reading.
pub(super) type Each<'e, E> = &'e mut dyn FnMut(Event<'_>) -> Result<(), E>;

impl RecordFile<'_> {
    /// Reads the file, or an open stream in its place.
    pub fn read<E: From<DataError>>(
        &self,
        input: Option<Box<dyn Read>>,
        each: Each<'_, E>,
    ) -> Result<(), E> {
        if self.format == TextFormat::Parquet && input.is_some() {
            let expected = "a file: Parquet is read from its end";
            return Err(DataError::file(self.path, "a stream", expected).into());
        }
        let source = || match input {
            Some(input) => Source::of(input, self.path, self.settings),
            None => Source::open(self.path, self.settings),
        };
        match self.format {
            TextFormat::JsonLines => self.lines(source()?.of_records()?, each, |line| {
                (!line.trim().is_empty()).then(|| Record::parse(line))
            }),
            TextFormat::Lines => {
                let name = "text".to_owned();
                each(Event::Columns(std::slice::from_ref(&name)))?;
                self.lines(source()?, each, |line| {
                    let fields = vec![(name.clone(), Field::Text(line.to_owned()))];
                    Some(Ok(Record { fields, image: None }))
                })
            }
            TextFormat::Csv => self.delimited(source()?, ',', each),
            TextFormat::Tsv => self.delimited(source()?, '\t', each),
            TextFormat::Parquet => self.parquet(each),
        }
    }

    /// A record a line, as far as it makes one.
    fn lines<E: From<DataError>>(
        &self,
        mut source: Source,
        each: Each<'_, E>,
        record: impl Fn(&str) -> Option<Result<Record, Mismatch>>,
    ) -> Result<(), E> {
        loop {
            let made = match source.next_line() {
                Ok(Some(line)) => record(line),
                Ok(None) => return Ok(()),
                Err(error) => {
                    passed_on(error, each)?;
                    continue;
                }
            };
            if let Some(made) = made {
                self.hand_over(made, source.line, each)?;
            }
        }
    }

    fn delimited<E: From<DataError>>(
        &self,
        source: Source,
        usual: char,
        each: Each<'_, E>,
    ) -> Result<(), E> {
        let mut records = Records::of(source, self.settings.delimiter.unwrap_or(usual))?;
        let (header, advice) = (records.header.clone(), records.advice());
        each(Event::Columns(&header))?;
        loop {
            match records.next() {
                Ok(Some(values)) => {
                    let values = values.into_iter().map(Field::Text);
                    let fields = header.iter().cloned().zip(values).collect();
                    let record = Record { fields, image: None };
                    each(Event::Record(record, records.line, advice.as_ref()))?;
                }
                Ok(None) => return Ok(()),
                Err(error) => passed_on(error, each)?,
            }
        }
    }

    /// Without columns that no task can read (dates, structures).
    fn parquet<E: From<DataError>>(&self, each: Each<'_, E>) -> Result<(), E> {
        let mut names = parquet::readable_columns(self.path)?;
        let conversations = parquet::message_columns(self.path)?;
        names.extend(
            conversations.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>(),
        );
        if self.with_fields {
            names.extend(parquet::structure_fields(self.path)?);
        }
        // An image is what is asked about, and never copied into an answer.
        let image = self.settings.columns.image.as_ref();
        let holders: Vec<String> =
            image.map_or(Vec::new(), |name| vec![name.clone(), format!("{name}.bytes")]);
        if image.is_some() {
            let bytes = parquet::image_columns(self.path)?;
            names.retain(|name| !bytes.contains(name));
        }
        each(Event::Columns(&names))?;
        parquet::each(self.path, self.settings.limits, &mut |line, row| {
            let field = |name: &String| {
                if conversations.contains(name) {
                    let field = match row.messages(name)? {
                        None => Field::Absent,
                        Some(messages) => Field::Text(conversation::to_json(&messages)),
                    };
                    return Ok((name.clone(), field));
                }
                let field = match row.take(name)? {
                    None => Field::Absent,
                    Some(Cell::One(text)) => Field::Text(text),
                    Some(Cell::List(texts)) => Field::List(texts),
                };
                Ok((name.clone(), field))
            };
            let fields = names.iter().map(field).collect::<Result<_, Mismatch>>();
            let record = fields.and_then(|fields| {
                let mut record = Record { fields, image: None };
                for holder in &holders {
                    let bytes = row.bytes(holder)?;
                    record.image = record.image.or(bytes.map(|bytes| (holder.clone(), bytes)));
                }
                Ok(record)
            });
            row.check(line, record.is_ok())?;
            self.hand_over(record, line, each)
        })
    }

    fn hand_over<E>(
        &self,
        record: Result<Record, Mismatch>,
        line: u64,
        each: Each<'_, E>,
    ) -> Result<(), E> {
        each(match record {
            Ok(record) => Event::Record(record, line, None),
            Err((found, expected)) => Event::Bad(DataError::row(self.path, line, found, expected)),
        })
    }
}

/// A row that cannot be read is for others to judge; anything else ends the reading.
fn passed_on<E: From<DataError>>(error: DataError, each: Each<'_, E>) -> Result<(), E> {
    if matches!(error, DataError::Row { .. }) { each(Event::Bad(error)) } else { Err(error.into()) }
}
