//! `fedra advise`: after how many rounds `FedFrozen` should freeze query and key, if at all.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use fedra::study::advise::AdviceRequest;

use crate::console;
use crate::experiment::Written;
use crate::interrupt;
use crate::progress::Voice;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  fedra advise experiments/frozen.toml
  fedra advise experiments/frozen.toml --rounds 8              half the way, half the cost
  fedra advise experiments/frozen.toml --warmups 1,4,12        other candidates
  fedra advise experiments/frozen.toml --seed 2 --json

How it decides. The method beneath trains everything for all rounds: the trunk. From rounds 0, 1/8, 1/4 and
1/2 of it a branch goes on with query and key frozen, exactly as a run with that warm-up would. In the last
rounds each branch is compared with the trunk, client by client, on the clients' validation examples:
  better          the interval over clients lies above zero; the best of these is proposed
  as good         it lies above -TOLERANCE; if none is better, the earliest of these is proposed: it sends least
  worse, or no difference seen
                  neither; if there is nothing else, the proposal is never to freeze
A branch that half-way is clearly behind where the trunk was an eighth of the rounds before is not followed
further.

What it costs: some four runs of the experiment; the number of rounds is said before it starts. --rounds N
looks only N rounds ahead. It needs validation examples (data.shares.validation or a validation file), never
looks at a test example, and writes nothing but, with --scratch, a file that is gone at the end. One pilot
is one seed: the interval says how far clients agree, not what another seed would give.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Advise {
    #[command(flatten)]
    written: Written,
    /// How many rounds to look ahead [default: all of the experiment's]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// The warm-ups to try, in rounds [default: 0, 1/8, 1/4 and 1/2 of the rounds]
    #[arg(long, value_name = "W1,W2,...", value_delimiter = ',')]
    warmups: Vec<u32>,
    /// How much score one would give up to send less; never more than a tenth of what the pilot gains
    #[arg(long, value_name = "SCORE", default_value_t = 0.01)]
    tolerance: f64,
    /// Let what clients keep between rounds lie in a scratch file there [default: in memory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Print the advice as one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Say nothing on the way
    #[arg(long, short)]
    quiet: bool,
}

impl Advise {
    /// Runs the pilot and prints what it measured and what follows from it.
    pub fn run(self) -> Result<ExitCode> {
        let experiment = self.written.experiment()?;
        let voice = if self.quiet { Voice::Quiet } else { Voice::Lively };
        let Self { rounds, warmups, tolerance, scratch, .. } = self;
        let asked = AdviceRequest { rounds, warmups, tolerance, scratch };
        let Some(advice) = fedra::advise(&experiment, &asked, &Terminal::new(voice))? else {
            console::say("stopped; advice needs the whole pilot, and nothing was written");
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
