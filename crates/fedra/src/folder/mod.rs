//! A run's folder: who may write to it, which files it holds, and what they say when they are read again.

pub mod best;
pub mod client_names;
pub(crate) mod far_updates;
pub mod held_ledger;
pub mod json_file;
pub(crate) mod lock;
pub mod model_card;
pub mod output_folder;
pub(crate) mod predictions;
pub(crate) mod regular_file;
pub mod round_files;
pub(crate) mod round_log;
pub mod run_folder;
pub(crate) mod run_status;
pub mod scratch;
pub mod summary;

pub use crate::error::occupied;
