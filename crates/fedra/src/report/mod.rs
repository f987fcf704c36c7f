//! `report.html`: a run or a comparison as one page that needs no network.
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
mod comparison;
mod curves;
mod cut;
mod facts;
mod labels;
mod learned;
mod privacy;
mod provenance;
mod record;
mod time;

use std::path::{Path, PathBuf};

use fedra_report::{Document, Freshness, Section};

use crate::error::{Context, Error, Result, refuse};
use crate::folder::run_files::{COMPARISON, EXPERIMENT, REPORT};
use fedra_engine::durable;

pub use comparison::{Variant, side_by_side};
pub use record::{CurvePoint, Detail, RunRecord};

/// What was written.
#[derive(Debug)]
pub struct Written {
    /// The page.
    pub page: PathBuf,
    /// Why some runs of a comparison have none.
    pub damaged: Vec<Error>,
}

/// Makes the page of the run or the comparison in a folder. With a comparison, the pages of its runs are made
/// too; a run that cannot be read leaves the others theirs.
pub fn write(folder: &Path) -> Result<Written> {
    let runs = runs_of(folder)?;
    let pages = runs.iter().map(|run| write_page(run, &of_run(run)?));
    let damaged = pages.filter_map(Result::err).collect();
    Ok(Written { page: write_page(folder, &document(folder)?)?, damaged })
}

/// The page of the run or the comparison in a folder.
pub fn document(folder: &Path) -> Result<Document> {
    if folder.join(EXPERIMENT).is_file() {
        return of_run(folder);
    }
    if folder.join(COMPARISON).is_file() {
        return comparison::of_folder(folder);
    }
    refuse!(
        "found neither {EXPERIMENT} nor {COMPARISON} in {}, expected the folder of a run or of a comparison",
        folder.display()
    )
}

/// Writes the page of one run.
pub(crate) fn write_run(folder: &Path) -> Result<PathBuf> {
    write_page(folder, &of_run(folder)?)
}

/// Writes the page of one comparison; its runs have theirs.
pub(crate) fn write_comparison(folder: &Path) -> Result<PathBuf> {
    write_page(folder, &comparison::of_folder(folder)?)
}

/// Writes a page into a folder.
pub fn write_page(folder: &Path, document: &Document) -> Result<PathBuf> {
    let path = folder.join(REPORT);
    durable::write(&path, document.html().as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The complete runs of a comparison; none of a run.
fn runs_of(folder: &Path) -> Result<Vec<PathBuf>> {
    if folder.join(EXPERIMENT).is_file() || !folder.join(COMPARISON).is_file() {
        return Ok(Vec::new());
    }
    let variants = comparison::variants_in(folder)?;
    Ok(variants.into_iter().flat_map(|variant| variant.runs).map(|(_, path)| path).collect())
}

/// The page of a run.
fn of_run(folder: &Path) -> Result<Document> {
    let record = RunRecord::read(folder, Detail::Clients)?;
    let section = |title: &str, contents| Section::new(title, contents);
    let sections = vec![
        section("Result", facts::contents(&record)),
        section("Learning", curves::contents(&record)),
        section("Clients", [clients::contents(&record), client_table::contents(&record)].concat()),
        section("Labels", labels::contents(&record)),
        section("The model", [cut::contents(&record), learned::contents(&record)].concat()),
        section("Cost", [bytes::contents(&record), time::contents(&record)].concat()),
        section("Privacy", privacy::contents(&record)),
        section("How to repeat it", provenance::contents(&record)),
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
