//! JSON lines: one object a line, fields by name.

use std::path::Path;

use serde_json::{Map, Value};

use super::Reader;
use super::columns::{Cell, Complaint, Fields};
use super::source::Source;
use crate::{DataError, Result, TableBuilder};

/// From here on not every whole number is a floating one.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads every line that is not blank.
pub(super) fn read(reader: &Reader, path: &Path, builder: &mut TableBuilder) -> Result<()> {
    let mut source = Source::open(path, reader)?;
    while let Some(line) = source.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        let record = serde_json::from_str::<Map<String, Value>>(line);
        let row = record
            .map_err(|error| (format!("{} ({error})", excerpt(line)), "a JSON object".to_owned()))
            .and_then(|mut record| reader.columns.row(builder.task(), &mut record));
        let row = row.map_err(|(found, expected)| {
            DataError::row(source.file(), source.line(), found, expected)
        })?;
        reader.push(row, (source.file(), source.line()), builder)?;
    }
    Ok(())
}

impl Fields for Map<String, Value> {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Complaint> {
        match self.get_mut(name).map(Value::take) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(items)) => items
                .into_iter()
                .map(|item| scalar(name, item))
                .collect::<Result<_, _>>()
                .map(|items| Some(Cell::List(items))),
            Some(value) => scalar(name, value).map(|text| Some(Cell::One(text))),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.keys().map(String::as_str).collect()
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

/// The start of a text, short enough for a message.
fn excerpt(text: &str) -> String {
    let mut start: String = text.chars().take(40).collect();
    if start.len() < text.len() {
        start.push_str("..");
    }
    start
}
