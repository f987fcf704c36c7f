//! Federated fine-tuning of Transformers.

pub mod complaint;
pub mod error;
pub mod experiment;

pub mod holdings;
pub mod prepared;

pub mod advise;
pub mod compare;
pub mod federate;
pub mod listener;
pub mod plan;
pub mod run;

pub mod summary;

mod activations;
pub mod baseline;
pub mod best;
mod classes;
mod durable;
pub mod fingerprint;
pub mod folder;
pub mod forecast;
pub mod grid;
mod lock;
pub mod memory;
pub mod output_folder;
pub mod process;
pub mod remarks;
mod round_log;
pub mod run_files;
pub mod run_memory;
pub mod state_placement;
pub mod state_size;
mod untrained;

pub use advise::advise;
pub use compare::compare;
pub use error::{Error, Result};
pub use experiment::{Experiment, Overrides};
pub use listener::{Listener, Silent};
pub use plan::plan;
pub use run::{resume, run};
pub use summary::Summary;
