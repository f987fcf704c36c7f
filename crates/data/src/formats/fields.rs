//! The fields of a record, however it is written, and what is said where one is not there.

use crate::error::Mismatch;
use crate::{Advice, Message};

/// One field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A single value.
    One(String),
    /// A list of values.
    List(Vec<String>),
}

/// Most columns that an error lists.
const MOST_NAMES: usize = 12;

/// Why a record makes no row.
#[derive(Debug)]
pub(super) struct NoRow {
    /// What is wrong with it.
    pub mismatch: Mismatch,
    /// Whether it merely has no text or no label: what becomes of it is `data.missing`'s to say.
    pub is_missing: bool,
    /// A setting that would help.
    pub advice: Option<Advice>,
}

impl NoRow {
    /// The same with other advice, where there is any.
    pub fn advising(self, advice: Option<&Advice>) -> Self {
        Self { advice: advice.cloned().or(self.advice), ..self }
    }
}

impl From<Mismatch> for NoRow {
    fn from(mismatch: Mismatch) -> Self {
        Self { mismatch, is_missing: false, advice: None }
    }
}

/// The fields of one record by name. A complaint is what was found and what was expected.
pub trait Fields {
    /// Reads a field, as often as it is asked for; `Ok(None)` when it is absent or null.
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Mismatch>;

    /// Reads a field of bytes that are no text, such as an encoded image; `Ok(None)` where there is none.
    fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, Mismatch>;

    /// Reads a field of messages; `Ok(None)` when it is absent or null.
    fn messages(&mut self, name: &str) -> Result<Option<Vec<Message>>, Mismatch>;

    /// The names of all fields.
    fn names(&self) -> Vec<&str>;

    /// Whether every record has the same fields, as rows of a table do: one that is not there is then
    /// no value that a single row lacks.
    fn are_columns(&self) -> bool {
        false
    }
}

/// Why a record without a value for any of these columns makes no row: the row lacks it, or the table
/// has no such column. `key` is the one that could name another.
pub(super) fn absent(fields: &dyn Fields, names: &[&str], key: Option<&str>) -> NoRow {
    let there = fields.names();
    let name = names.iter().find(|name| there.contains(name)).unwrap_or(&names[0]);
    let is_missing = !fields.are_columns() || there.contains(name);
    let named = |key: &str| Advice::new(format!("data.columns.{key}"), None, "names another");
    NoRow { mismatch: missing(fields, name), is_missing, advice: key.map(named) }
}

/// What a record has where a column is due.
pub(super) fn missing(fields: &dyn Fields, name: &str) -> Mismatch {
    let names = fields.names();
    let found = if names.contains(&name) {
        "no value".to_owned()
    } else {
        let shown: Vec<String> =
            names.iter().take(MOST_NAMES).map(|name| format!("{name:?}")).collect();
        let more = if names.len() > MOST_NAMES { " and more" } else { "" };
        format!("the columns {}{more}", shown.join(", "))
    };
    (found, format!("column {name:?}"))
}

pub(super) fn single(cell: Cell, joiner: &str) -> String {
    match cell {
        Cell::One(text) => text,
        Cell::List(parts) => parts.join(joiner),
    }
}
