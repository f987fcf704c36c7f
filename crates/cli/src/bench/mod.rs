//! `fedra bench`: measurements that another person can repeat.

mod memory;
mod step;

use anyhow::Result;
use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// One training step: forward, backward, AdamW.
    Step(step::Step),
}

impl Bench {
    /// Measures and prints.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Step(step) => step.run(),
        }
    }
}
