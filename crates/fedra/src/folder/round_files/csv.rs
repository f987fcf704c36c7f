//! `rounds.csv`: a line a round, appended as rounds complete.
//!
//! A column that was not there before (scores, where only some rounds are scored) has to stand in the
//! header, so the file is then written again as a whole. An absent number is an empty cell.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::row::{Number, Row, Rows};
use crate::run_files::ROUNDS_CSV;
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
        let names = rows.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
        let header = Some(names).filter(|names| !names.is_empty());
        let all = header.into_iter().chain(rows.rows.iter().map(|row| cells(rows, row)));
        durable::write(&path, &lines(all)?)?;
        let file = File::options().append(true).open(&path)?;
        Ok(Self { file, columns: rows.columns.len() })
    }

    /// Adds the last round.
    pub fn append(&mut self, folder: &Path, rows: &Rows) -> io::Result<()> {
        if rows.columns.len() != self.columns {
            *self = Self::create(folder, rows)?;
            return Ok(());
        }
        let Some(last) = rows.rows.last() else { return Ok(()) };
        self.file.write_all(&lines([cells(rows, last)])?)
    }
}

fn cells(rows: &Rows, row: &Row) -> Vec<String> {
    let cell = |number: &Number| match number {
        Number::Count(count) => count.to_string(),
        Number::Real(real) => real.to_string(),
    };
    rows.columns.iter().map(|name| row.get(name).map(cell).unwrap_or_default()).collect()
}

/// Names of scores come from clients, who may be anybody: cells are quoted where they have to be.
fn lines(records: impl IntoIterator<Item = Vec<String>>) -> io::Result<Vec<u8>> {
    let mut table = csv::Writer::from_writer(Vec::new());
    for record in records {
        table.write_record(record)?;
    }
    table.into_inner().map_err(csv::IntoInnerError::into_error)
}
