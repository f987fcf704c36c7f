//! `rounds.csv`: a line a round, appended as rounds complete.
//!
//! A column that was not there before (scores, where only some rounds are scored) has to stand in the
//! header, so the file is then written again as a whole. An absent number is an empty cell.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::row::{Number, Row, Rows};
use crate::folder::run_files::ROUNDS_CSV;
use fedra_engine::durable;

/// The file of a run that is on.
pub struct CsvFile {
    file: File,
    columns: usize,
}

impl CsvFile {
    /// Writes all rounds so far, in place of whatever is there.
    pub fn create(folder: &Path, rows: &Rows) -> io::Result<Self> {
        let path = folder.join(ROUNDS_CSV);
        let names: Vec<String> = rows.columns().iter().map(|column| quoted(&column.name)).collect();
        let mut text = String::new();
        if !names.is_empty() {
            text = names.join(",") + "\n";
        }
        rows.rows().iter().for_each(|row| text.push_str(&line(rows, row)));
        durable::write(&path, text.as_bytes())?;
        let file = File::options().append(true).open(&path)?;
        Ok(Self { file, columns: rows.columns().len() })
    }

    /// Adds the last round.
    pub fn append(&mut self, folder: &Path, rows: &Rows) -> io::Result<()> {
        if rows.columns().len() != self.columns {
            *self = Self::create(folder, rows)?;
            return Ok(());
        }
        let Some(last) = rows.rows().last() else { return Ok(()) };
        self.file.write_all(line(rows, last).as_bytes())
    }
}

fn line(rows: &Rows, row: &Row) -> String {
    let cell = |number: &Number| match number {
        Number::Count(count) => count.to_string(),
        Number::Real(real) => real.to_string(),
    };
    let cells: Vec<String> =
        rows.columns().iter().map(|name| row.get(name).map(cell).unwrap_or_default()).collect();
    cells.join(",") + "\n"
}

/// A name as a cell. Names of scores come from clients, who may be anybody.
fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}
