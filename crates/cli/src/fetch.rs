//! `fedra fetch`: models of the Hugging Face hub into the cache, ahead of what needs them.

use anyhow::Result;
use clap::Args;
use fedra::hub::ModelName;

use crate::flags::Quiet;
use crate::{console, hub};

const EXAMPLES: &str = "\
Examples:
  fedra fetch hf:sentence-transformers/all-MiniLM-L6-v2
  fedra fetch hf:HuggingFaceTB/SmolLM2-135M@main

Prints the name with its commit, as an experiment should have it. A name without a revision, or
with a branch, becomes what the hub has today; with a commit that is in the cache, no connection
is made. docs/models.md says where models are kept and which variables are honoured.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Fetch {
    /// A model of the hub
    #[arg(value_name = "hf:ORG/NAME[@REVISION]", required = true)]
    models: Vec<ModelName>,
    #[command(flatten)]
    quiet: Quiet,
}

impl Fetch {
    /// Fetches, and prints what an experiment should say.
    pub fn run(&self) -> Result<()> {
        for name in &self.models {
            let fetched = hub::fetch(name, self.quiet.voice())?;
            console::data(fetched.snapshot.name);
        }
        Ok(())
    }
}
