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

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, FloatType};
use parquet::errors::{ParquetError, Result as Stored};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use super::cells::{Cell, Kind};
use crate::config::ConfigError;
use crate::error::{Error, Result};

/// Rows of a group.
const ROWS: usize = 1 << 16;
/// Bytes of text in a group, about.
const BYTES: usize = 64 << 20;

/// A Parquet file on its way.
pub(super) struct ParquetAnswers<W: Write + Send> {
    columns: Vec<(String, Kind)>,
    writer: SerializedFileWriter<W>,
    /// Rows that make no group yet, a value for each column.
    rows: Vec<Vec<Cell>>,
    bytes: usize,
}

impl<W: Write + Send> ParquetAnswers<W> {
    /// Begins a file with these columns.
    pub fn new(output: W, columns: Vec<(String, Kind)>) -> Result<Self> {
        let is_twice = |at: usize| columns[..at].iter().any(|(name, _)| *name == columns[at].0);
        if let Some(at) = (0..columns.len()).find(|at| is_twice(*at)) {
            let found = format!("two columns called {:?}", columns[at].0);
            return Err(ConfigError::new("output", found, "every name once in Parquet").into());
        }
        let writer = opened(output, &columns).map_err(|error| unwritten(&error))?;
        Ok(Self { columns, writer, rows: Vec::new(), bytes: 0 })
    }

    /// Adds a row, a value for each column.
    pub fn write(&mut self, row: Vec<Cell>) -> Result<()> {
        self.bytes += row.iter().map(bytes_of).sum::<usize>();
        self.rows.push(row);
        if self.rows.len() >= ROWS || self.bytes >= BYTES {
            self.group()?;
        }
        Ok(())
    }

    /// Ends the file; one without rows still has its columns.
    pub fn finish(mut self) -> Result<W> {
        self.group()?;
        self.writer.into_inner().map_err(|error| unwritten(&error))
    }

    /// Writes the rows that are held.
    fn group(&mut self) -> Result<()> {
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        write_group(&mut self.writer, &self.columns, &rows).map_err(|error| unwritten(&error))
    }
}

fn bytes_of(cell: &Cell) -> usize {
    match cell {
        Cell::Absent => 0,
        Cell::Text(text) | Cell::Json(text) => text.len(),
        Cell::Number(_) => 4,
        Cell::Texts(texts) => texts.iter().map(String::len).sum(),
        Cell::Numbers(numbers) => 4 * numbers.len(),
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
    rows: &[Vec<Cell>],
) -> Stored<()> {
    let mut group = writer.next_row_group()?;
    for (place, (_, kind)) in columns.iter().enumerate() {
        let Some(mut column) = group.next_column()? else { break };
        let cells = rows.iter().map(|row| row.get(place).unwrap_or(&Cell::Absent));
        // A value that is there or not belongs to no other.
        let is_list = matches!(kind, Kind::Texts | Kind::Numbers);
        match kind {
            Kind::Text | Kind::Texts => {
                let (values, [present, repeated]) = flattened(cells.map(texts_of));
                let values: Vec<ByteArray> =
                    values.into_iter().map(|text| ByteArray::from(text.as_str())).collect();
                let column = column.typed::<ByteArrayType>();
                column.write_batch(&values, Some(&present), is_list.then_some(&repeated))?;
            }
            Kind::Number | Kind::Numbers => {
                let (values, [present, repeated]) = flattened(cells.map(numbers_of));
                let values: Vec<f32> = values.into_iter().copied().collect();
                let column = column.typed::<FloatType>();
                column.write_batch(&values, Some(&present), is_list.then_some(&repeated))?;
            }
        }
        column.close()?;
    }
    group.close()?;
    Ok(())
}

fn texts_of(cell: &Cell) -> &[String] {
    match cell {
        Cell::Text(text) | Cell::Json(text) => std::slice::from_ref(text),
        Cell::Texts(texts) => texts,
        Cell::Absent | Cell::Number(_) | Cell::Numbers(_) => &[],
    }
}

fn numbers_of(cell: &Cell) -> &[f32] {
    match cell {
        Cell::Number(number) if number.is_finite() => std::slice::from_ref(number),
        Cell::Numbers(numbers) => numbers,
        Cell::Absent | Cell::Number(_) | Cell::Text(_) | Cell::Json(_) | Cell::Texts(_) => &[],
    }
}

/// All values in a row, which of them are there, and which belong to the row of the one before; an absent value is an
/// empty list.
fn flattened<'a, T: 'a>(lists: impl Iterator<Item = &'a [T]>) -> (Vec<&'a T>, [Vec<i16>; 2]) {
    let (mut values, mut present, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for list in lists {
        if list.is_empty() {
            present.push(0);
            repeated.push(0);
        }
        for (place, value) in list.iter().enumerate() {
            present.push(1);
            repeated.push(i16::from(place > 0));
            values.push(value);
        }
    }
    (values, [present, repeated])
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
