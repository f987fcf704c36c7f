//! Several experiments over seeds, side by side.
//!
//! ```text
//! files, [compare], --sweep, --tune --> variants x seeds --> checked, all of them
//!     --> tuning runs (validation examples) --> runs --> Comparison --> compare.json, compare.md
//! ```
//!
//! Every run is an ordinary run in an ordinary folder. What is complete is not run again, what was
//! interrupted continues, and what has changed in the file, the data or the weights runs anew.

mod comparison;
mod listener;
mod page;
mod process_pool;
mod progression;
pub(crate) mod report_page;
mod results;
mod statistics;
mod tune;
mod variants;
mod work_plan;
mod workers;
mod written;

pub use comparison::{Comparison, Judged, Line, Row, Standing};
pub use listener::{CompareListener, RunEvent};
pub use page::Page;
pub use process_pool::{INTERRUPTED, ProcessPool};
pub use statistics::{Average, Verdict, quantile};
pub use variants::{Assignment, Variant};
pub use work_plan::{CompareRequest, WorkPlan};
pub use workers::Workers;

use std::path::Path;

use crate::error::Result;
use crate::folder::lock::Lock;
use crate::folder::run_folder::Folder;
use crate::folder::{output_folder, regular_file};
use crate::report::write_page;
use crate::run_files::COMPARISON;
use progression::Progression;

/// What came of a comparison.
pub struct Compared {
    /// The numbers, which are in `compare.json` too.
    pub comparison: Comparison,
    /// Runs that broke down, in words.
    pub failures: Vec<String>,
}

impl Compared {
    /// The text of `compare.json`.
    pub fn json(&self) -> Result<String> {
        let mut json = serde_json::to_string_pretty(&self.comparison)?;
        json.push('\n');
        Ok(json)
    }

    /// The tables.
    pub fn page(&self) -> Page {
        Page::of(&self.comparison)
    }
}

/// Runs what is missing in a folder and compares; `None` when it was asked to stop, and then the same
/// call continues where it was.
pub fn compare(
    plan: &WorkPlan,
    out: &Path,
    workers: &Workers<'_>,
    listener: &dyn CompareListener,
) -> Result<Option<Compared>> {
    Lock::check(out)?;
    output_folder::check_for_several(out, "the comparison")?;
    let (fingerprints, notes) = plan.check(listener.preparation())?;
    for note in &notes {
        listener.preparation().note(note);
    }
    // Held until the tables are written.
    let _held = Folder::claim(out)?;

    let mut progression = Progression::new(plan, (out, fingerprints), listener);
    let Some(done) = progression.run(workers)? else { return Ok(None) };

    let mut comparison = Comparison::of(&plan.name, &plan.seeds, &done.entries);
    comparison.notes.extend(done.notes);
    let compared = Compared { comparison, failures: done.failures };
    let (json, page) = (compared.json()?, compared.page().markdown());
    for (name, text) in [(COMPARISON, json), ("compare.md", page)] {
        regular_file::write(&out.join(name), text.as_bytes())?;
    }
    if let Err(error) = report_page::of_folder(out).and_then(|page| write_page(out, &page)) {
        let warning = format!("warning: there is no page of this comparison: {}", error.in_words());
        listener.preparation().note(&warning);
    }
    Ok(Some(compared))
}
