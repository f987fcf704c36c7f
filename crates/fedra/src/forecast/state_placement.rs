//! How much all clients keep between rounds, and where a simulation keeps it.
//!
//! Memory is the faster place, so what fits in `ROOM` stays there. Beyond it the states of idle
//! clients go to a scratch file in the run's own folder: nothing is written outside of what the user
//! named. `keep` in the experiment file overrides the rule; neither place changes a bit of the result.

use std::path::Path;

use fedra_client::LocalFleet;
use fedra_engine::StateStore;
use fedra_plan::ByteCount;

use crate::config::{Experiment, Keep};
use crate::error::Result;
use crate::forecast::state_size::StateSize;
use crate::text::grid::grouped;

/// The most that stays in memory unless the experiment says otherwise: half of the two gigabytes
/// that a thousand clients of a small model are to fit in.
const ROOM: ByteCount = ByteCount(1_000_000_000);

/// What a run keeps for its clients.
#[derive(Clone, Copy, Debug)]
pub struct StatePlacement {
    /// The most that one client keeps.
    pub each: StateSize,
    /// How many moments of a client are kept at once: one in a run, more where it branches.
    pub moments: usize,
    /// Clients that are ever drawn: the others keep nothing.
    pub keepers: usize,
    /// All clients.
    pub clients: usize,
    /// Whether it lies in a scratch file while they are idle, and not in memory.
    pub on_disk: bool,
}

impl StatePlacement {
    /// The same with so many moments of everybody at once.
    pub fn with_moments(self, experiment: &Experiment, moments: usize) -> Self {
        Self { moments, ..self }.settled(experiment)
    }

    /// What is kept by so many out of so many clients, of which none keeps more than this.
    pub fn new(
        experiment: &Experiment,
        each: StateSize,
        (keepers, clients): (usize, usize),
    ) -> Self {
        Self { each, moments: 1, keepers, clients, on_disk: false }.settled(experiment)
    }

    /// The same where it belongs.
    fn settled(self, experiment: &Experiment) -> Self {
        let on_disk = match experiment.raw.keep {
            Keep::Memory => false,
            Keep::Disk => self.each.bytes().0 > 0,
            Keep::Auto => self.total() > ROOM,
        };
        Self { on_disk, ..self }
    }

    /// Of all clients together.
    pub fn total(&self) -> ByteCount {
        ByteCount(self.each.bytes().0 * (self.keepers * self.moments) as u64)
    }

    /// The length of the scratch file: everybody's state, and one that is about to replace another.
    pub fn scratch(&self) -> ByteCount {
        let states = (self.keepers * self.moments) as u64 + 1;
        ByteCount(StateStore::on_disk_bytes(self.each.bytes()).0 * states)
    }

    /// Whose it is, in words.
    pub fn whose(&self) -> String {
        let (keepers, clients) = (grouped(self.keepers as u64), grouped(self.clients as u64));
        if self.clients == 1 {
            "the only client".to_owned()
        } else if keepers == clients {
            format!("all {clients}")
        } else {
            format!("the {keepers} of {clients} that are ever selected")
        }
    }

    /// The fleet with its state store, which is this file if it is to be on disk.
    pub fn furnish(&self, mut fleet: LocalFleet, file: &Path) -> Result<LocalFleet> {
        if self.on_disk {
            fleet.state_store = StateStore::on_disk(file)?;
            return Ok(fleet);
        }
        // What a killed run left where a file cannot lose its name early; elsewhere nothing.
        let _absent = std::fs::remove_file(file);
        Ok(fleet)
    }
}
