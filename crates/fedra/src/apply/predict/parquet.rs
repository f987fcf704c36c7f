//! Answers as a Parquet file: the columns of the input as text, and what is answered as what it is.
//!
//! | column | one label | several labels | spans |
//! | --- | --- | --- | --- |
//! | `predicted` | STRING | LIST of STRING | STRING, in JSON |
//! | `probability` | FLOAT | LIST of FLOAT | |
//! | `probabilities` | STRING, in JSON, where it is asked for | the same | |
//!
//! Rows are held until they make a row group, so a file may be larger than memory. The columns are
//! fixed before the first row; their values are text whatever they were in the input, because a file of
//! JSON lines may hold a number in one row and a word in a later one.

use std::io::Write;
use std::sync::Arc;

use fedra_data::Field;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, FloatType};
use parquet::errors::{ParquetError, Result as Stored};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use super::output::{WriteSettings, likeliest};
use super::prediction::Prediction;
use crate::apply::trained_model::Reading;
use crate::error::{Error, Result, refuse};

/// Rows of a group.
const ROWS: usize = 1 << 16;
/// Bytes of text in a group, about.
const BYTES: usize = 64 << 20;

/// A Parquet file on its way.
pub(super) struct ParquetAnswers<W: Write + Send> {
    settings: WriteSettings,
    state: State<W>,
    /// Rows that make no group yet, a value for each column.
    rows: Vec<Vec<Value>>,
    bytes: usize,
}

enum State<W: Write + Send> {
    /// The columns are not known yet.
    Waiting(W),
    Begun {
        columns: Vec<(String, Kind)>,
        writer: Box<SerializedFileWriter<W>>,
    },
    /// Writing failed.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Texts,
    Numbers,
}

enum Value {
    Text(Option<String>),
    Number(Option<f32>),
    Texts(Vec<String>),
    Numbers(Vec<f32>),
}

impl<W: Write + Send> ParquetAnswers<W> {
    pub fn new(output: W, settings: WriteSettings) -> Self {
        Self { settings, state: State::Waiting(output), rows: Vec::new(), bytes: 0 }
    }

    /// Takes note of the columns that all rows have.
    pub fn begin(&mut self, names: &[String]) -> Result<()> {
        let output = match std::mem::replace(&mut self.state, State::Lost) {
            State::Waiting(output) => output,
            known @ (State::Begun { .. } | State::Lost) => {
                self.state = known;
                return Ok(());
            }
        };
        let mut twice = names.iter().enumerate().filter(|(at, name)| names[..*at].contains(name));
        if let Some((_, name)) = twice.next() {
            refuse!(
                "--output: found two columns called {name:?}, expected every name once in Parquet"
            );
        }
        let mut columns: Vec<(String, Kind)> =
            names.iter().map(|name| (name.clone(), Kind::Text)).collect();
        let (predicted, probability) = match self.settings.answers {
            Reading::OneLabel => (Kind::Text, Some(Kind::Number)),
            Reading::SeveralLabels => (Kind::Texts, Some(Kind::Numbers)),
            Reading::Words => (Kind::Text, None),
        };
        columns.push(("predicted".to_owned(), predicted));
        if let Some(probability) = probability {
            columns.push(("probability".to_owned(), probability));
            let top = self.settings.top.filter(|top| *top > 0);
            columns.extend(top.map(|_| ("probabilities".to_owned(), Kind::Text)));
        }
        let writer = opened(output, &columns).map_err(|error| unwritten(&error))?;
        self.state = State::Begun { columns, writer: Box::new(writer) };
        Ok(())
    }

    /// Adds a row, a field for each column.
    pub fn write(&mut self, fields: &[&Field], prediction: &Prediction) -> Result<()> {
        let cell = |field: &Field| {
            let is_null = match field {
                Field::Absent => true,
                Field::Json(raw) => raw.get() == "null",
                Field::Text(_) | Field::List(_) => false,
            };
            Value::Text((!is_null).then(|| field.to_cell()))
        };
        let mut row: Vec<Value> = fields.iter().map(|field| cell(field)).collect();
        let number = |probability: f64| Some(probability as f32).filter(|it| it.is_finite());
        let top = self.settings.top.filter(|top| *top > 0);
        match prediction {
            Prediction::One { labels, .. } => {
                let best = labels.first();
                row.push(Value::Text(best.map(|one| one.label.clone())));
                row.push(Value::Number(best.and_then(|one| number(one.probability))));
                row.extend(top.map(|top| Value::Text(Some(likeliest(labels, top)))));
            }
            Prediction::Several { labels, answered, .. } => {
                let told = &labels[..*answered];
                row.push(Value::Texts(told.iter().map(|one| one.label.clone()).collect()));
                row.push(Value::Numbers(told.iter().map(|one| one.probability as f32).collect()));
                row.extend(top.map(|top| Value::Text(Some(likeliest(labels, top)))));
            }
            Prediction::Spans { spans, .. } => {
                row.push(Value::Text(Some(super::output::as_json(spans))));
            }
        }
        self.bytes += row.iter().map(Value::bytes).sum::<usize>();
        self.rows.push(row);
        if self.rows.len() >= ROWS || self.bytes >= BYTES {
            self.group()?;
        }
        Ok(())
    }

    /// Ends the file; one without rows still has its columns.
    pub fn finish(mut self) -> Result<W> {
        // Where nobody told of any, the input has none.
        self.begin(&[])?;
        self.group()?;
        match self.state {
            State::Begun { writer, .. } => writer.into_inner().map_err(|error| unwritten(&error)),
            State::Waiting(_) | State::Lost => Err(lost()),
        }
    }

