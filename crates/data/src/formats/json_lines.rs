//! JSON lines: one object a line, fields by name, those inside of objects by their path.

use std::path::Path;

use super::batches;
use super::fields::NoRow;
use super::json::{self, DEEPEST};
use super::nested::{self, Nested};
use super::reader::Reader;
use super::source::Source;
use crate::error::Mismatch;
use crate::{DataError, Result, Row, Stage, TableBuilder, Work};

/// Reads every line that is not blank.
pub(super) fn read(
    reader: &Reader,
    (path, work): (&Path, &Work<'_>),
    builder: &mut TableBuilder,
) -> Result<()> {
    if let Some(rows) = &reader.columns.rows {
        return read_nested(reader, (path, work), rows, builder);
    }
    let (mut source, task) = (Source::open(path, reader)?.of_records()?, builder.task);
    batches::read(
        reader,
        (path, work),
        builder,
        |batch| loop {
            let Some(line) = source.next_line()? else { return Ok(None) };
            if !line.trim().is_empty() {
                batch.text.extend_from_slice(line.as_bytes());
                batch.text.push(b'\n');
                batch.end_record(source.line);
                return Ok(Some(source.taken()));
            }
        },
        |batch| {
            let row = |(line, record): (u64, &[u8])| {
                let record = json::object(&String::from_utf8_lossy(record), DEEPEST);
                let row = record.map_err(NoRow::from);
                (line, row.and_then(|record| reader.row(task, &mut Nested::whole(&record))))
            };
            batch.records().map(row).collect()
        },
    )
}

/// Reads records that hold a list of rows each, one after another: every row repeats what its record says
/// once, so what a record becomes is bounded while it is made.
fn read_nested(
    reader: &Reader,
    (path, work): (&Path, &Work<'_>),
    rows: &str,
    builder: &mut TableBuilder,
) -> Result<()> {
    let mut source = Source::open(path, reader)?.of_records()?;
    let total = std::fs::metadata(path).map_or(0, |file| file.len());
    let mut made = 0;
    while let Some(line) = source.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        let complain = |source: &Source, (found, expected): Mismatch| {
            DataError::row(&source.file, source.line, found, expected)
        };
        let record = json::object(line, DEEPEST).map_err(|mismatch| complain(&source, mismatch))?;
        let found = nested::rows(&record, rows);
        for mut fields in found.map_err(|mismatch| complain(&source, mismatch))? {
            let row = reader.row(builder.task, &mut fields);
            made += row.as_ref().map_or(0, Row::bytes);
            let limit = reader.limits.expanded_bytes;
            if made > limit {
                return Err(source.too_large("expanded data", limit));
            }
            reader.push(row, (&source.file, source.line), builder)?;
        }
        work.tell(Stage::Reading, source.taken().min(total), total)?;
    }
    Ok(())
}
