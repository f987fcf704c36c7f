//! JSON lines: one object a line, fields by name, those inside of objects by their path.

use std::path::Path;

use serde_json::{Map, Value};

use super::Reader;
use super::batches::Reading;
use super::columns::{Cell, Complaint, Fields, NoRow};
use super::json::{self, excerpt};
use super::nested;
use super::source::Source;
use crate::{DataError, Result, Row, Stage, TableBuilder, Work};

/// From here on not every whole number is a floating one.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads every line that is not blank.
pub(super) fn read(
    reader: &Reader,
    (path, work): (&Path, &Work<'_>),
    builder: &mut TableBuilder,
) -> Result<()> {
    if let Some(rows) = &reader.columns.rows {
        return read_nested(reader, (path, work), rows, builder);
    }
    let (mut source, task) = (Source::open(path, reader)?, builder.task());
    Reading { reader, path, work }.read(
        builder,
        |batch| loop {
            let Some(line) = source.next_line()? else { return Ok(None) };
            if !line.trim().is_empty() {
                batch.text.extend_from_slice(line.as_bytes());
                batch.text.push(b'\n');
                batch.end_record(source.line());
                return Ok(Some(source.taken()));
            }
        },
        |batch| {
            let row = |(line, record): (u64, &[u8])| {
                let record = json::object(&String::from_utf8_lossy(record)).map_err(NoRow::Wrong);
                (line, record.and_then(|mut record| reader.row(task, &mut record)))
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
    let mut source = Source::open(path, reader)?;
    let total = std::fs::metadata(path).map_or(0, |file| file.len());
    let mut made = 0;
    while let Some(line) = source.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        let complain = |source: &Source, (found, expected): Complaint| {
            DataError::row(source.file(), source.line(), found, expected)
        };
        let record = json::object(line).map_err(|complaint| complain(&source, complaint))?;
        let mut failure = None;
        let outcome = nested::rows(&record, rows, &mut |fields| {
            let row = reader.row(builder.task(), fields);
            made += row.as_ref().map_or(0, Row::bytes);
            let limit = reader.limits.expanded_bytes;
            let pushed = if made > limit {
                Err(source.too_large("expanded data", limit))
            } else {
                reader.push(row, (source.file(), source.line()), builder)
            };
            pushed.map_err(|error| {
                failure = Some(error);
                (String::new(), String::new())
            })
        });
        if let Some(error) = failure {
            return Err(error);
        }
        outcome.map_err(|complaint| complain(&source, complaint))?;
        work.tell(Stage::Reading, source.taken().min(total), total)?;
    }
    Ok(())
}

/// Shows every record until that is enough. Objects inside a record are shown as the paths that lead
/// through them.
pub(super) fn each(
    reader: &Reader,
    path: &Path,
    each: &mut dyn FnMut(&mut dyn Fields) -> bool,
) -> Result<()> {
    let mut source = Source::open(path, reader)?;
    while let Some(line) = source.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        let record = json::object(line).map_err(|(found, expected)| {
            DataError::row(source.file(), source.line(), found, expected)
        })?;
        if !each(&mut flat(record)) {
            break;
        }
    }
    Ok(())
}

/// A record whose objects have become paths.
fn flat(record: Map<String, Value>) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in record {
        match value {
            Value::Object(inner) => {
                let inner = flat(inner).into_iter();
                all.extend(inner.map(|(key, value)| (format!("{name}.{key}"), value)));
            }
            other @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)) => drop(all.insert(name, other)),
        }
    }
    all
}

impl Fields for Map<String, Value> {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Complaint> {
        match self.get_mut(name).map(Value::take) {
            Some(value) => cell(name, value),
            None => nested::at(self, name).map_or(Ok(None), |value| cell(name, value.clone())),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.keys().map(String::as_str).collect()
    }

    fn are_columns(&self) -> bool {
        false
    }
}

/// A value as a field of a record; `None` for null.
pub(super) fn cell(name: &str, value: Value) -> Result<Option<Cell>, Complaint> {
    match value {
        Value::Null => Ok(None),
        Value::Array(items) => items
            .into_iter()
            .map(|item| scalar(name, item))
            .collect::<Result<_, _>>()
            .map(|items| Some(Cell::List(items))),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            scalar(name, value).map(|text| Some(Cell::One(text)))
        }
    }
}

fn scalar(name: &str, value: Value) -> Result<String, Complaint> {
    match value {
        Value::String(text) => Ok(text),
        // A number that does not fit was rounded: two of them may have become one.
        Value::Number(number)
            if number.as_f64().is_some_and(|n| n.abs() >= EXACT) && number.is_f64() =>
        {
            let found = format!("a number as large as {number} in {name:?}");
            Err((found, "text, or numbers that a computer holds exactly".to_owned()))
        }
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        other @ (Value::Null | Value::Array(_) | Value::Object(_)) => {
            let found = format!("{} in {name:?}", excerpt(&other.to_string()));
            Err((found, "text, numbers or a flat list of them".to_owned()))
        }
    }
}
