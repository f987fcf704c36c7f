//! Rows of a table in memory, through Arrow's C interface: pandas, Polars, pyarrow and whoever else has
//! `__arrow_c_stream__`. Columns stay where they are; what a row needs of them is looked at once.
//!
//! A cell means what it means in a Parquet file with the same table: numbers in their shortest spelling, lists of one
//! level, structures by the path of a field, bytes where an image is due, and the names of classes that Hugging Face
//! `datasets` writes beside a table.

use std::collections::BTreeMap;
use std::rc::Rc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader as _};
use arrow_schema::{ArrowError, DataType};
use fedra_data::{Cell, ClassNames, Fields, Message, Mismatch, TableFeatures, messages_of_json};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use serde_json::Value;

/// The name that such a capsule has.
const STREAM: &std::ffi::CStr = c"arrow_array_stream";

/// Batches of one table.
pub struct ArrowTable {
    reader: RecordBatchStreamReader,
    classes: Rc<BTreeMap<String, ClassNames>>,
}

impl ArrowTable {
    /// Takes over the stream of an object with `__arrow_c_stream__`.
    pub fn of(table: &Bound<'_, PyAny>) -> PyResult<Self> {
        let capsule = table.call_method0("__arrow_c_stream__")?;
        let stream = capsule.cast::<PyCapsule>()?.pointer_checked(Some(STREAM))?;
        // SAFETY: a capsule of this name points to a stream of Arrow's C interface, which its producer has filled in.
        // `from_raw` moves it out and leaves a released one behind, so the capsule frees nothing twice.
        let reader = unsafe {
            RecordBatchStreamReader::from_raw(stream.as_ptr().cast::<FFI_ArrowArrayStream>())
        };
        let reader = reader.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let schema = reader.schema();
        let said = schema.metadata().get(TableFeatures::KEY).map_or("", String::as_str);
        let features = TableFeatures::parse(said);
        let names = schema.fields().iter().map(|field| field.name().clone());
        let classes = names.filter_map(|name| Some((name.clone(), features.classes(&name)?)));
        let classes = Rc::new(classes.collect());
        Ok(Self { reader, classes })
    }

    /// Every row of it, batch after batch.
    pub fn rows(self) -> impl Iterator<Item = Result<ArrowRow, ArrowError>> {
        let Self { mut reader, classes } = self;
        let (mut batch, mut next) = (None::<Rc<RecordBatch>>, 0);
        std::iter::from_fn(move || {
            loop {
                if let Some(batch) = batch.as_ref().filter(|batch| next < batch.num_rows()) {
                    let (batch, classes, row) = (Rc::clone(batch), Rc::clone(&classes), next);
                    next += 1;
                    return Some(Ok(ArrowRow { batch, classes, row }));
                }
                match reader.next()? {
                    Ok(read) => (batch, next) = (Some(Rc::new(read)), 0),
                    Err(error) => return Some(Err(error)),
                }
            }
        })
    }
}

/// One row.
pub struct ArrowRow {
    batch: Rc<RecordBatch>,
    classes: Rc<BTreeMap<String, ClassNames>>,
    row: usize,
}

impl ArrowRow {
    /// A column by its name, or a field of a structure by its path.
    fn column(&self, name: &str) -> Option<ArrayRef> {
        if let Some(column) = self.batch.column_by_name(name) {
            return Some(column.clone());
        }
        let (top, inner) = name.split_once('.')?;
        let structure = self.batch.column_by_name(top)?;
        let DataType::Struct(_) = structure.data_type() else { return None };
        if structure.is_null(self.row) {
            return None;
        }
        structure.as_struct().column_by_name(inner).cloned()
    }
}

impl Fields for ArrowRow {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Mismatch> {
        let Some(column) = self.column(name) else { return Ok(None) };
        let cell = cell(&column, self.row).map_err(|found| {
            (
                format!("{found} in column {name:?}"),
                "text, numbers, truth values or lists of them".to_owned(),
            )
        })?;
        match (cell, self.classes.get(name)) {
            (Some(cell), Some(classes)) => classes.of(cell),
            (cell, _) => Ok(cell),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "Arrow has many types, of which few are read"
    )]
    fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, Mismatch> {
        let Some(column) = self.column(name).filter(|column| !column.is_null(self.row)) else {
            return Ok(None);
        };
        Ok(match column.data_type() {
            DataType::Binary => Some(column.as_binary::<i32>().value(self.row).to_vec()),
            DataType::LargeBinary => Some(column.as_binary::<i64>().value(self.row).to_vec()),
            DataType::BinaryView => Some(column.as_binary_view().value(self.row).to_vec()),
            _ => None,
        })
    }

