//! A run that began and could not go on, as opposed to one that was refused.
//!
//! The difference is the exit status: 2 means that nothing was written, 1 that something may be lost
//! and something is kept. What is kept is said, and how to go on from it.

use std::fmt;
use std::path::Path;

use fedra_engine::EngineError;

/// How far a run came, as the context of the error that ended it.
#[derive(Clone, Debug)]
pub struct Breakdown {
    rounds: u32,
    of: u32,
    folder: String,
}

impl Breakdown {
    /// An error on the way, with how many of how many rounds the folder keeps; a refusal stays one.
    pub fn of(error: anyhow::Error, (rounds, of): (u32, u32), folder: &Path) -> anyhow::Error {
        match error.downcast_ref::<EngineError>() {
            // The same rounds would diverge again.
            Some(EngineError::Diverged { .. }) => error,
            Some(engine) if !is_breakdown(engine) => error,
            Some(_) | None => {
                error.context(Self { rounds, of, folder: folder.display().to_string() })
            }
        }
    }
}

/// What is kept, and what to do next: it stands behind the error, as hints do.
impl fmt::Display for Breakdown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, of, folder } = self;
        write!(
            formatter,
            "hint: {rounds} of {of} rounds are kept; once this is mended, fedra run --resume \
             {folder} goes on"
        )
    }
}

/// Whether an error of the engine ends a run on its way; the others refuse one.
pub fn is_breakdown(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Diverged { .. }
            | EngineError::TooFewArrivals { .. }
            | EngineError::NobodyArrived { .. }
            | EngineError::Unmeasured { .. }
            | EngineError::Wire(_)
            | EngineError::Fleet { .. }
            | EngineError::Sink(_)
            | EngineError::Disk { .. }
    )
}

/// 1 for a run that broke down on its way, 2 for an experiment or a flag that was refused.
pub fn status(error: &anyhow::Error) -> u8 {
    let broken = error.downcast_ref::<EngineError>().is_some_and(is_breakdown);
    if broken || error.downcast_ref::<Breakdown>().is_some() { 1 } else { 2 }
}
