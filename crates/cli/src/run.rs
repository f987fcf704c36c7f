//! `fedra run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use crate::breakdown;
use crate::console;
use crate::experiment::{Experiment, Overrides, idle};
use crate::federate::{self, Ending};
use crate::folder::Folder;
use crate::grid::counted;
use crate::interrupt;
use crate::lock::Lock;
use crate::output_folder::{self, Over};
use crate::progress::Voice;
use crate::summary::Summary;

const EXAMPLES: &str = "\
Examples:
  fedra run experiments/clinic-concepts.toml
  fedra run experiments/clinic-concepts.toml --set method.name=fedprox --set method.mu=0.1
  fedra run experiments/clinic-concepts.toml --seed 2 --out runs/second
  fedra run --resume runs/second

The folder then holds experiment.toml (as resolved), rounds.jsonl (a line a round; there the first
is round 0), summary.json, and model/ in Hugging Face layout; where clients have validation
examples, model-best/ is the model of the round that did best on them. Ctrl-C or SIGTERM stops
after the round that is on; --resume goes on and ends with the same bytes as a run that was never
stopped, provided that data and weights are still the same. A folder that holds a run is not
written over unless --force says so, and one process at a time works in it.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// Experiment file in TOML
    #[arg(value_name = "FILE.toml", required_unless_present = "resume")]
    file: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Where results go [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace the run that the folder holds
    #[arg(long)]
    force: bool,
    /// Go on with an interrupted run; a complete one is shown and left as it is
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "sets", "seed", "out", "force"])]
    resume: Option<PathBuf>,
    /// Run as part of a comparison: with so many threads, until standard input ends
    #[arg(long, value_name = "THREADS", hide = true)]
    leash: Option<usize>,
    /// Say nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

impl Run {
    /// Runs it.
    pub fn run(self) -> Result<ExitCode> {
        let voice = if self.quiet { Voice::Quiet } else { Voice::Lively };
        let (mut experiment, earlier) = match (&self.resume, &self.file) {
            (Some(path), _) => {
                let (mut folder, experiment) = Folder::open(path)?;
                Lock::check(path, "--resume")?;
                if let Some(summary) = folder.complete(&experiment)? {
                    show_complete(&folder, &summary, voice);
                    return Ok(ExitCode::SUCCESS);
                }
                folder.lock()?;
                (experiment, Some(folder))
            }
            (None, Some(file)) => (Experiment::open(file, &self.overrides)?, None),
            (None, None) => bail!("expected FILE.toml or --resume DIR"),
        };
        if let Some(threads) = self.leash {
            experiment.draft.threads = Some(threads);
            interrupt::stop_with_standard_input();
        }
        if let (Some(_), Some(file), Voice::Lively) = (&experiment.compare, &self.file, voice) {
            let file = file.display();
            console::say(format_args!(
                "note: this runs the experiment of {file} alone; all that its [compare] table \
                 asks for:\n      fedra compare {file}"
            ));
        }
        let usual = || Path::new("runs").join(&experiment.name);
        let out = self.out.clone().unwrap_or_else(usual);
        let over = if self.force { Over::AnyRun } else { Over::Nothing };
        if earlier.is_none() {
            output_folder::check(&out, &experiment, over)?;
        }
        // Data and model are opened before anything is written.
        let run = federate::Run::prepare(&experiment)?;
        if voice == Voice::Lively {
            let notes = idle(&experiment).into_iter().chain(run.notes());
            notes.chain(run.memory_warning()?).for_each(console::say);
        }
        let pool = run.thread_pool()?;
        let fresh = earlier.is_none();
        let folder = if let Some(folder) = earlier {
            folder
        } else {
            let folder = Folder::claim(&out)?;
            // Another run may have come and gone while data and model were opened.
            output_folder::check_held(&out, &experiment, over)?;
            folder.begin(&experiment)?;
            folder
        };
        let shown = folder.path().display().to_string();
        let ending = match run.run(&folder, pool.as_ref(), voice) {
            Ok(ending) => ending,
            Err(error) => {
                // What is refused leaves nothing behind.
                if fresh && breakdown::status(&error) == 2 {
                    folder.abandon();
                }
                return Err(error);
            }
        };
        match ending {
            Ending::Complete(summary) => {
                if voice == Voice::Lively {
                    console::data(summary.table());
                    console::say(format_args!("\nresults in {shown}"));
                }
                Ok(ExitCode::SUCCESS)
            }
            Ending::Interrupted(rounds) => {
                let of = experiment.rounds;
                console::say(format_args!(
                    "stopped after {rounds} of {of} rounds; go on with: fedra run --resume {shown}"
                ));
                Ok(ExitCode::from(interrupt::STATUS))
            }
        }
    }
}

/// What a run came to that needs no going on.
fn show_complete(folder: &Folder, summary: &Summary, voice: Voice) {
    if voice == Voice::Lively {
        let shown = folder.path().display();
        let rounds = counted(u64::from(summary.rounds), "round");
        console::say(format_args!(
            "the run in {shown} is complete ({rounds}): nothing was changed\n"
        ));
        console::data(summary.table());
    }
}
