//! `fedra advise`: after how many rounds `FedFrozen` should freeze query and key, if at all.
//!
//! What a warm-up of W rounds is worth is measured and not inferred: the method beneath runs as the
//! trunk, and from some of its rounds a branch goes on with query and key frozen. Trunk and branch
//! meet again in the last round and are compared client by client, on what the clients put aside to
//! validate ([`decision`]). Nothing is left behind, and the test sets are thrown away before the first
//! round, so nothing can look at them ([`pilot`]).

mod advice;
mod decision;
mod pilot;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::console;
use crate::experiment::{Complaint, Experiment, Keep, Written};
use crate::federate::Run;
use crate::forecast;
use crate::interrupt;
use crate::progress::Voice;
use crate::state_placement::{SCRATCH, StateLocation, StatePlacement};
use advice::Advice;
use pilot::{Outcome, Pilot};

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
    pub fn run(&self) -> Result<ExitCode> {
        let experiment = self.written.experiment()?;
        let trunk = experiment.warming_up()?;
        let plan = self.plan(&trunk)?;
        if let Some(folder) = self.scratch.as_ref().filter(|folder| !folder.is_dir()) {
            let expected = "a folder that exists";
            return Err(Complaint::new("--scratch", folder.display(), expected).into());
        }
        // What clients keep is there once for every moment that a branch starts from, and once more.
        let moments = 1 + plan.warmups.iter().filter(|warmup| **warmup > 0).count();
        let run = Run::prepare(&trunk)?;
        let pilot = Pilot::new(&trunk, &run, plan)?;
        let voice = if self.quiet { Voice::Quiet } else { Voice::Lively };
        if voice == Voice::Lively {
            console::say(pilot.introduction());
        }
        let (prepared, recipe) = run.parts();
        let placement =
            forecast::placement(&trunk, prepared, recipe)?.with_moments(&trunk, moments);
        let scratch = self.scratch(placement, &trunk, voice)?;
        let scratch = scratch.as_ref().map(|(placement, file)| (placement, file.as_path()));
        let outcome = match run.thread_pool()? {
            Some(pool) => pool.install(|| pilot.run(voice, scratch)),
            None => pilot.run(voice, scratch),
        };
        let Outcome::Complete(measured) = outcome? else {
            console::say("stopped; advice needs the whole pilot, and nothing was written");
            return Ok(ExitCode::from(interrupt::STATUS));
        };
        let advice = Advice::of(&experiment, &trunk, (&pilot, *measured))?;
        if self.json {
            console::data(serde_json::to_string_pretty(&advice)?);
        } else {
            console::data(advice.text());
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The file for what clients keep. Without a folder that the user named it stays in memory: a
    /// pilot writes nothing of its own accord.
    fn scratch(
        &self,
        placement: StatePlacement,
        trunk: &Experiment,
        voice: Voice,
    ) -> Result<Option<(StatePlacement, PathBuf)>, Complaint> {
        let note = |text: String| {
            if voice == Voice::Lively {
                console::say(text);
            }
        };
        if placement.each.bytes().0 == 0 {
            return Ok(None);
        }
        if let Some(folder) = &self.scratch {
            let most = placement.scratch();
            note(format!("note: a scratch file in {} grows to {most} at most", folder.display()));
            // Others may use the folder for the same.
            let file = folder.join(format!("{SCRATCH}.{}", std::process::id()));
            return Ok(Some((StatePlacement { location: StateLocation::Disk, ..placement }, file)));
        }
        match placement.location {
            StateLocation::Memory => {}
            StateLocation::Disk if trunk.draft.keep == Keep::Disk => {
                return Err(Complaint::new(
                    "--scratch",
                    "none",
                    "a folder, since keep is \"disk\"",
                ));
            }
            StateLocation::Disk => note(format!(
                "note: up to {} of what {} clients keep, with all branches, stay in memory;\n      \
                 --scratch DIR lets them lie in a file there",
                placement.total(),
                placement.whose()
            )),
        }
        Ok(None)
    }

    /// What is to be tried.
    fn plan(&self, trunk: &Experiment) -> Result<Plan, Complaint> {
        if trunk.rounds < 2 {
            let expected = "at least 2: a trunk and a branch of it";
            return Err(Complaint::new("federation.rounds", trunk.rounds, expected));
        }
        let horizon = self.rounds.unwrap_or(trunk.rounds);
        if !(2..=trunk.rounds).contains(&horizon) {
            let expected = format!("from 2 to the {} rounds of the experiment", trunk.rounds);
            return Err(Complaint::new("--rounds", horizon, expected));
        }
        if !(self.tolerance.is_finite() && self.tolerance >= 0.0) {
            return Err(Complaint::new("--tolerance", self.tolerance, "a number, 0 or more"));
        }
        let mut warmups = self.warmups.clone();
        if warmups.is_empty() {
            let share = |parts: u32| (f64::from(horizon) * f64::from(parts) / 8.0).round() as u32;
            warmups = [0, 1, 2, 4].map(share).to_vec();
        }
        warmups.sort_unstable();
        warmups.dedup();
        if let Some(late) = warmups.iter().find(|warmup| **warmup >= horizon) {
            let expected = format!("below {horizon}: a branch needs a round to show anything");
            return Err(Complaint::new("--warmups", late, expected));
        }
        Ok(Plan { horizon, warmups, tolerance: self.tolerance })
    }
}

/// What is to be tried.
#[derive(Clone, Debug)]
struct Plan {
    /// Rounds of the trunk; every branch ends there too.
    horizon: u32,
    /// The rounds from which a branch goes on with query and key frozen, rising.
    warmups: Vec<u32>,
    /// How much score one would give up to send less.
    tolerance: f64,
}

impl Plan {
    /// Rounds of training, if no branch is given up.
    fn cost(&self) -> u64 {
        let branches = self.warmups.iter().map(|warmup| u64::from(self.horizon - warmup));
        u64::from(self.horizon) + branches.sum::<u64>()
    }

    /// Where branches that are clearly behind, and not merely late, are given up.
    fn middle(&self) -> u32 {
        self.horizon / 2
    }

    /// Over so many last rounds a comparison is averaged, because single rounds swing; and who is
    /// less than this behind is merely late.
    fn window(&self) -> u32 {
        (self.horizon / 8).max(1)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::experiment::Overrides;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        advise: Advise,
    }

    fn plan(rounds: u32, flags: &[&str]) -> Result<Plan, Complaint> {
        let overrides = Overrides::new(vec![format!("federation.rounds={rounds}")], None);
        let text = include_str!("../../tests/tiny.toml");
        let trunk = Experiment::from_text(text, "tiny.toml", "tiny", &overrides).unwrap();
        let flags = ["advise", "tiny.toml"].iter().chain(flags);
        Alone::try_parse_from(flags).unwrap().advise.plan(&trunk)
    }

    #[test]
    fn the_cost_of_the_longest_experiment_can_be_counted() {
        let plan = plan(u32::MAX, &[]).unwrap();
        assert_eq!(plan.warmups, [0, 1 << 29, 1 << 30, 1 << 31]);
        let branches = 4 * u64::from(u32::MAX) - (7 << 29);
        assert_eq!(plan.cost(), u64::from(u32::MAX) + branches);
    }

    #[test]
    fn one_round_is_refused_by_the_key_that_says_so() {
        for flags in [&[][..], &["--rounds", "1"]] {
            let refused = plan(1, flags).unwrap_err().to_string();
            assert!(refused.starts_with("federation.rounds: found 1, expected at least 2"));
        }
        let refused = plan(4, &["--rounds", "1"]).unwrap_err().to_string();
        assert!(refused.starts_with("--rounds: found 1, expected from 2 to the 4"), "{refused}");
    }
}
