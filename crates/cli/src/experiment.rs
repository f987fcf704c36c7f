//! An experiment on the command line: a file, and what overrides its keys.

use std::path::PathBuf;

use clap::Args;
use fedra::Experiment;
use fedra::config::Party;

use crate::device::DeviceFlags;
use crate::flags::{Verbosity, parse_seed};
use crate::hub;

/// A file and what overrides it.
#[derive(Args, Clone, Debug)]
pub struct Written {
    /// Experiment file in TOML
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
}

/// What overrides the keys of a file.
#[derive(Args, Clone, Debug, Default)]
pub struct Overrides {
    /// Override one key, as in method.k=3; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Override the seed
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    seed: Option<u64>,
}

impl Written {
    /// Reads and checks it; models of the hub that it names and this machine lacks are fetched.
    pub fn fetched(&self, device: DeviceFlags, voice: Verbosity) -> fedra::Result<Experiment> {
        hub::opened(voice, || self.experiment(device))
    }

    /// Reads and checks it, and makes no connection.
    pub fn experiment(&self, device: DeviceFlags) -> fedra::Result<Experiment> {
        Experiment::open(&self.file, &device.over(self.overrides.as_given()))
    }

    /// The same for one party of a federation over a network.
    pub fn experiment_for(&self, party: Party) -> fedra::Result<Experiment> {
        Experiment::open_for(&self.file, Some(party), &self.overrides.as_given())
    }
}

impl Overrides {
    /// Whether anything is overridden.
    pub fn is_given(&self) -> bool {
        !self.sets.is_empty() || self.seed.is_some()
    }

    /// The same for the library.
    pub fn as_given(&self) -> fedra::Overrides {
        fedra::Overrides::new(self.sets.clone(), self.seed)
    }
}
