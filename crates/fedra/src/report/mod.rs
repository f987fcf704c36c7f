//! `report.html` of a run: one page that needs no network.
//!
//! ```text
//! folder -> RunRecord (experiment.toml, rounds.jsonl, summary.json) -> sections -> fedra_report::Document -> HTML
//! ```
//!
//! A page is made from files alone, so it can be made again at any time, by whoever has the folder, and
//! while the run is still on. What was not measured is not drawn. A section is a file here: each takes a
//! record and returns contents, or none.

mod binned;
mod bytes;
mod charts;
mod client_table;
mod clients;
mod curves;
mod cut;
mod facts;
mod labels;
mod learned;
mod privacy;
mod provenance;
mod record;
mod side_by_side;
mod time;

use std::path::{Path, PathBuf};

use fedra_report::{Document, Freshness, Section};

use crate::error::Result;
use crate::folder::regular_file;
use crate::run_files::REPORT;

pub(crate) use facts::spoken;
pub use record::{CurvePoint, Detail, RunRecord};
pub use side_by_side::{Variant, side_by_side};
pub(crate) use side_by_side::{curves, links};

/// Writes the page of one run.
pub(crate) fn write_run(folder: &Path) -> Result<PathBuf> {
    write_page(folder, &of_run(folder)?)
}

/// Writes a page into a folder.
pub fn write_page(folder: &Path, document: &Document) -> Result<PathBuf> {
    let path = folder.join(REPORT);
    regular_file::write(&path, document.html().as_bytes())?;
    Ok(path)
}

/// The page of a run.
pub(crate) fn of_run(folder: &Path) -> Result<Document> {
    let record = RunRecord::read(folder, Detail::Clients)?;

    let sections = vec![
        Section::new("Result", facts::contents(&record)),
        Section::new("Learning", curves::contents(&record)),
        Section::new(
            "Clients",
            [clients::contents(&record), client_table::contents(&record)].concat(),
        ),
        Section::new("Labels", labels::contents(&record)),
        Section::new("The model", [cut::contents(&record), learned::contents(&record)].concat()),
        Section::new("Cost", [bytes::contents(&record), time::contents(&record)].concat()),
        Section::new("Privacy", privacy::contents(&record)),
        Section::new("How to repeat it", provenance::contents(&record)),
    ];
    Ok(Document {
        title: record.name(),
        lead: vec![facts::lead(&record)],
        sections,
        freshness: Freshness::Fixed,
    })
}

#[cfg(test)]
mod tests;
