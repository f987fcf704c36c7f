//! The page of whatever is in a folder: a run, or a comparison with its runs.

use std::path::{Path, PathBuf};

use fedra_report::Document;

use crate::error::{Error, Result, refuse};
use crate::report::{of_run, write_page, write_run};
use crate::run_files::{COMPARISON, EXPERIMENT};
use crate::study::compare::report_page;

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
    let mut variants = Vec::new();
    if !folder.join(EXPERIMENT).is_file() && folder.join(COMPARISON).is_file() {
        variants = report_page::variants_in(folder)?;
    }
    let runs = variants.iter().flat_map(|variant| &variant.runs);
    let damaged = runs.filter_map(|(_, run)| write_run(run).err()).collect();
    Ok(Written { page: write_page(folder, &document(folder)?)?, damaged })
}

/// The page of the run or the comparison in a folder.
pub fn document(folder: &Path) -> Result<Document> {
    if folder.join(EXPERIMENT).is_file() {
        return of_run(folder);
    }
    if folder.join(COMPARISON).is_file() {
        return report_page::of_folder(folder);
    }
    refuse!(
        "found neither {EXPERIMENT} nor {COMPARISON} in {}, expected the folder of a run or of a comparison",
        folder.display()
    )
}
