//! Where a row stood in what it was read from, so that whoever complains about it later can say so.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A file and a line of it; neither for rows that a program made.
///
/// It is no part of what a row is: rows that hold the same are equal wherever they stand.
#[derive(Clone, Debug, Default)]
pub struct RowPlace(Option<(Arc<Path>, u64)>);

impl RowPlace {
    /// The place of a line, or of a row of a Parquet file, from 1; 0 stands for a whole file.
    pub fn new(file: Arc<Path>, line: u64) -> Self {
        Self(Some((file, line)))
    }

    /// The file and the line, where there are any.
    pub fn get(&self) -> Option<(&Path, u64)> {
        self.0.as_ref().map(|(file, line)| (file.as_ref(), *line))
    }
}

impl PartialEq for RowPlace {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for RowPlace {}

/// `notes.csv:17`, or words for a row that no file holds.
impl fmt::Display for RowPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some((file, 0)) => write!(out, "{}", file.display()),
            Some((file, line)) => write!(out, "{}:{line}", file.display()),
            None => out.write_str("a row of a program"),
        }
    }
}
