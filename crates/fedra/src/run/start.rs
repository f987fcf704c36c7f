//! A run in its folder, from the first check to the summary.
//!
//! What can be refused is refused before anything is written, and what was written for a run that is
//! refused after all is taken back.

use std::path::{Path, PathBuf};

use fedra_compute::Precision;

use crate::config::{DeviceName, Experiment, unused_settings};
use crate::error::{Result, refuse};
use crate::folder::lock::Lock;
use crate::folder::output_folder::{self, OverwritePolicy};
use crate::folder::round_log;
use crate::folder::run_folder::Folder;
use crate::folder::summary::Summary;
use crate::listener::Listener;
use crate::report;
use crate::run::federate::{Ending, Run};
use crate::run_files::{ROUNDS, SITES};

/// Where a run goes, and what it may write over there.
#[derive(Clone, Debug)]
pub struct Output {
    /// The folder; it is made.
    pub folder: PathBuf,
    /// What may be replaced in it.
    pub over: OverwritePolicy,
}

impl Output {
    /// A folder that is free, or not there yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), over: OverwritePolicy::Nothing }
    }
}

/// Reads the data, opens the model and settles what is scored; nothing is written.
pub fn prepare(experiment: &Experiment) -> Result<Run> {
    Run::prepare(experiment)
}

/// Runs an experiment in a folder. Notes and warnings go to the listener first.
pub fn run(experiment: &Experiment, output: &Output, listener: &dyn Listener) -> Result<Ending> {
    output_folder::check(&output.folder, experiment, output.over)?;
    // Data and model are opened before anything is written.
    let run = introduced(experiment, listener)?;
    let pool = run.thread_pool()?;
    let folder = begin(experiment, output, listener)?;
    let ended = run.run(&folder, pool.as_ref(), listener);
    write_page(&folder, &ended, listener);
    // What is refused leaves nothing behind.
    if ended.as_ref().is_err_and(|error| !error.is_breakdown()) {
        folder.abandon();
    }
    ended
}

/// Claims a folder that was checked, and starts a new run in it.
pub(crate) fn begin(
    experiment: &Experiment,
    Output { folder: path, over }: &Output,
    listener: &dyn Listener,
) -> Result<Folder> {
    let folder = Folder::claim(path)?;
    // Another run may have come and gone while data and model were opened.
    output_folder::check_held(path, experiment, *over)?;
    if let Some(told) = output_folder::forgotten_ledger(path) {
        listener.warn(&told);
    }
    folder.begin(experiment)?;
    Ok(folder)
}

/// Writes the page of a run that was not refused, if there is a round to show. It is made from files that are all
/// there, so that a run does not fail over it.
pub(crate) fn write_page(folder: &Folder, ended: &Result<Ending>, listener: &dyn Listener) {
    let is_refused = ended.as_ref().is_err_and(|error| !error.is_breakdown());
    if is_refused || round_log::lines(&folder.path().join(ROUNDS)) == 0 {
        return;
    }
    if let Err(error) = report::write_run(folder.path()) {
        listener.warn(&format!("warning: there is no page of this run: {}", error.in_words()));
    }
}

/// What became of an earlier run.
#[derive(Debug)]
pub enum Resumed {
    /// It was complete, and nothing was changed.
    WasComplete(Box<Summary>),
    /// It went on.
    WentOn(Ending),
}

/// What of the machine a run may go on with that it did not begin with; what is absent stays as it was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine {
    /// Threads, which change no bit.
    pub threads: Option<usize>,
    /// The device; another one rounds otherwise.
    pub device: Option<DeviceName>,
    /// The precision of a GPU.
    pub precision: Option<Precision>,
}

/// Resumes the run in a folder; on the device that it began with, to the same bytes as one that was never stopped.
pub fn resume(path: &Path, machine: &Machine, listener: &dyn Listener) -> Result<Resumed> {
    let (folder, mut experiment) = Folder::open(path)?;
    if machine.threads.is_some() {
        experiment.raw.threads = machine.threads;
    }
    experiment.compute_on(machine.device, machine.precision)?;
    go_on(folder, &experiment, listener)
}

/// The same for an experiment with rows or a method of the program's own, which the folder names and
/// cannot bring.
pub fn resume_with(
    experiment: &Experiment,
    path: &Path,
    listener: &dyn Listener,
) -> Result<Resumed> {
    go_on(Folder::of(path, experiment)?, experiment, listener)
}

fn go_on(mut folder: Folder, experiment: &Experiment, listener: &dyn Listener) -> Result<Resumed> {
    Lock::check(folder.path())?;
    if let Some(summary) = folder.complete(experiment)? {
        return Ok(Resumed::WasComplete(Box::new(summary)));
    }
    if folder.path().join(SITES).exists() {
        let shown = folder.path().display();
        refuse!(
            "the run in {shown} is over a network, and its clients keep their own state\nhint: the same `fedra \
             serve` command resumes it"
        );
    }
    folder.lock()?;
    let run = introduced(experiment, listener)?;
    let pool = run.thread_pool()?;
    let ended = run.run(&folder, pool.as_ref(), listener);
    write_page(&folder, &ended, listener);
    ended.map(Resumed::WentOn)
}

/// Prepares a run, and tells what a person should know about it.
fn introduced(experiment: &Experiment, listener: &dyn Listener) -> Result<Run> {
    let run = Run::heard(experiment, listener)?;
    let notes = unused_settings(experiment).into_iter().chain(run.notes());
    let notes = notes.chain(run.privacy_warning()?);
    notes.chain(run.memory_warning()?).for_each(|note| listener.note(&note));
    Ok(run)
}
