//! `fedra compare`: several experiments over seeds, side by side.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use fedra::folder::summary::duration;
use fedra::listener::Listener;
use fedra::study::compare::{
    CompareListener, CompareRequest, ProcessPool, RunEvent, WorkPlan, Workers,
};
use fedra::text::grid::counted;
use fedra_data::printable;

use crate::console;
use crate::device::DeviceFlags;
use crate::experiment::Overrides;
use crate::flags::{Quiet, Verbosity, whole};
use crate::hub;
use crate::interrupt;
use crate::live::{A_WHILE, fitted};
use crate::run;
use crate::screen::{self, Line, TextLine, locked};
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  fedra compare experiments/clinic-concepts.toml --sweep method.name=fedavg,fedadam,fedprox
  fedra compare experiments/safl_k_sweep.toml --seeds 5 --jobs 2
  fedra compare a.toml b.toml --tune work.optimiser.rate=3e-4,1e-3,3e-3

Every combination of swept values is a variant, and every variant runs with every seed. The
same command, repeated, runs only what is missing. docs/compare.md describes the tables and the
[compare] table of a file.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Compare {
    /// Experiment files in TOML
    #[arg(value_name = "FILE.toml", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    device: DeviceFlags,
    /// Number of seeds, starting with the experiment's [default: the file's, or 3]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, None))]
    seeds: Option<u32>,
    /// Give a key several values; several keys give all combinations
    #[arg(long = "sweep", value_name = "KEY=V1,V2,...")]
    sweeps: Vec<String>,
    /// Choose a key's value for each variant, on validation examples
    #[arg(long = "tune", value_name = "KEY=V1,V2,...")]
    tunes: Vec<String>,
    /// The variant to compare with, or one of its parts [default: the first]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Where results go [default: runs/compare-NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Parallel runs, which share the threads
    #[arg(long, value_name = "J", default_value_t = 1, value_parser = whole::<u16>(1, None))]
    jobs: u16,
    /// Print compare.json instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    quiet: Quiet,
}

impl Compare {
    /// Runs what is missing and prints the tables.
    pub fn run(self) -> Result<ExitCode> {
        let voice = self.quiet.voice();
        let request = CompareRequest {
            files: self.files,
            overrides: self.device.over(self.overrides.as_given()),
            seeds: self.seeds,
            sweeps: self.sweeps,
            tunes: self.tunes,
            baseline: self.baseline,
        };
        hub::provide(voice, || WorkPlan::new(&request)?.open_all())?;
        let plan = WorkPlan::new(&request)?;
        let usual = || Path::new("runs").join(format!("compare-{}", plan.name));
        let out = self.out.unwrap_or_else(usual);
        let shown = out.display();
        let workers = Workers::Processes(ProcessPool {
            jobs: usize::from(self.jobs),
            threads: fedra_compute::ThreadPool::current_threads(),
            command: &on_leash,
        });
        let Some(compared) = fedra::compare(&plan, &out, &workers, &Follower::new(voice))? else {
            console::say(format_args!(
                "stopped; the same command resumes, and complete runs are under {shown}"
            ));
            return Ok(ExitCode::from(interrupt::STATUS));
        };
        if self.json {
            console::json(compared.json()?);
        } else {
            console::data(compared.page().text(console::table_width()));
        }
        voice.say(format_args!("\nresults in {shown}{}", run::page_of(&out)));
        Ok(if compared.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// This program once more, for one run.
fn on_leash(folder: &Path, threads: usize) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "--leash", &threads.to_string(), "--resume"]).arg(folder);
    // What it says is read line by line.
    command.env_remove("COLUMNS");
    Ok(command)
}

/// Shows the runs of a comparison as they go by: a live line for each that is on, and one for all.
struct Follower {
    voice: Verbosity,
    /// Shows how rows are prepared before the first run.
    terminal: Terminal,
    state: Arc<Mutex<Overall>>,
    lines: RefCell<Lines>,
    /// When something within a round was last said, where no line is drawn.
    said: RefCell<Instant>,
}

