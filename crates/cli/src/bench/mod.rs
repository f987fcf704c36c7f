//! `fedra bench`: measurements that another person can repeat.

mod check;
mod clients;
mod decode;
mod families;
mod family;
mod fold;
mod frozen;
mod private_step;
mod report;
mod round;
mod split;
mod step;
mod stopwatch;

use anyhow::Result;
use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// One training step: forward, backward, optimiser
    Step(step::Step),
    /// One training step of every family, at the same shape
    Families(families::FamiliesBench),
    /// The next token of sequences that are decoded together
    Decode(decode::DecodeBench),
    /// Training steps per second of several clients on one device
    Clients(clients::ClientsBench),
    /// Whether a device computes what the processor does
    Check(check::Check),
    /// One round of many clients that train nothing: the overhead of the federation
    Round(round::RoundBench),
    /// Aggregation of many updates into one mean
    Fold(fold::FoldBench),
    /// Tokens per second of a decoder: whole, split, and without a cache
    #[command(after_help = split::EXAMPLES)]
    Split(split::SplitBench),
}

impl Bench {
    /// Measures and prints.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Step(step) => {
                step.pool()?.install(|| if step.dp { private_step::run(&step) } else { step.run() })
            }
            Self::Families(families) => families.run(),
            Self::Decode(decode) => decode.run(),
            Self::Clients(clients) => clients.run(),
            Self::Check(check) => check.run(),
            Self::Round(round) => round.run(),
            Self::Fold(fold) => fold.run(),
            Self::Split(split) => split.run(),
        }
    }
}
