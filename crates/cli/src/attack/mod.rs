//! `fedra attack`: what somebody who sees part of a run can read back.

mod findings;
mod lines;
mod membership;
mod split;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Which attack.
#[derive(Subcommand)]
pub enum Attack {
    /// Reconstruct text from the hidden states that a split decoder sends to the server
    #[command(after_help = split::HELP)]
    Split(Box<split::Split>),
    /// Infer which rows a released model was trained on
    #[command(after_help = membership::HELP)]
    Membership(membership::Membership),
}

impl Attack {
    /// Runs it and tells what was found.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Self::Split(split) => split.run().map(|()| ExitCode::SUCCESS),
            Self::Membership(membership) => membership.run(),
        }
    }
}
