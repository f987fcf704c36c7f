//! `fedra report`: the page of a run or a comparison, made again from its files.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use fedra::error::in_words;
use fedra::report::Written;

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
        let [folder] = self.folders.as_slice() else { return self.several() };
        let Written { page, damaged } = fedra::report::write(folder)?;
        console::data(page.display());
        told(damaged)
    }

    /// A folder that has no page leaves the others theirs.
    fn several(&self) -> Result<()> {
        let mut missing = Vec::new();
        for folder in &self.folders {
            match fedra::report::write(folder) {
                Ok(Written { page, damaged }) => {
                    console::data(page.display());
                    missing.extend(damaged);
                }
                Err(error) => missing.push(error),
            }
        }
        told(missing)
    }
}

/// Refuses to end well where pages are missing, and says which.
fn told(mut missing: Vec<fedra::Error>) -> Result<()> {
    let Some(last) = missing.pop() else { return Ok(()) };
    for error in &missing {
        console::say(format_args!("error: {}", in_words(error)));
    }
    Err(last.into())
}
