//! A column chunk as cells, one row after another.
//!
//! Rows are decoded a few at a time, and a value becomes text only when its row is asked for: many
//! rows that repeat one long word cost that word once until then.

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;

use super::guard::{guarded, said};
use super::schema::Leaf;
use crate::error::Mismatch;
use crate::formats::fields::Cell;

/// Rows that are decoded together.
const ROWS: usize = 256;
/// What a value costs beside its bytes.
const OVERHEAD: u64 = 24;

/// A cell as it is stored.
#[derive(Clone, Debug)]
pub(super) enum CellValue {
    /// Text, numbers or lists of them.
    Text(Cell),
    /// Bytes that are no text.
    Bytes(Vec<u8>),
}

/// The cells of a column chunk.
pub(super) struct Cells {
    leaf: Leaf,
    rows: u64,
    /// The row that comes next.
    row: u64,
    values: Box<dyn Values>,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    /// Places in levels and values that were handed out.
    level: usize,
    value: usize,
    /// Rows that are decoded and not handed out.
    ready: usize,
    /// The cell that was handed out last.
    last: Option<CellValue>,
}

/// Decoded values of one type.
trait Values {
    /// Decodes some more rows; how many.
    fn decode(&mut self, levels: [&mut Vec<i16>; 2]) -> Result<usize, ParquetError>;

    /// A decoded value that is bytes and no text.
    fn bytes(&self, at: usize) -> Option<Vec<u8>>;

    /// A decoded value as text, as JSON lines would have it.
    fn text(&self, at: usize) -> Option<Result<String, Mismatch>>;
}

struct Typed<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
    text: fn(&T::T) -> Result<String, Mismatch>,
    bytes: fn(&T::T) -> Option<Vec<u8>>,
}

impl<T: DataType> Values for Typed<T> {
    fn decode(
        &mut self,
        [definitions, repetitions]: [&mut Vec<i16>; 2],
    ) -> Result<usize, ParquetError> {
        let Self { reader, values, .. } = self;
        values.clear();
        let read =
            guarded(|| reader.read_records(ROWS, Some(definitions), Some(repetitions), values))?;
        Ok(read.0)
    }

    fn bytes(&self, at: usize) -> Option<Vec<u8>> {
        self.values.get(at).and_then(self.bytes)
    }

    fn text(&self, at: usize) -> Option<Result<String, Mismatch>> {
        self.values.get(at).map(self.text)
    }
}

fn typed<T: DataType>(
    reader: ColumnReaderImpl<T>,
    text: fn(&T::T) -> Result<String, Mismatch>,
) -> Box<dyn Values> {
    Box::new(Typed { reader, values: Vec::new(), text, bytes: |_| None })
}

impl Cells {
    /// The cells that a reader gives.
    pub fn new(reader: ColumnReader, leaf: Leaf, rows: u64) -> Result<Self, Mismatch> {
        let values = match (reader, leaf.is_unsigned) {
            (ColumnReader::BoolColumnReader(reader), _) => {
                typed(reader, |truth| Ok(truth.to_string()))
            }
            (ColumnReader::Int32ColumnReader(reader), false) => {
                typed(reader, |n| Ok(n.to_string()))
            }
            (ColumnReader::Int32ColumnReader(reader), true) => {
                typed(reader, |n| Ok((*n as u32).to_string()))
            }
            (ColumnReader::Int64ColumnReader(reader), false) => {
                typed(reader, |n| Ok(n.to_string()))
            }
            (ColumnReader::Int64ColumnReader(reader), true) => {
                typed(reader, |n| Ok((*n as u64).to_string()))
            }
            (ColumnReader::FloatColumnReader(reader), _) => typed(reader, |n| finite(*n)),
            (ColumnReader::DoubleColumnReader(reader), _) => typed(reader, |n| finite(*n)),
            (ColumnReader::ByteArrayColumnReader(reader), _) => Box::new(Typed {
                reader,
                values: Vec::new(),
                text: |bytes| {
                    let text = std::str::from_utf8(bytes.data()).map(str::to_owned);
                    text.map_err(|_| {
                        ("bytes that are not UTF-8".to_owned(), "UTF-8 text".to_owned())
                    })
                },
                bytes: |bytes| {
                    let bytes = bytes.data();
                    std::str::from_utf8(bytes).is_err().then(|| bytes.to_vec())
                },
            }),
            (
                ColumnReader::Int96ColumnReader(_) | ColumnReader::FixedLenByteArrayColumnReader(_),
                _,
            ) => {
                let expected = "text, numbers, truth values or lists of them";
                return Err(("values of another type than the schema's".into(), expected.into()));
            }
        };
        let (definitions, repetitions) = (Vec::new(), Vec::new());
        let (row, level, value, ready) = (0, 0, 0, 0);
        Ok(Self {
            leaf,
            rows,
            row,
            values,
            definitions,
            repetitions,
            level,
            value,
            ready,
            last: None,
        })
    }

