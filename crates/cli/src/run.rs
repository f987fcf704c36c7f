//! `fedra run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use fedra::folder::output_folder::OverwritePolicy;
use fedra::run::federate::Ending;
use fedra::run::start::{Output, Resumed};
use fedra::run_files::{EXPERIMENT, REPORT};
use fedra::text::grid::counted;
use fedra::text::shell;
use fedra::{Experiment, Summary};

use crate::console;
use crate::device::DeviceFlags;
use crate::experiment::Overrides;
use crate::flags::{Quiet, Verbosity};
use crate::hub;
use crate::interrupt;
use crate::terminal::Terminal;
use crate::watch::Watch;

const EXAMPLES: &str = "\
Examples:
  fedra run experiments/clinic-concepts.toml
  fedra run experiments/clinic-concepts.toml --set method.name=fedprox --set method.mu=0.1
  fedra run experiments/clinic-concepts.toml --seed 2 --out runs/second
  fedra run --resume runs/second

Ctrl-C or SIGTERM stops after the current step; --resume repeats the round that was interrupted
and ends with the same bytes as a run that was never stopped. docs/output.md lists the files in
the folder.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// Experiment file in TOML
    #[arg(value_name = "FILE.toml", required_unless_present = "resume")]
    file: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    device: DeviceFlags,
    /// Where results go [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace the run that the folder holds
    #[arg(long)]
    force: bool,
    /// Resume an interrupted run; a complete one is shown and not changed
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "out", "force"])]
    resume: Option<PathBuf>,
    /// Run as part of a comparison: with so many threads, until standard input ends
    #[arg(long, value_name = "THREADS", hide = true)]
    leash: Option<usize>,
    /// Show the page at http://127.0.0.1:PORT/ while it runs [default port: any free one]
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    watch: Option<u16>,
    #[command(flatten)]
    quiet: Quiet,
}

impl Run {
    /// Runs it.
    pub fn run(self) -> Result<ExitCode> {
        let voice = self.quiet.voice();
        if self.leash.is_some() {
            interrupt::stop_with_standard_input();
        }
        if let (Some(folder), true) = (&self.resume, self.overrides.is_given()) {
            let held = folder.join(EXPERIMENT);
            bail!(
                "--resume cannot be combined with --set or --seed: a run resumes with the settings that it began with\n\
                 hint: for more rounds, raise federation.rounds in {}, and then --resume; any other change needs \
                 a new run",
                held.display()
            );
        }
        match (&self.resume, &self.file) {
            (Some(folder), _) => match self.watched(folder, || {
                let held = folder.join(EXPERIMENT);
                let open = || Experiment::open(&held, &fedra::Overrides::default());
                hub::provide(voice, || open().map(drop))?;
                fedra::resume(folder, &self.device.resumes_with(self.leash), &Terminal::new(voice))
            })? {
                Resumed::WasComplete(summary) => {
                    show_complete(folder, &summary, voice);
                    Ok(ExitCode::SUCCESS)
                }
                Resumed::WentOn(ending) => Ok(show(&ending, folder, voice, &resuming(folder))),
            },
            (None, Some(file)) => {
                let overrides = self.device.over(self.overrides.as_given());
                let mut experiment = hub::opened(voice, || Experiment::open(file, &overrides))?;
                if self.leash.is_some() {
                    experiment.raw.threads = self.leash;
                }
                if experiment.compare.is_some() {
                    let file = file.display();
                    voice.say(format_args!(
                        "note: this runs only the experiment of {file}; to run the whole [compare] table:\n      fedra compare {file}"
                    ));
                }
                let usual = || Path::new("runs").join(&experiment.name);
                let folder = self.out.clone().unwrap_or_else(usual);
                let over =
                    if self.force { OverwritePolicy::AnyRun } else { OverwritePolicy::Nothing };
                let output = Output { folder, over };
                let ending = self.watched(&output.folder, || {
                    fedra::run(&experiment, &output, &Terminal::new(voice))
                })?;
                Ok(show(&ending, &output.folder, voice, &resuming(&output.folder)))
            }
            (None, None) => bail!("give FILE.toml or --resume DIR"),
        }
    }
}

impl Run {
    /// Does the work in a folder, and shows it where that is asked for.
    fn watched<T>(&self, folder: &Path, work: impl FnOnce() -> fedra::Result<T>) -> Result<T> {
        let watch = self.watch.map(|port| Watch::start(folder, port)).transpose()?;
        let done = work();
        if let Some(watch) = watch {
            watch.finish();
        }
        Ok(done?)
    }
}

/// How a run in a folder is gone on with.
fn resuming(folder: &Path) -> String {
    let folder = folder.display().to_string();
    format!("; resume with: fedra run --resume {}", shell::quoted(&folder))
}

/// Shows how a run ended; one that was interrupted says how to resume it.
pub fn show(ending: &Ending, folder: &Path, voice: Verbosity, go_on: &str) -> ExitCode {
    let shown = folder.display();
    match ending {
        Ending::Complete(summary) => {
            if voice == Verbosity::Lively {
                console::page(summary.table());
                console::say(format_args!("\nresults in {shown}{}", page_of(folder)));
            }
            ExitCode::SUCCESS
        }
        Ending::Interrupted { rounds, of } => {
            console::say(format_args!("stopped after {rounds} of {of} rounds{go_on}"));
            ExitCode::from(interrupt::STATUS)
        }
    }
}

/// Where the page of a folder is, if there is one.
pub fn page_of(folder: &Path) -> String {
    let page = folder.join(REPORT);
    if page.is_file() { format!("; open {}", page.display()) } else { String::new() }
}

/// What a run came to that needs no going on.
fn show_complete(folder: &Path, summary: &Summary, voice: Verbosity) {
    if voice == Verbosity::Lively {
        let shown = folder.display();
        let rounds = counted(u64::from(summary.rounds), "round");
        console::say(format_args!(
            "the run in {shown} is complete ({rounds}): nothing was changed\n"
        ));
        console::page(summary.table());
    }
}
