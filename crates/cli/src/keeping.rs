//! How much all clients keep between rounds, and where a simulation keeps it.
//!
//! Memory is the faster place, so what fits in [`ROOM`] stays there. Beyond it the states of idle
//! clients go to a scratch file in the run's own folder: nothing is written outside of what the user
//! named. `keep` in the experiment file overrides the rule; neither place changes a bit of the result.

use std::path::Path;

use anyhow::Result;
use fedra_client::NearFleet;
use fedra_engine::{Cupboard, Recipe};
use fedra_model::Model;
use fedra_plan::{ByteCount, Scope};

use crate::dry_run;
use crate::experiment::{Experiment, Keep};
use crate::grid::grouped;
use crate::memory::Kept;
use crate::prepared::Prepared;

/// The most that stays in memory unless the experiment says otherwise: half of the two gigabytes
/// that a thousand clients of a small model are to fit in.
const ROOM: ByteCount = ByteCount(1_000_000_000);

/// The scratch file in a run's folder.
pub const SCRATCH: &str = "clients.fedra.scratch";

/// What a run keeps for its clients.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// The most that one client keeps.
    pub each: Kept,
    /// Clients that are ever drawn: the others keep nothing.
    pub keepers: usize,
    /// All clients.
    pub clients: usize,
    /// Where it lies while they are idle.
    pub home: Home,
}

/// Where idle clients' states lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In memory.
    Memory,
    /// In a scratch file.
    Disk,
}

impl Keeping {
    /// What this run will keep. Rounds are gone through only if that can matter.
    pub fn of(experiment: &Experiment, prepared: &Prepared, recipe: &Recipe) -> Result<Self> {
        let model = &prepared.model;
        let everything = Scope::everything(model.layout());
        let most = Kept::of(model, (recipe, experiment), &everything);
        let clients = prepared.shards.clients.len();
        let bound = Self::new(experiment, most, (clients, clients));
        match bound.home {
            Home::Memory => Ok(bound),
            Home::Disk => dry_run::keeping(experiment, prepared, recipe),
        }
    }

    /// What is kept if these parts learn, one after another, at the clients that are drawn.
    pub fn of_parts<'s>(
        (model, experiment, recipe): (&Model, &Experiment, &Recipe),
        parts: impl Iterator<Item = &'s Scope>,
        (keepers, clients): (usize, usize),
    ) -> Self {
        let kept = parts.map(|part| Kept::of(model, (recipe, experiment), part));
        let each = kept.max_by_key(|kept| kept.bytes()).unwrap_or_default();
        Self::new(experiment, each, (keepers, clients))
    }

    fn new(experiment: &Experiment, each: Kept, (keepers, clients): (usize, usize)) -> Self {
        let mut keeping = Self { each, keepers, clients, home: Home::Memory };
        let disk = match experiment.draft.keep {
            Keep::Memory => false,
            Keep::Disk => each.bytes().0 > 0,
            Keep::Auto => keeping.total() > ROOM,
        };
        if disk {
            keeping.home = Home::Disk;
        }
        keeping
    }

    /// Of all clients together.
    pub fn total(&self) -> ByteCount {
        ByteCount(self.each.bytes().0 * self.keepers as u64)
    }

    /// The length of the scratch file: everybody's state, and one that is about to replace another.
    pub fn scratch(&self) -> ByteCount {
        ByteCount(Cupboard::on_disk_bytes(self.each.bytes()).0 * (self.keepers as u64 + 1))
    }

    /// Whose it is, in words.
    pub fn whose(&self) -> String {
        let (keepers, clients) = (grouped(self.keepers as u64), grouped(self.clients as u64));
        if keepers == clients {
            format!("all {clients}")
        } else {
            format!("the {keepers} of {clients} that are ever drawn")
        }
    }

    /// The fleet with its cupboard, in this folder if it is to be on disk.
    pub fn furnish(&self, fleet: NearFleet, folder: &Path) -> Result<NearFleet> {
        let path = folder.join(SCRATCH);
        match self.home {
            Home::Memory => {
                // What a killed run left where a file cannot lose its name early; elsewhere nothing.
                let _absent = std::fs::remove_file(path);
                Ok(fleet)
            }
            Home::Disk => Ok(fleet.with_cupboard(Cupboard::on_disk(&path)?)),
        }
    }
}