    /// Writes the rows that are held.
    fn group(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if rows.is_empty() {
            return Ok(());
        }
        match &mut self.state {
            State::Begun { columns, writer } => {
                write_group(writer, columns, &rows).map_err(|error| unwritten(&error))
            }
            State::Waiting(_) | State::Lost => Err(lost()),
        }
    }
}

impl Value {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.as_ref().map_or(0, String::len),
            Self::Number(_) => 4,
            Self::Texts(texts) => texts.iter().map(String::len).sum(),
            Self::Numbers(numbers) => 4 * numbers.len(),
        }
    }
}

fn opened<W: Write + Send>(
    output: W,
    columns: &[(String, Kind)],
) -> Stored<SerializedFileWriter<W>> {
    let fields = columns.iter().map(|(name, kind)| field(name, *kind)).collect::<Stored<_>>()?;
    let schema = Arc::new(Type::group_type_builder("answers").with_fields(fields).build()?);
    SerializedFileWriter::new(output, schema, Arc::new(WriterProperties::builder().build()))
}

fn field(name: &str, kind: Kind) -> Stored<TypePtr> {
    let leaf = |name: &str, repetition| {
        let (physical, logical, converted) = match kind {
            Kind::Text | Kind::Texts => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String), ConvertedType::UTF8)
            }
            Kind::Number | Kind::Numbers => (Physical::FLOAT, None, ConvertedType::NONE),
        };
        let leaf = Type::primitive_type_builder(name, physical).with_repetition(repetition);
        leaf.with_logical_type(logical).with_converted_type(converted).build().map(Arc::new)
    };
    match kind {
        Kind::Text | Kind::Number => leaf(name, Repetition::OPTIONAL),
        Kind::Texts | Kind::Numbers => {
            let items = Type::group_type_builder("list").with_repetition(Repetition::REPEATED);
            let items = items.with_fields(vec![leaf("element", Repetition::REQUIRED)?]).build()?;
            let list = Type::group_type_builder(name).with_repetition(Repetition::REQUIRED);
            let list = list.with_logical_type(Some(LogicalType::List));
            let list = list.with_converted_type(ConvertedType::LIST);
            list.with_fields(vec![Arc::new(items)]).build().map(Arc::new)
        }
    }
}

fn write_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &[(String, Kind)],
    rows: &[Vec<Value>],
) -> Stored<()> {
    let mut group = writer.next_row_group()?;
    for (place, (_, kind)) in columns.iter().enumerate() {
        let Some(mut column) = group.next_column()? else { break };
        let cells = || rows.iter().map(|row| row.get(place));
        match kind {
            Kind::Text | Kind::Texts => {
                let lists = cells().map(|cell| match cell {
                    Some(Value::Text(text)) => text.as_slice(),
                    Some(Value::Texts(texts)) => texts.as_slice(),
                    Some(Value::Number(_) | Value::Numbers(_)) | None => &[],
                });
                let (values, levels) = flattened(lists);
                let values: Vec<ByteArray> =
                    values.into_iter().map(|text| ByteArray::from(text.as_str())).collect();
                let column = column.typed::<ByteArrayType>();
                column.write_batch(&values, Some(&levels.present), levels.repeated(*kind))?;
            }
            Kind::Number | Kind::Numbers => {
                let lists = cells().map(|cell| match cell {
                    Some(Value::Number(number)) => number.as_slice(),
                    Some(Value::Numbers(numbers)) => numbers.as_slice(),
                    Some(Value::Text(_) | Value::Texts(_)) | None => &[],
                });
                let (values, levels) = flattened(lists);
                let values: Vec<f32> = values.into_iter().copied().collect();
                let column = column.typed::<FloatType>();
                column.write_batch(&values, Some(&levels.present), levels.repeated(*kind))?;
            }
        }
        column.close()?;
    }
    group.close()?;
    Ok(())
}

/// Which values are there, and which belong to the row of the one before.
struct Levels {
    present: Vec<i16>,
    repeated: Vec<i16>,
}

impl Levels {
    /// A value that is there or not has no such levels.
    fn repeated(&self, kind: Kind) -> Option<&[i16]> {
        match kind {
            Kind::Text | Kind::Number => None,
            Kind::Texts | Kind::Numbers => Some(&self.repeated),
        }
    }
}

/// All values in a row with their levels; an absent value is an empty list.
fn flattened<'a, T: 'a>(lists: impl Iterator<Item = &'a [T]>) -> (Vec<&'a T>, Levels) {
    let mut levels = Levels { present: Vec::new(), repeated: Vec::new() };
    let mut values = Vec::new();
    for list in lists {
        if list.is_empty() {
            levels.present.push(0);
            levels.repeated.push(0);
        }
        for (place, value) in list.iter().enumerate() {
            levels.present.push(1);
            levels.repeated.push(i16::from(place > 0));
            values.push(value);
        }
    }
    (values, levels)
}

fn unwritten(error: &ParquetError) -> Error {
    // What the system said is inside of what the format says.
    let said = if let ParquetError::External(inner) = error {
        inner.to_string()
    } else {
        error.to_string()
    };
    Error::Unwritten { what: "the answers".to_owned(), source: std::io::Error::other(said) }
}

fn lost() -> Error {
    let source = std::io::Error::other("an earlier part of them failed");
    Error::Unwritten { what: "the answers".to_owned(), source }
}
