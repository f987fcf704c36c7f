//! A run whose files nobody keeps.

use std::fs;
use std::path::Path;

use crate::config::Experiment;
use crate::error::{Context, Result};
use crate::folder::run_folder::Folder;
use crate::listener::Listener;
use crate::run::federate::{Ending, Run};

/// Runs in a folder that is removed at the end, however it ends.
pub(super) fn run_in_scratch(
    run: Run,
    (experiment, scratch): (&Experiment, &Path),
    listener: &dyn Listener,
) -> Result<Ending> {
    let pool = run.thread_pool()?;
    let folder = Folder::create(scratch, experiment)?;
    let ended = run.run(&folder, pool.as_ref(), listener);
    folder.abandon();
    if scratch.exists() {
        fs::remove_dir_all(scratch)
            .with_context(|| format!("cannot remove {}", scratch.display()))?;
    }
    ended
}
