//! The `fedra` command.

#![forbid(unsafe_code)]

mod account;
mod advise;
mod attack;
mod audit;
mod bench;
mod certs;
mod compare;
mod console;
mod convert;
mod data;
mod device;
mod devices;
mod evaluate;
mod experiment;
mod fetch;
mod files;
mod flags;
mod flower;
mod generate;
mod help;
mod hub;
mod init;
mod interrupt;
mod join;
mod judgements;
mod keyed_errors;
mod lab;
mod live;
mod manual;
mod model_server;
mod openai;
mod plan;
mod predict;
mod preparation;
mod progress;
mod quickstart;
mod remote_middle;
mod report;
mod run;
mod screen;
mod serve;
mod site_steps;
mod status;
mod study_folder;
mod tensor_names;
mod terminal;
mod tls;
mod watch;
mod weights;

#[cfg(test)]
mod documented;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use fedra::folder::occupied::{Forced, Occupied, ResumedBy};
use fedra_engine::EngineError;
use help::Detail;
use keyed_errors::{ADVISE, AUDIT, COMPARE, INIT, in_flags};
use signal_hook::consts::SIGXFSZ;

/// Running out of memory is an error with a sentence, not a signal.
#[global_allocator]
static ALLOCATOR: fedra_compute::Allocator = fedra_compute::Allocator;

const EXAMPLES: &str = "\
Examples:
  fedra quickstart                                   the main methods, in about a minute
  fedra init notes.csv                               an experiment file for your own data
  fedra data experiments/clinic-concepts.toml        look at the data
  fedra plan experiments/clinic-concepts.toml        what it would send and cost
  fedra run  experiments/clinic-concepts.toml        run it
  fedra run  experiments/clinic-concepts.toml --set work.epochs=2 --out runs/two-epochs
  fedra compare experiments/clinic-concepts.toml --sweep method.name=fedavg,fedadam

Every experiment is one TOML file; --set overrides single keys of it. Results are files under
runs/NAME. Data goes to stdout, messages go to stderr.";

/// Fine-tune Transformers across organisations that may not share their data.
#[derive(Parser)]
#[command(name = "fedra", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare the main methods on the built-in synthetic clinic; needs no file
    Quickstart(quickstart::Quickstart),
    /// Write an experiment file for your own data
    Init(Box<init::Init>),
    /// Run a whole federation in this process
    Run(run::Run),
    /// Coordinate a federation whose clients are on other machines
    Serve(serve::Serve),
    /// Join a federation as one client, with only its own rows
    Join(join::Join),
    /// Show the status of a run: round, clients, bytes, scores, privacy
    Status(status::Status),
    /// Make a CA, and certificates for a server and for clients
    Certs(certs::Certs),
    /// Prepare a federation that uses a Flower SuperLink
    #[command(subcommand)]
    Flower(flower::Flower),
    /// Run several experiments over seeds and compare their scores
    Compare(compare::Compare),
    /// Regenerate the report page of a run or a comparison
    Report(report::Report),
    /// Show what an experiment would train, send and cost, without training
    #[command(after_help = plan::EXAMPLES)]
    Plan(plan::Arguments),
    /// Run a pilot and propose after how many rounds FedFrozen should freeze, if at all
    Advise(advise::Advise),
    /// Show how a dataset is read: rows, labels, lengths, clients, splits
    Data(data::Data),
    /// Fetch a model of the Hugging Face hub into its cache
    Fetch(fetch::Fetch),
    /// Convert a GGUF file to a model folder in Hugging Face layout
    Convert(convert::Convert),
    /// Apply a model to texts or images: labels, probabilities, spans
    Predict(predict::Predict),
    /// Score a model on labelled rows, by label and by client, with calibration
    Evaluate(evaluate::Evaluate),
    /// Compute a win rate from judgements of two models' answers
    Judgements(judgements::Judgements),
    /// Generate text after a prompt, with a decoder
    Generate(generate::Generate),
    /// Compute the epsilon of a private run, or the noise for a requested epsilon
    #[command(subcommand)]
    Account(account::Account),
    /// Attack a run: text reconstruction and membership inference
    #[command(subcommand)]
    Attack(attack::Attack),
    /// Audit the claimed epsilon of a private run with canaries
    #[command(after_help = audit::HELP)]
    Audit(audit::Audit),
    /// Measure how fast this machine is
    #[command(subcommand)]
    Bench(bench::Bench),
    /// List the devices that can compute
    Devices(devices::Devices),
    /// Study toy models with closed-form solutions
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a manual page
    Manual(manual::Manual),
}

