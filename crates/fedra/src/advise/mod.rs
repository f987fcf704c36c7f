//! After how many rounds `FedFrozen` should freeze query and key, if at all.
//!
//! What a warm-up of W rounds is worth is measured and not inferred: the method beneath runs as the
//! trunk, and from some of its rounds a branch goes on with query and key frozen. Trunk and branch
//! meet again in the last round and are compared client by client, on what the clients put aside to
//! validate ([`decision`]). Nothing is left behind, and the test sets are thrown away before the first
//! round, so nothing can look at them ([`pilot`]).

pub mod advice;
pub mod decision;
pub mod pilot;

pub use advice::Advice;

use std::path::PathBuf;

use crate::error::Result;
use crate::experiment::{Complaint, Experiment, Keep};
use crate::federate::Run;
use crate::forecast;
use crate::listener::Listener;
use crate::run_files::SCRATCH;
use crate::state_placement::{StateLocation, StatePlacement};
use pilot::{Outcome, Pilot};

/// What advice is asked for.
#[derive(Clone, Debug)]
pub struct AdviceRequest {
    /// How many rounds to look ahead; all of the experiment's unless given.
    pub rounds: Option<u32>,
    /// The warm-ups to try, in rounds; 0, 1/8, 1/4 and 1/2 of the rounds where there are none.
    pub warmups: Vec<u32>,
    /// How much score one would give up to send less.
    pub tolerance: f64,
    /// A folder for a file with what clients keep between rounds; it stays in memory unless given.
    pub scratch: Option<PathBuf>,
}

impl Default for AdviceRequest {
    fn default() -> Self {
        Self { rounds: None, warmups: Vec::new(), tolerance: 0.01, scratch: None }
    }
}

/// Runs a pilot, and says what it measured and what follows from it; `None` when it was asked to
/// stop, for advice needs the whole pilot.
pub fn advise(
    experiment: &Experiment,
    asked: &AdviceRequest,
    listener: &dyn Listener,
) -> Result<Option<Advice>> {
    let trunk = experiment.warming_up()?;
    let plan = PilotPlan::new(&trunk, asked)?;
    if let Some(folder) = asked.scratch.as_ref().filter(|folder| !folder.is_dir()) {
        let expected = "a folder that exists";
        return Err(Complaint::new("--scratch", folder.display(), expected).into());
    }
    // What clients keep is there once for every moment that a branch starts from, and once more.
    let moments = 1 + plan.warmups.iter().filter(|warmup| **warmup > 0).count();
    let run = Run::prepare(&trunk)?;
    let pilot = Pilot::new(&trunk, &run, plan)?;
    listener.note(&pilot.introduction());
    let (prepared, recipe) = run.parts();
    let placement = forecast::placement(&trunk, prepared, recipe)?.with_moments(&trunk, moments);
    let scratch = scratch(asked, placement, &trunk, listener)?;
    let scratch = scratch.as_ref().map(|(placement, file)| (placement, file.as_path()));
    let outcome = match run.thread_pool()? {
        Some(pool) => pool.install(|| pilot.run(listener, scratch)),
        None => pilot.run(listener, scratch),
    };
    match outcome? {
        Outcome::Complete(measured) => {
            Advice::of(experiment, &trunk, (&pilot, *measured)).map(Some)
        }
        Outcome::Interrupted => Ok(None),
    }
}

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct PilotPlan {
    /// Rounds of the trunk; every branch ends there too.
    pub horizon: u32,
    /// The rounds from which a branch goes on with query and key frozen, rising.
    pub warmups: Vec<u32>,
    /// How much score one would give up to send less.
    pub tolerance: f64,
}

impl PilotPlan {
    /// What is asked for, or why it cannot be tried on this trunk.
    pub fn new(trunk: &Experiment, asked: &AdviceRequest) -> Result<Self, Complaint> {
        if trunk.rounds < 2 {
            let expected = "at least 2: a trunk and a branch of it";
            return Err(Complaint::new("federation.rounds", trunk.rounds, expected));
        }
        let horizon = asked.rounds.unwrap_or(trunk.rounds);
        if !(2..=trunk.rounds).contains(&horizon) {
            let expected = format!("from 2 to the {} rounds of the experiment", trunk.rounds);
            return Err(Complaint::new("--rounds", horizon, expected));
        }
        if !(asked.tolerance.is_finite() && asked.tolerance >= 0.0) {
            return Err(Complaint::new("--tolerance", asked.tolerance, "a number, 0 or more"));
        }
        let mut warmups = asked.warmups.clone();
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
        Ok(Self { horizon, warmups, tolerance: asked.tolerance })
    }

    /// Rounds of training, if no branch is given up.
    pub fn cost(&self) -> u64 {
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

/// The file for what clients keep. Without a folder that the user named it stays in memory: a pilot
/// writes nothing of its own accord.
fn scratch(
    asked: &AdviceRequest,
    placement: StatePlacement,
    trunk: &Experiment,
    listener: &dyn Listener,
) -> Result<Option<(StatePlacement, PathBuf)>, Complaint> {
    if placement.each.bytes().0 == 0 {
        return Ok(None);
    }
    if let Some(folder) = &asked.scratch {
        let most = placement.scratch();
        listener
            .note(&format!("note: a scratch file in {} grows to {most} at most", folder.display()));
        // Others may use the folder for the same.
        let file = folder.join(format!("{SCRATCH}.{}", std::process::id()));
        return Ok(Some((StatePlacement { location: StateLocation::Disk, ..placement }, file)));
    }
    match placement.location {
        StateLocation::Memory => {}
        StateLocation::Disk if trunk.draft.keep == Keep::Disk => {
            return Err(Complaint::new("--scratch", "none", "a folder, since keep is \"disk\""));
        }
        StateLocation::Disk => listener.note(&format!(
            "note: up to {} of what {} clients keep, with all branches, stay in memory;\n      \
                 --scratch DIR lets them lie in a file there",
            placement.total(),
            placement.whose()
        )),
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Overrides;

    fn plan(rounds: u32, horizon: Option<u32>) -> Result<PilotPlan, Complaint> {
        let overrides = Overrides::new(vec![format!("federation.rounds={rounds}")], None);
        let text = include_str!("../../tests/tiny.toml");
        let trunk = Experiment::from_text(text, "tiny.toml", "tiny", &overrides).unwrap();
        PilotPlan::new(&trunk, &AdviceRequest { rounds: horizon, ..AdviceRequest::default() })
    }

    #[test]
    fn the_cost_of_the_longest_experiment_can_be_counted() {
        let plan = plan(u32::MAX, None).unwrap();
        assert_eq!(plan.warmups, [0, 1 << 29, 1 << 30, 1 << 31]);
        let branches = 4 * u64::from(u32::MAX) - (7 << 29);
        assert_eq!(plan.cost(), u64::from(u32::MAX) + branches);
    }

    #[test]
    fn one_round_is_refused_by_the_key_that_says_so() {
        for horizon in [None, Some(1)] {
            let refused = plan(1, horizon).unwrap_err().to_string();
            assert!(refused.starts_with("federation.rounds: found 1, expected at least 2"));
        }
        let refused = plan(4, Some(1)).unwrap_err().to_string();
        assert!(refused.starts_with("--rounds: found 1, expected from 2 to the 4"), "{refused}");
    }
}
