//! A column chunk as cells, one row after another.
//!
//! Rows are decoded a few at a time, and a value becomes text only when its row is asked for: many
//! rows that repeat one long word cost that word once until then.

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;

use super::guard::{guarded, said};
use super::schema::Leaf;
use crate::error::Complaint;
use crate::formats::fields::Cell;

/// Rows that are decoded together.
const ROWS: usize = 256;
/// What a value costs beside its bytes.
const OVERHEAD: u64 = 24;

/// The cells of a column chunk.
pub(super) struct Cells {
    leaf: Leaf,
    rows: u64,
    /// The row that comes next.
    row: u64,
    values: Values,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    /// Places in levels and values that were handed out.
    level: usize,
    value: usize,
    /// Rows that are decoded and not handed out.
    ready: usize,
}

/// A cell and what it costs.
pub(super) struct Taken {
    pub cell: Option<Cell>,
    pub bytes: u64,
}

enum Values {
    Truths(ColumnReaderImpl<BoolType>, Vec<bool>),
    Int32(ColumnReaderImpl<Int32Type>, Vec<i32>),
    Int64(ColumnReaderImpl<Int64Type>, Vec<i64>),
    Float(ColumnReaderImpl<FloatType>, Vec<f32>),
    Double(ColumnReaderImpl<DoubleType>, Vec<f64>),
    Text(ColumnReaderImpl<ByteArrayType>, Vec<ByteArray>),
}

impl Cells {
    /// The cells that a reader gives.
    pub fn new(reader: ColumnReader, leaf: Leaf, rows: u64) -> Result<Self, Complaint> {
        let values = match reader {
            ColumnReader::BoolColumnReader(reader) => Values::Truths(reader, Vec::new()),
            ColumnReader::Int32ColumnReader(reader) => Values::Int32(reader, Vec::new()),
            ColumnReader::Int64ColumnReader(reader) => Values::Int64(reader, Vec::new()),
            ColumnReader::FloatColumnReader(reader) => Values::Float(reader, Vec::new()),
            ColumnReader::DoubleColumnReader(reader) => Values::Double(reader, Vec::new()),
            ColumnReader::ByteArrayColumnReader(reader) => Values::Text(reader, Vec::new()),
            ColumnReader::Int96ColumnReader(_) | ColumnReader::FixedLenByteArrayColumnReader(_) => {
                let expected = "text, numbers, truth values or lists of them";
                return Err(("values of another type than the schema's".into(), expected.into()));
            }
        };
        let (definitions, repetitions) = (Vec::new(), Vec::new());
        let (row, level, value, ready) = (0, 0, 0, 0);
        Ok(Self { leaf, rows, row, values, definitions, repetitions, level, value, ready })
    }

    /// The cell of a row; rows are asked for in ascending order.
    pub fn at(&mut self, row: u64, most: u64) -> Result<Taken, Complaint> {
        loop {
            let taken = self.next(most)?;
            if self.row > row {
                return Ok(taken);
            }
        }
    }

    /// A column that was read to its last row must have no values beyond it.
    pub fn check_end(&mut self) -> Result<(), Complaint> {
        if self.row == self.rows && (self.ready > 0 || self.decode()? > 0) {
            return Err(("more values".into(), format!("the {} of its rows", self.rows)));
        }
        Ok(())
    }

    fn next(&mut self, most: u64) -> Result<Taken, Complaint> {
        if self.ready == 0 && self.decode()? == 0 {
            return Err(("fewer values".into(), "one for every row".into()));
        }
        self.ready -= 1;
        self.row += 1;
        let definition = self.definition();
        let mut bytes = OVERHEAD;
        let Some(element) = self.leaf.element else {
            let cell = (definition == self.leaf.present).then(|| self.text(&mut bytes));
            return Ok(Taken { cell: cell.transpose()?.map(Cell::One), bytes });
        };
        // Below the level of an element the list is empty, and below that it is null.
        if definition < element {
            let cell = (definition + 1 == element).then(|| Cell::List(Vec::new()));
            return Ok(Taken { cell, bytes });
        }
        let mut items = Vec::new();
        let mut definition = definition;
        loop {
            if definition < self.leaf.present {
                return Err(("a null inside a list".into(), "a value".into()));
            }
            items.push(self.text(&mut bytes)?);
            if self.repetitions.get(self.level).is_none_or(|&level| level == 0) {
                return Ok(Taken { cell: Some(Cell::List(items)), bytes });
            }
            bytes += OVERHEAD;
            if bytes > most {
                let found = format!("more than {most} bytes in one list");
                return Err((found, "a record within the limit".into()));
            }
            definition = self.definition();
        }
    }

    /// The definition level of the next entry.
    fn definition(&mut self) -> i16 {
        let found = self.definitions.get(self.level).copied().unwrap_or(self.leaf.present);
        self.level += 1;
        found
    }

    /// The next value as text, as JSON lines would have it.
    fn text(&mut self, bytes: &mut u64) -> Result<String, Complaint> {
        let (at, is_unsigned) = (self.value, self.leaf.is_unsigned);
        self.value += 1;
        let missing = || ("fewer values".to_owned(), "one for every level".to_owned());
        let text = match &self.values {
            Values::Truths(_, all) => all.get(at).ok_or_else(missing)?.to_string(),
            Values::Int32(_, all) => match *all.get(at).ok_or_else(missing)? {
                number if is_unsigned => (number as u32).to_string(),
                number => number.to_string(),
            },
            Values::Int64(_, all) => match *all.get(at).ok_or_else(missing)? {
                number if is_unsigned => (number as u64).to_string(),
                number => number.to_string(),
            },
            Values::Float(_, all) => finite(*all.get(at).ok_or_else(missing)?)?,
            Values::Double(_, all) => finite(*all.get(at).ok_or_else(missing)?)?,
            Values::Text(_, all) => {
                let text = std::str::from_utf8(all.get(at).ok_or_else(missing)?.data());
                let text = text.map_err(|_| {
                    ("bytes that are not UTF-8".to_owned(), "UTF-8 text".to_owned())
                })?;
                text.to_owned()
            }
        };
        *bytes += text.len() as u64;
        Ok(text)
    }

    /// Decodes some more rows; how many.
    fn decode(&mut self) -> Result<usize, Complaint> {
        let levels = (&mut self.definitions, &mut self.repetitions);
        levels.0.clear();
        levels.1.clear();
        (self.level, self.value) = (0, 0);
        let read = match &mut self.values {
            Values::Truths(reader, values) => records(reader, levels, values),
            Values::Int32(reader, values) => records(reader, levels, values),
            Values::Int64(reader, values) => records(reader, levels, values),
            Values::Float(reader, values) => records(reader, levels, values),
            Values::Double(reader, values) => records(reader, levels, values),
            Values::Text(reader, values) => records(reader, levels, values),
        };
        self.ready = read.map_err(said)?;
        Ok(self.ready)
    }
}

/// Reads some records into levels and values; how many.
fn records<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    (definitions, repetitions): (&mut Vec<i16>, &mut Vec<i16>),
    values: &mut Vec<T::T>,
) -> Result<usize, ParquetError> {
    values.clear();
    let read = guarded(|| reader.read_records(ROWS, Some(definitions), Some(repetitions), values))?;
    Ok(read.0)
}

fn finite<F: Into<f64> + Copy + std::fmt::Debug>(number: F) -> Result<String, Complaint> {
    if number.into().is_finite() {
        return Ok(format!("{number:?}"));
    }
    Err((format!("{number:?}"), "a finite number, or null".to_owned()))
}