    fn messages(&mut self, name: &str) -> Result<Option<Vec<Message>>, Mismatch> {
        let Some(column) = self.column(name).filter(|column| !column.is_null(self.row)) else {
            return Ok(None);
        };
        let read = nested(&column, self.row).map_err(|found| {
            (
                format!("{found} in column {name:?}"),
                "a list of messages with role and content".to_owned(),
            )
        })?;
        // A text may hold JSON, as in other tables.
        let json = read.as_str().map_or_else(|| read.to_string(), str::to_owned);
        messages_of_json(&json).map(Some)
    }

    fn names(&self) -> Vec<&str> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().as_str()).collect()
    }

    fn are_columns(&self) -> bool {
        true
    }
}

/// The items of a list; nothing where the column has another type.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "Arrow has many types, of which three are lists"
)]
fn items(column: &ArrayRef, row: usize) -> Option<ArrayRef> {
    match column.data_type() {
        DataType::List(_) => Some(column.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Some(column.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => Some(column.as_fixed_size_list().value(row)),
        _ => None,
    }
}

/// A value, or what it is that is not read.
fn cell(column: &ArrayRef, row: usize) -> Result<Option<Cell>, String> {
    if column.is_null(row) {
        return Ok(None);
    }
    if let DataType::Dictionary(..) = column.data_type() {
        let dictionary = column.as_any_dictionary();
        return cell(dictionary.values(), dictionary.normalized_keys()[row]);
    }
    let Some(items) = items(column, row) else {
        return Ok(Some(Cell::One(text(column, row)?)));
    };
    let item = |place: usize| match cell(&items, place)? {
        Some(Cell::One(text)) => Ok(text),
        Some(Cell::List(_)) => Err("a list of lists".to_owned()),
        None => Err("a null inside a list".to_owned()),
    };
    (0..items.len()).map(item).collect::<Result<_, _>>().map(|items| Some(Cell::List(items)))
}

/// A value of any depth as JSON. Fields of a structure that are null are left out: a table gives all items of a list
/// the fields of each.
#[expect(clippy::wildcard_enum_match_arm, reason = "Arrow has many types, of which few are read")]
fn nested(column: &ArrayRef, row: usize) -> Result<Value, String> {
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    if let Some(items) = items(column, row) {
        return (0..items.len()).map(|place| nested(&items, place)).collect();
    }
    match column.data_type() {
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            nested(dictionary.values(), dictionary.normalized_keys()[row])
        }
        DataType::Struct(_) => {
            let structure = column.as_struct();
            let fields = structure.column_names().into_iter().zip(structure.columns());
            let present = fields.filter(|(_, field)| !field.is_null(row));
            let read = present.map(|(name, field)| Ok((name.to_owned(), nested(field, row)?)));
            read.collect::<Result<_, _>>().map(Value::Object)
        }
        _ => text(column, row).map(Value::String),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "Arrow has many types, of which few are read")]
fn text(column: &ArrayRef, row: usize) -> Result<String, String> {
    macro_rules! number {
        ($kind:ty) => {
            column.as_primitive::<$kind>().value(row).to_string()
        };
    }
    Ok(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).to_owned(),
        DataType::Utf8View => column.as_string_view().value(row).to_owned(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float16 => finite(column.as_primitive::<Float16Type>().value(row).to_f32())?,
        DataType::Float32 => finite(column.as_primitive::<Float32Type>().value(row))?,
        DataType::Float64 => finite(column.as_primitive::<Float64Type>().value(row))?,
        other => return Err(format!("a value of type {other}")),
    })
}

/// A number in its shortest spelling, as a Parquet file with it reads.
fn finite<F: Into<f64> + Copy + std::fmt::Debug>(number: F) -> Result<String, String> {
    if number.into().is_finite() { Ok(format!("{number:?}")) } else { Err(format!("{number:?}")) }
}
