//! `fedra attack`: what somebody who sees part of a run can read back.

mod lines;
mod split;
mod telling;

use anyhow::Result;
use clap::Subcommand;

/// Which attack.
#[derive(Subcommand)]
pub enum Attack {
    /// Read text back from the hidden states that a cut decoder sends to the server
    #[command(after_help = split::HELP)]
    Split(Box<split::Split>),
}

impl Attack {
    /// Runs it and tells what was found.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Split(split) => split.run(),
        }
    }
}
