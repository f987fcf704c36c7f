//! The ledger of a run that has been, held against what else its folder tells of it.

use std::path::Path;

use fedra_engine::{Account, EngineError};
use fedra_privacy::{Ledger, shown};

use crate::error::{Result, refuse};
use crate::folder::json_file;
use crate::folder::summary::Summary;
use crate::run_files::SUMMARY;

/// Reads a ledger; refuses one that was edited, one that ends before `ledger.end` or the checkpoint beside it says,
/// and one that spent less than the summary beside it says.
pub fn read(file: &Path) -> Result<Ledger> {
    let ledger = Account::read_ledger(file)?;
    // One of another version tells nothing here.
    let summary = json_file::read(&file.with_file_name(SUMMARY), "summary");
    let Ok(Summary { privacy: Some(privacy), rounds, .. }) = summary else { return Ok(ledger) };
    let expected = privacy.epsilon.unwrap_or(f64::INFINITY);
    let found = ledger.spent().map_err(EngineError::from)?.pld;
    if found < expected {
        refuse!(
            "{}: found an epsilon of {}, expected the {} of the {rounds} rounds in {SUMMARY}: the ledger was \
             shortened, or belongs to another run",
            file.display(),
            shown::up(found, 3),
            shown::up(expected, 3),
        );
    }
    Ok(ledger)
}
