//! `fedra report`: the page of a run or a comparison, made again from its files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use fedra::apply::pages::{self, Written};
use fedra::error::in_words;
use fedra::run_files::{COMPARISON, EXPERIMENT};
use fedra::text::grid::counted;

use crate::console;
use crate::status::comparison;

const EXAMPLES: &str = "\
Examples:
  fedra report runs/clinic-concepts
  fedra report runs/compare-safl

With a comparison, the pages of its runs are made again too. A page needs no network.";

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
        let mut missing = Vec::new();
        for folder in &self.folders {
            match page_of(folder) {
                Ok(damaged) => missing.extend(damaged),
                Err(error) => missing.push(error),
            }
        }
        // A folder that has no page leaves the others theirs.
        let Some(last) = missing.pop() else { return Ok(()) };
        for error in &missing {
            console::say(format_args!("error: {}", in_words(error.as_ref())));
        }
        Err(last)
    }
}

/// Makes the page of a folder; says why runs in it have none.
fn page_of(folder: &Path) -> Result<Vec<anyhow::Error>> {
    check(folder)?;
    let Written { page, damaged } = pages::write(folder)?;
    console::data(page.display());
    Ok(damaged.into_iter().map(anyhow::Error::from).collect())
}

/// Refuses a folder of several runs by what it is.
fn check(folder: &Path) -> Result<()> {
    let shown = folder.display();
    if !folder.is_dir() {
        bail!("there is no folder {shown}: give the folder of a run or a comparison");
    }
    if [EXPERIMENT, COMPARISON].iter().any(|name| folder.join(name).exists()) {
        return Ok(());
    }
    let runs = runs_in(folder);
    if let Some(first) = runs.first() {
        bail!(
            "DIR: {shown} contains {}; name the folder of one of them\nhint: fedra report {}",
            counted(runs.len() as u64, "run"),
            first.display()
        );
    }
    if let Some(run) = comparison::runs(folder).first() {
        bail!(
            "DIR: the comparison in {shown} is not complete: {COMPARISON} is missing\n\
             hint: the same fedra compare command resumes it; fedra report {} makes the page of one run",
            folder.join(run).display()
        );
    }
    Ok(())
}

/// The runs right inside, by name. What cannot be read holds none.
fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut runs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    runs.retain(|run| run.join(EXPERIMENT).is_file());
    runs.sort();
    runs
}
