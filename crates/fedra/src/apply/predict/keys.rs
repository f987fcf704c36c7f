//! The keys of all rows of a file, in the order in which they are first seen.
//!
//! A table has its header before its rows, and a row of JSON lines may have a key that none before it had.
//! So a file is read twice: once for its keys, of which only the names are held, and once for its rows. What
//! cannot be read twice, such as standard input, has the keys of the rows that are answered first; a key
//! that comes later is refused ([`super::output`]).

use std::collections::BTreeSet;

use fedra_data::{DataError, Record, TextFile, TextRow, TextSink};

use crate::config::ConfigError;
use crate::error::{Error, Result};

/// Columns that a table can have.
const MOST: usize = 10_000;

/// The keys of the rows of a file that can be read.
pub(super) fn keys_of(file: &TextFile) -> Result<Vec<String>> {
    let mut keys = Keys::default();
    file.read(None, &mut keys)?;
    Ok(keys.names)
}

/// Names, each once.
#[derive(Default)]
pub(super) struct Keys {
    pub names: Vec<String>,
    seen: BTreeSet<String>,
}

impl Keys {
    /// Takes note of a row's keys.
    pub(super) fn note(&mut self, record: &Record) -> Result<()> {
        for (name, _) in &record.fields {
            if self.seen.contains(name) {
                continue;
            }
            let found = format_args!("more than {MOST} different keys in the rows");
            ConfigError::new("output", found, "fewer in a table")
                .with_hint("jsonl needs no columns")
                .when(self.names.len() == MOST)?;
            self.seen.insert(name.clone());
            self.names.push(name.clone());
        }
        Ok(())
    }
}

impl TextSink for Keys {
    type Error = Error;

    fn columns(&mut self, _names: &[String]) -> Result<()> {
        Ok(())
    }

    fn row(&mut self, row: TextRow) -> Result<()> {
        self.note(&row.record)
    }

    /// It is told, or left out, when rows are answered.
    fn bad_row(&mut self, _error: DataError) -> Result<()> {
        Ok(())
    }
}
