//! `fedra lab`: questions small enough to be answered exactly.

mod bridge;
mod frozen;
mod plots;

use anyhow::Result;
use clap::Subcommand;

/// Which laboratory.
#[derive(Subcommand)]
pub enum Lab {
    /// FedFrozen with linear attention: closed forms, curves, and which predictions hold
    Frozen(frozen::Frozen),
    /// Freezing with linear attention, softmax attention, and softmax attention with an MLP
    Bridge(bridge::Bridge),
}

impl Lab {
    /// Runs it, writes its files and prints what was seen.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Frozen(frozen) => frozen.run(),
            Self::Bridge(bridge) => bridge.run(),
        }
    }
}
