//! `rounds.parquet`: the table of `rounds.csv` in one row group, whole numbers as INT64 and others as
//! DOUBLE, null where a round lacks the number. It has a footer, so it is written when the rounds end.

use std::sync::Arc;

use parquet::basic::{Repetition, Type as Physical};
use parquet::data_type::{DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::row::{Column, Number, Rows};

/// The bytes of the file.
pub fn encoded(rows: &Rows) -> Result<Vec<u8>> {
    let field = |column: &Column| {
        let physical = if is_real(rows, column) { Physical::DOUBLE } else { Physical::INT64 };
        let field = Type::primitive_type_builder(&column.name, physical);
        field.with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
    };
    let fields = rows.columns.iter().map(field).collect::<Result<Vec<_>>>()?;
    let schema = Arc::new(Type::group_type_builder("rounds").with_fields(fields).build()?);
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    // A group without a column or a row is none that readers know.
    if !rows.columns.is_empty() {
        let mut group = writer.next_row_group()?;
        for name in &rows.columns {
            let Some(mut column) = group.next_column()? else { break };
            let cells = || rows.rows.iter().map(|row| row.get(name).copied());
            let present: Vec<i16> = cells().map(|cell| i16::from(cell.is_some())).collect();
            if is_real(rows, name) {
                let values: Vec<f64> = cells().flatten().map(Number::as_f64).collect();
                column.typed::<DoubleType>().write_batch(&values, Some(&present), None)?;
            } else {
                let values: Vec<i64> = cells().flatten().map(whole).collect();
                column.typed::<Int64Type>().write_batch(&values, Some(&present), None)?;
            }
            column.close()?;
        }
        group.close()?;
    }
    writer.into_inner()
}

fn is_real(rows: &Rows, column: &Column) -> bool {
    rows.rows.iter().any(|row| matches!(row.get(column), Some(Number::Real(_))))
}

/// A count as Parquet's signed number; nothing that is counted comes near its end.
fn whole(number: Number) -> i64 {
    match number {
        Number::Count(count) => i64::try_from(count).unwrap_or(i64::MAX),
        Number::Real(real) => real as i64,
    }
}
