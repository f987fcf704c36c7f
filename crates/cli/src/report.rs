//! `fedra report`: the page of a run or a comparison, made again from its files.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::console;

const EXAMPLES: &str = "\
Examples:
  fedra report runs/clinic-concepts
  fedra report runs/compare-safl

`fedra run`, `fedra serve` and `fedra compare` leave report.html in their folder. This makes it again from
the other files there: after an update of fedra, or while a run is still on. With a comparison, the
pages of its runs are made again too. The page needs no network and holds all it shows.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Report {
    /// Folders of runs or comparisons
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
}

impl Report {
    /// Makes the pages and prints where they are.
    pub fn run(self) -> Result<()> {
        for folder in &self.folders {
            console::data(fedra::report::write(folder)?.display());
        }
        Ok(())
    }
}
