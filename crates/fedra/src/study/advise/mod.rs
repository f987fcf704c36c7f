//! After how many rounds `FedFrozen` should freeze query and key, if at all.
//!
//! What a warm-up of W rounds is worth is measured and not inferred: the method beneath runs as the
//! trunk, and from some of its rounds a branch continues with query and key frozen. Trunk and branch
//! meet again in the last round and are compared client by client, on what the clients put aside to
//! validate ([`decision`]). Nothing is left behind, and the test sets are thrown away before the first
//! round, so nothing can look at them ([`pilot`]).

pub mod advice;
pub mod decision;
pub mod pilot;
mod pilot_plan;

pub use advice::Advice;
pub use pilot_plan::{AdviceRequest, PilotPlan};

use std::path::PathBuf;

use crate::config::{ConfigError, Experiment, Keep};
use crate::error::Result;
use crate::forecast::state_placement::StatePlacement;
use crate::forecast::traffic;
use crate::listener::Listener;
use crate::run::federate::{Run, on};
use crate::run_files::SCRATCH;
use pilot::Pilot;

/// Runs a pilot, and says what it measured and what follows from it; `None` when it was asked to
/// stop, for advice needs the whole pilot.
pub fn advise(
    experiment: &Experiment,
    asked: &AdviceRequest,
    listener: &dyn Listener,
) -> Result<Option<Advice>> {
    let expected = "no [privacy]: every pilot is a separate run on the same rows, and the privacy guarantee does not cover them";
    ConfigError::new("privacy", "a guarantee", expected)
        .when(experiment.recipe.privacy.is_some())?;
    let trunk = experiment.warming_up()?;
    let plan = PilotPlan::new(&trunk, asked)?;
    if let Some(folder) = &asked.scratch {
        ConfigError::new("scratch", folder.display(), "a folder that exists")
            .when(!folder.is_dir())?;
    }
    // What clients keep is there once for every moment that a branch starts from, and once more.
    let moments = 1 + plan.warmups.iter().filter(|warmup| **warmup > 0).count();
    let run = Run::heard(&trunk, listener)?;
    let pilot = Pilot::new(&trunk, &run, plan)?;
    listener.note(&pilot.introduction());
    let placement =
        traffic::placement((&trunk, &run.prepared, &run.recipe))?.with_moments(&trunk, moments);
    let scratch = scratch(asked, placement, &trunk, listener)?;
    let scratch = scratch.as_ref().map(|(placement, file)| (placement, file.as_path()));
    let outcome = on(run.thread_pool()?.as_ref(), || pilot.run(listener, scratch));
    outcome?.map(|measured| Advice::of(experiment, &trunk, (&pilot, measured))).transpose()
}

/// The file for what clients keep. Without a folder that the user named it stays in memory: a pilot
/// writes nothing of its own accord.
fn scratch(
    asked: &AdviceRequest,
    placement: StatePlacement,
    trunk: &Experiment,
    listener: &dyn Listener,
) -> Result<Option<(StatePlacement, PathBuf)>, ConfigError> {
    if placement.each.bytes().0 == 0 {
        return Ok(None);
    }
    if let Some(folder) = &asked.scratch {
        let most = placement.scratch();
        listener
            .note(&format!("note: a scratch file in {} grows to {most} at most", folder.display()));
        // Others may use the folder for the same.
        let file = folder.join(format!("{SCRATCH}.{}", std::process::id()));
        return Ok(Some((StatePlacement { on_disk: true, ..placement }, file)));
    }
    if placement.on_disk {
        ConfigError::new("scratch", "none", "a folder, since keep is \"disk\"")
            .when(trunk.raw.keep == Keep::Disk)?;
        listener.note(&format!(
            "note: up to {} of client state, of {} clients with all branches, stay in memory; --scratch DIR stores it in a file there",
            placement.total(),
            placement.whose()
        ));
    }
    Ok(None)
}
