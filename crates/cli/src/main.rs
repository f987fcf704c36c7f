//! The `fedra` command.

mod bench;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Fine-tune Transformers across parties that may not share their data.
#[derive(Parser)]
#[command(name = "fedra", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure how fast this machine is.
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    match arguments.command {
        Command::Bench(bench) => bench.run(),
    }
}

#[expect(clippy::print_stderr, reason = "stderr is where people read what went wrong")]
fn complain(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
