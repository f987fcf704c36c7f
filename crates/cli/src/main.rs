//! The `fedra` command.

mod activations;
mod advise;
mod baseline;
mod bench;
mod best;
mod breakdown;
mod classes;
mod compare;
mod console;
mod dry_run;
mod durable;
mod experiment;
mod federate;
mod fingerprint;
mod folder;
mod forecast;
mod grid;
mod holdings;
mod interrupt;
mod lab;
mod lock;
mod memory;
mod output_folder;
mod prepared;
mod progress;
mod quickstart;
mod remarks;
mod round_log;
mod run;
mod run_memory;
mod show;
mod state_placement;
mod state_size;
mod summary;
mod untrained;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use breakdown::Breakdown;

/// Running out of memory is an error with a sentence, not a signal.
#[global_allocator]
static ALLOCATOR: fedra_compute::Allocator = fedra_compute::Allocator;

const EXAMPLES: &str = "\
Examples:
  fedra quickstart                                   five methods side by side, in a minute or so
  fedra data experiments/clinic-concepts.toml        look at the data
  fedra plan experiments/clinic-concepts.toml        what it would send and cost
  fedra run  experiments/clinic-concepts.toml        run it
  fedra run  experiments/clinic-concepts.toml --set work.epochs=2 --out runs/two-epochs
  fedra compare experiments/clinic-concepts.toml --sweep method.name=fedavg,fedadam

Every experiment is one TOML file; --set overrides single keys of it. Results are files under
runs/NAME. Data go to stdout, words for people to stderr.";

/// Fine-tune Transformers across parties that may not share their data.
#[derive(Parser)]
#[command(name = "fedra", version, about, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare the main methods on the built-in synthetic clinic; needs no file and no download
    Quickstart(quickstart::Quickstart),
    /// Run a whole federation in this process
    Run(run::Run),
    /// Run several experiments over seeds and say which is better, and whether that was seen at all
    Compare(compare::Compare),
    /// Say what an experiment would train, send and cost, without training
    #[command(after_help = dry_run::EXAMPLES)]
    Plan(experiment::Written),
    /// Run a pilot and propose after how many rounds FedFrozen should freeze, if at all
    Advise(advise::Advise),
    /// Show what a dataset becomes: rows, labels, lengths, clients, splits
    Data(show::Data),
    /// Measure how fast this machine is
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Ask questions that are small enough for exact answers
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

fn main() -> ExitCode {
    let code = match Arguments::try_parse() {
        Ok(arguments) => ended(run(arguments)),
        // Help and the version are data, a bad flag is a refusal.
        Err(told) if told.use_stderr() => {
            let _unread = told.print();
            ExitCode::from(2)
        }
        Err(told) => {
            console::check(told.print());
            ExitCode::SUCCESS
        }
    };
    if console::failed() { ExitCode::FAILURE } else { code }
}

fn ended(outcome: Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        console::say(format_args!("error: {}", told(&error)));
        if let Some(breakdown) = error.downcast_ref::<Breakdown>() {
            console::say(breakdown);
        }
        ExitCode::from(breakdown::status(&error))
    })
}

/// An error and its causes in one line; a cause that its error has told already is left out.
fn told(error: &anyhow::Error) -> String {
    let mut told = String::new();
    // What a breakdown leaves is said last.
    let around = usize::from(error.downcast_ref::<Breakdown>().is_some());
    for cause in error.chain().skip(around).map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.ends_with(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let done = match arguments.command {
        Command::Quickstart(quickstart) => return quickstart.run(),
        Command::Run(run) => return run.run(),
        Command::Compare(compare) => return compare.run(),
        Command::Plan(written) => dry_run::run(&written),
        Command::Advise(advise) => return advise.run(),
        Command::Data(data) => data.run(),
        Command::Bench(bench) => bench.run(),
        Command::Lab(lab) => lab.run(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "fedra", &mut script);
            console::bytes(&script);
            Ok(())
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}
