//! `fedra advise`: after how many rounds `FedFrozen` should freeze query and key, if at all.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use fedra::study::advise::AdviceRequest;

use crate::console;
use crate::device::DeviceFlags;
use crate::experiment::Written;
use crate::flags::Quiet;
use crate::interrupt;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  fedra advise experiments/frozen.toml
  fedra advise experiments/frozen.toml --rounds 8              half the rounds, half the cost
  fedra advise experiments/frozen.toml --warmups 1,4,12        other candidates
  fedra advise experiments/frozen.toml --seed 2 --json

A pilot costs about four runs of the experiment. It needs validation examples, and it writes
nothing. docs/advise.md says how the pilot decides.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Advise {
    #[command(flatten)]
    written: Written,
    #[command(flatten)]
    device: DeviceFlags,
    /// Rounds of the pilot [default: all of the experiment's]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// The warm-ups to try, in rounds [default: 0, 1/8, 1/4 and 1/2 of the rounds]
    #[arg(long, value_name = "W1,W2,...", value_delimiter = ',')]
    warmups: Vec<u32>,
    /// Score that may be given up to send less; at most a tenth of the pilot's gain
    #[arg(long, value_name = "SCORE", default_value_t = 0.01)]
    tolerance: f64,
    /// Keep client state in a scratch file in this folder [default: in memory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Print the advice as one JSON object instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    quiet: Quiet,
}

impl Advise {
    /// Runs the pilot and prints what it measured and what follows from it.
    pub fn run(self) -> Result<ExitCode> {
        let experiment = self.written.fetched(self.device, self.quiet.voice())?;
        let Self { rounds, warmups, tolerance, scratch, quiet, .. } = self;
        let asked = AdviceRequest { rounds, warmups, tolerance, scratch };
        let Some(advice) = fedra::advise(&experiment, &asked, &Terminal::new(quiet.voice()))?
        else {
            console::say("stopped; the advice needs the complete pilot, and nothing was written");
            return Ok(ExitCode::from(interrupt::STATUS));
        };
        if self.json {
            console::json(serde_json::to_string_pretty(&advice)?);
        } else {
            console::page(advice.text(console::table_width()));
        }
        Ok(ExitCode::SUCCESS)
    }
}