/// The live lines.
#[derive(Default)]
struct Lines {
    overall: Option<Line>,
    runs: BTreeMap<String, TextLine>,
}

/// All runs together.
struct Overall {
    what: String,
    done: u64,
    /// What of it was done before: it says nothing about the pace.
    before: u64,
    rounds: u64,
    complete: u64,
    begun: Instant,
}

impl Overall {
    fn new(what: &str, complete: u64, (rounds, done): (u64, u64)) -> Self {
        Self { what: what.to_owned(), done, before: done, rounds, complete, begun: Instant::now() }
    }

    fn line(&self, width: usize) -> String {
        let spent = self.begun.elapsed().as_secs_f64();
        let left = self.rounds.saturating_sub(self.done) as f64;
        // Rounds of several runs go by at a time, and differ: all of them together are the pace.
        let lately = self.done.saturating_sub(self.before);
        let left = (lately > 0).then(|| spent / lately as f64 * left);
        let parts = [
            (2, Some(self.what.clone())),
            (0, Some(format!("{}/{} rounds", self.done, self.rounds))),
            (3, Some(format!("{} complete", counted(self.complete, "run")))),
            (1, left.map(|left| format!("{} left", duration(left)))),
        ];
        fitted(&parts, self.done as f64 / self.rounds.max(1) as f64, width)
    }
}

impl Follower {
    fn new(voice: Verbosity) -> Self {
        let state = Arc::new(Mutex::new(Overall::new("", 0, (0, 0))));
        let said = RefCell::new(Instant::now());
        let terminal = Terminal::new(voice);
        Self { voice, terminal, state, lines: RefCell::default(), said }
    }

    /// Shows what a run told last.
    fn show(&self, run: &str, told: &str) {
        let mut lines = self.lines.borrow_mut();
        if self.voice == Verbosity::Lively {
            let line = lines.runs.entry(run.to_owned()).or_insert_with(|| TextLine::new(true));
            line.set(format!("  {}  {told}", printable(run)));
        }
        if let Some(line) = &lines.overall {
            line.draw();
        }
    }

    /// A run has finished, however it ended.
    fn over(&self, run: &str) {
        if let Some(line) = self.lines.borrow_mut().runs.remove(run) {
            line.remove();
        }
        locked(&self.state).complete += 1;
    }
}

impl CompareListener for Follower {
    fn hear(&self, event: RunEvent<'_>) {
        match event {
            RunEvent::Begin { what, complete, rounds, done } => {
                *locked(&self.state) = Overall::new(what, complete, (rounds, done));
                let line = Line::new(self.voice == Verbosity::Lively, &self.state, Overall::line);
                self.lines.borrow_mut().overall = Some(line);
            }
            RunEvent::Round(run, told) => {
                {
                    // A round that a run had logged and not kept is done twice.
                    let mut state = locked(&self.state);
                    state.done = (state.done + 1).min(state.rounds);
                }
                self.show(run, told);
            }
            RunEvent::Within(run, told) => {
                self.show(run, told);
                if self.voice == Verbosity::Lively && !screen::was_live() {
                    let mut said = self.said.borrow_mut();
                    if said.elapsed() >= A_WHILE {
                        *said = Instant::now();
                        console::say(format_args!("{run}: {told}"));
                    }
                }
            }
            RunEvent::Complete(run, told) => {
                self.over(run);
                self.voice.say(format_args!("{run}: {told}"));
            }
            RunEvent::Failed(run, reason) => {
                self.over(run);
                console::say(format_args!("error: {run}: {reason}"));
            }
            RunEvent::End => {
                let mut lines = self.lines.borrow_mut();
                std::mem::take(&mut lines.runs).values().for_each(TextLine::remove);
                if let Some(line) = lines.overall.take() {
                    line.remove();
                }
            }
        }
    }

    fn preparation(&self) -> &dyn Listener {
        &self.terminal
    }

    fn stops(&self) -> bool {
        interrupt::interrupted()
    }
}