fn main() -> ExitCode {
    // A file that may not grow is then an error with a sentence, not a signal.
    let _still_a_signal = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let parsed = command(Detail::asked())
        .try_get_matches()
        .and_then(|mut matches| Arguments::from_arg_matches_mut(&mut matches));
    let code = match parsed {
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

/// The command with all below it.
fn command(detail: Detail) -> clap::Command {
    help::shaped(Arguments::command(), detail)
}

fn ended(outcome: Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        let ours = error.downcast_ref::<fedra::Error>();
        if ours.is_some_and(fedra::Error::is_stopped_preparation) {
            console::say("stopped while rows were prepared; nothing was written");
            return ExitCode::from(interrupt::STATUS);
        }
        if ours.is_some_and(fedra::Error::is_stopped_download) {
            console::say(error);
            return ExitCode::from(interrupt::STATUS);
        }
        console::say(format_args!("error: {}", fedra::error::in_words(error.as_ref())));
        if let Some(kept) = ours.and_then(fedra::Error::breakdown) {
            let again = if kept.is_served {
                "the same fedra serve command".to_owned()
            } else {
                format!("fedra run --resume {}", kept.folder.display())
            };
            if kept.is_gone {
                console::say(format_args!("hint: {kept}; the run has to begin again"));
            } else {
                console::say(format_args!(
                    "hint: {kept}; once this is fixed, {again} resumes the run"
                ));
            }
        }
        if let Some(fedra::Error::Occupied(occupied)) = ours {
            console::say(ways_out(occupied));
        }
        ExitCode::from(status(&error))
    })
}

/// What to do about a folder that holds another run or other files.
fn ways_out(Occupied { folder, resumed_by, forced, free, .. }: &Occupied) -> String {
    let (folder, free) = (folder.display(), free.display());
    let go_on = match resumed_by {
        None => String::new(),
        Some(ResumedBy::Resume) => format!("fedra run --resume {folder} resumes it, "),
        Some(ResumedBy::Serve) => format!(
            "the `fedra serve` command with which it began resumes it ({folder}/experiment.toml has all of \
             its settings), "
        ),
    };
    match forced {
        Forced::Replaced => format!("hint: {go_on}--out {free} keeps both, --force replaces it"),
        Forced::Kept => format!(
            "hint: --out {free} is free; --force writes into {folder} and leaves its other files as they are"
        ),
    }
}

/// 1 for a run that broke down on its way, 2 for an experiment or a flag that was refused.
fn status(error: &anyhow::Error) -> u8 {
    let ours = error.downcast_ref::<fedra::Error>().is_some_and(fedra::Error::is_breakdown);
    let engine = error.downcast_ref::<EngineError>().is_some_and(fedra::error::is_breakdown);
    // Out of descriptors: another start may do better.
    let machine = error.downcast_ref::<fedra_net::NetError>();
    let machine = machine.is_some_and(fedra_net::NetError::lacks_descriptors);
    if ours || engine || machine { 1 } else { 2 }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let done = match arguments.command {
        Command::Quickstart(quickstart) => return quickstart.run(),
        Command::Init(init) => init.run().map_err(|error| in_flags(error, INIT)),
        Command::Run(run) => return run.run(),
        Command::Serve(serve) => return serve.run(),
        Command::Join(join) => return join.run(),
        Command::Status(status) => status.run(),
        Command::Certs(certs) => certs.run(),
        Command::Flower(flower) => flower.run(),
        Command::Compare(compare) => {
            return compare.run().map_err(|error| in_flags(error, COMPARE));
        }
        Command::Report(report) => report.run(),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Advise(advise) => return advise.run().map_err(|error| in_flags(error, ADVISE)),
        Command::Data(data) => data.run(),
        Command::Fetch(fetch) => fetch.run(),
        Command::Convert(convert) => convert.run(),
        Command::Predict(predict) => predict.run(),
        Command::Evaluate(evaluate) => evaluate.run(),
        Command::Judgements(judgements) => judgements.run(),
        Command::Generate(generate) => return generate.run(),
        Command::Account(account) => account.run(),
        Command::Attack(attack) => return attack.run(),
        Command::Audit(audit) => return audit.run().map_err(|error| in_flags(error, AUDIT)),
        Command::Bench(bench) => bench.run(),
        Command::Devices(devices) => devices.run(),
        Command::Lab(lab) => lab.run(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(Detail::Short), "fedra", &mut script);
            console::bytes(&script);
            Ok(())
        }
        Command::Manual(manual) => manual.run(command(Detail::Full)),
    };
    done.map(|()| ExitCode::SUCCESS)
}
