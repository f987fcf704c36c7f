//! Parquet through the `parquet` crate, row by row and only the columns that are asked for.
//!
//! Behind a feature that is off, because of what it costs to build. Rows are counted from 1 and
//! stand in the place of lines in complaints.

use std::fs::File;
use std::path::Path;

use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::Reader;
use super::columns::{Cell, Complaint, Fields};
use crate::{DataError, Result, TableBuilder};

/// Reads every row of a file.
pub(super) fn read(reader: &Reader, path: &Path, builder: &mut TableBuilder) -> Result<()> {
    let broken = |error: parquet::errors::ParquetError| {
        DataError::file(path, format!("{error}"), "a Parquet file")
    };
    let file = File::open(path).map_err(|error| DataError::io("open", path, error))?;
    let rows = SerializedFileReader::new(file).map_err(broken)?;
    let expanded: i64 =
        rows.metadata().row_groups().iter().map(RowGroupMetaData::total_byte_size).sum();
    if expanded < 0 || expanded as u64 > reader.limits.expanded_bytes {
        let (file, limit) = (path.to_owned(), reader.limits.expanded_bytes);
        return Err(DataError::TooLarge { file, line: 1, what: "expanded data", limit });
    }
    for (number, row) in rows.get_row_iter(None).map_err(broken)?.enumerate() {
        let number = number as u64 + 1;
        let mut record = Record { fields: row.map_err(broken)?.into_columns() };
        let row = reader.columns.row(builder.task(), &mut record);
        let row = row.map_err(|(found, expected)| DataError::row(path, number, found, expected))?;
        reader.push(row, (path, number), builder)?;
    }
    Ok(())
}

struct Record {
    fields: Vec<(String, Field)>,
}

impl Fields for Record {
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is no list is a scalar or refused")]
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Complaint> {
        let Some(place) = self.fields.iter().position(|(column, _)| column == name) else {
            return Ok(None);
        };
        match self.fields.swap_remove(place).1 {
            Field::Null => Ok(None),
            Field::ListInternal(list) => {
                let items = list.elements().iter().map(|item| scalar(name, item));
                Ok(Some(Cell::List(items.collect::<Result<_, _>>()?)))
            }
            single => Ok(Some(Cell::One(scalar(name, &single)?))),
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every other kind of field is refused alike")]
fn scalar(name: &str, field: &Field) -> Result<String, Complaint> {
    match field {
        Field::Str(text) => Ok(text.clone()),
        Field::Bool(truth) => Ok(truth.to_string()),
        Field::Byte(number) => Ok(number.to_string()),
        Field::Short(number) => Ok(number.to_string()),
        Field::Int(number) => Ok(number.to_string()),
        Field::Long(number) => Ok(number.to_string()),
        Field::UByte(number) => Ok(number.to_string()),
        Field::UShort(number) => Ok(number.to_string()),
        Field::UInt(number) => Ok(number.to_string()),
        Field::ULong(number) => Ok(number.to_string()),
        other => {
            let found = format!("{other} in {name:?}");
            Err((found, "text, whole numbers or a flat list of them".to_owned()))
        }
    }
}