    /// The cell of a row and what it costs the first time; rows are asked for in ascending order.
    pub fn at(&mut self, row: u64, most: u64) -> Result<(Option<CellValue>, u64), Mismatch> {
        let mut bytes = 0;
        while self.row <= row {
            (self.last, bytes) = self.next(most)?;
        }
        Ok((self.last.clone(), bytes))
    }

    /// A column that was read to its last row must have no values beyond it.
    pub fn check_end(&mut self) -> Result<(), Mismatch> {
        if self.row == self.rows && (self.ready > 0 || self.decode()? > 0) {
            return Err(("more values".into(), format!("the {} of its rows", self.rows)));
        }
        Ok(())
    }

    fn next(&mut self, most: u64) -> Result<(Option<CellValue>, u64), Mismatch> {
        if self.ready == 0 && self.decode()? == 0 {
            return Err(("fewer values".into(), "one for every row".into()));
        }
        self.ready -= 1;
        self.row += 1;
        let definition = self.definition();
        let mut bytes = OVERHEAD;
        let Some(element) = self.leaf.element else {
            if definition != self.leaf.present {
                return Ok((None, bytes));
            }
            if let Some(found) = self.values.bytes(self.value) {
                self.value += 1;
                bytes += found.len() as u64;
                return Ok((Some(CellValue::Bytes(found)), bytes));
            }
            let cell = Cell::One(self.text(&mut bytes)?);
            return Ok((Some(CellValue::Text(cell)), bytes));
        };
        // Below the level of an element the list is empty, and below that it is null.
        if definition < element {
            let cell = (definition + 1 == element).then(|| Cell::List(Vec::new()));
            return Ok((cell.map(CellValue::Text), bytes));
        }
        let mut items = Vec::new();
        let mut definition = definition;
        loop {
            if definition < self.leaf.present {
                return Err(("a null inside a list".into(), "a value".into()));
            }
            items.push(self.text(&mut bytes)?);
            if self.repetitions.get(self.level).is_none_or(|&level| level == 0) {
                return Ok((Some(CellValue::Text(Cell::List(items))), bytes));
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

    /// The next value as text.
    fn text(&mut self, bytes: &mut u64) -> Result<String, Mismatch> {
        let missing = || Err(("fewer values".to_owned(), "one for every level".to_owned()));
        let text = self.values.text(self.value).unwrap_or_else(missing)?;
        self.value += 1;
        *bytes += text.len() as u64;
        Ok(text)
    }

    /// Decodes some more rows; how many.
    fn decode(&mut self) -> Result<usize, Mismatch> {
        let levels = [&mut self.definitions, &mut self.repetitions];
        let levels = levels.map(|levels| {
            levels.clear();
            levels
        });
        (self.level, self.value) = (0, 0);
        self.ready = self.values.decode(levels).map_err(said)?;
        Ok(self.ready)
    }
}

fn finite<F: Into<f64> + Copy + std::fmt::Debug>(number: F) -> Result<String, Mismatch> {
    if number.into().is_finite() {
        return Ok(format!("{number:?}"));
    }
    Err((format!("{number:?}"), "a finite number, or null".to_owned()))
}
