//! How much memory a run will take, all clients in one process.
//!
//! Planning prepares what a run prepares, so what this process holds by then is no estimate: the
//! program and its libraries, rows as tokens, tokenizer, first weights. Added to it is what a run
//! adds, each counted at its largest:
//!
//! ```text
//! tensors  of steps and scoring, rehearsed; the pool keeps them
//! models   the server's model, the sum, answers, a checkpoint
//! clients  what they keep between rounds, and what is noted about each of them
//! ```
//!
//! The first model is sent before anybody trains, so it is not there together with these tensors.
//! How much of the system's memory that comes to is up to its allocator too, so the sum is an
//! estimate ([`RunMemory::ERROR`]).

use fedra_client::{JOBS_AHEAD, PREFIX_CACHE, Shard};
use fedra_engine::Recipe;
use fedra_model::Model;
use fedra_plan::{ByteCount, Plan};

use crate::config::Experiment;
use crate::error::Result;
use crate::forecast::largest_batches::LargestBatches;
use crate::forecast::memory;
use crate::forecast::state_placement::StatePlacement;
use crate::forecast::traffic::course::Setting;
use crate::prepare::prepared::Prepared;

/// What is noted about a client in a round, about: its order, its answer, and its scores by name.
const NOTED: u64 = 3000;

/// What a run holds, by cause, each at its largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunMemory {
    /// Program, data and first weights, as they are in this process.
    pub prepared: ByteCount,
    /// Tensors of steps and scoring.
    pub tensors: ByteCount,
    /// The server's model and the first model on its way to everybody.
    pub first: ByteCount,
    /// The server's model, the copy of it that is scored, and updates on their way.
    pub models: ByteCount,
    /// What clients keep between rounds, and what is noted about them.
    pub clients: ByteCount,
}

impl RunMemory {
    /// How far the resident size of a run may be from [`RunMemory::total`], as a share of that.
    pub const ERROR: f64 = 0.25;

    /// The most that is there at once.
    pub fn total(&self) -> ByteCount {
        self.prepared + self.clients + self.first.max(self.tensors + self.models)
    }

    /// What this process, which held so much when all was prepared, would come to hold if it went
    /// on with a run that learns these parts and keeps this.
    pub(crate) fn of(
        (experiment, prepared, recipe): (&Experiment, &Prepared, &Recipe),
        (placement, stages): (&StatePlacement, &[(u32, Plan)]),
        batches: &LargestBatches,
        held: ByteCount,
    ) -> Result<Self> {
        let (model, threads) = (&prepared.model, threads(experiment, placement));
        let whole = memory::exchanged(model);
        let noted = ByteCount(NOTED * placement.clients as u64);
        // As far as it is in memory, and what those at work have of it.
        let in_memory = if placement.on_disk { threads } else { placement.keepers as u64 };
        // A state beside the one that it replaces: in the first round there is none to replace.
        let next = if experiment.rounds == 1 { 0 } else { threads * JOBS_AHEAD as u64 };
        let kept = (in_memory + next) * placement.each.bytes().0;
        let clients = ByteCount(kept) + noted;
        let mut all = Self { prepared: held, clients, ..Self::default() };
        for (_, plan) in stages {
            let cached = prefix(model, (recipe, plan), &prepared.shards.clients);
            // Those of a GPU are not in main memory.
            if experiment.device.gpu().is_none() {
                let tensors = batches.together((model, recipe, plan), threads)?;
                all.tensors = all.tensors.max(tensors + ByteCount(threads * cached.0));
            }
            let saved = memory::saved(model, recipe, plan);
            all.first = all.first.max(saved + memory::sending(model, recipe, plan));
            // One of each at work, and the sum.
            let updates = (threads + 1).min(placement.keepers as u64).max(1);
            let updates = memory::folding(model, recipe, plan, updates);
            all.models = all.models.max(saved + whole + updates.max(whole));
        }
        Ok(all)
    }
}

/// Multiply-adds of a step that is taken to fill a large GPU: an estimate, not a measurement.
const BUSY: u64 = 1 << 42;

/// Clients that are at work at a time, at most. Where nobody says how many threads there are, a GPU gets only as many
/// clients as keep it busy: each of them takes memory of its own there.
pub(crate) fn at_work(of: Setting<'_>, placement: &StatePlacement) -> u64 {
    let (experiment, prepared, recipe) = of;
    let all = threads(experiment, placement);
    if experiment.device.gpu().is_none() || experiment.raw.threads.is_some() {
        return all;
    }
    let clients = &prepared.shards.clients;
    let rows = clients.iter().flat_map(|shard| shard.train.encoded());
    // An image's row has no tokens of its own.
    let longest = rows.map(|row| row.ids.len()).max().filter(|tokens| *tokens > 0);
    let most = clients.iter().map(|shard| shard.train.len()).max().unwrap_or(0);
    let tokens = longest.unwrap_or(experiment.max_tokens) * most.min(recipe.work.batch as usize);
    // Forward, and backward for inputs and weights.
    let step = 3 * tokens as u64 * prepared.model.layout().elements() as u64;
    (BUSY / step.max(1)).clamp(1, all)
}

/// Threads that have a client to work on.
fn threads(experiment: &Experiment, placement: &StatePlacement) -> u64 {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    experiment.raw.threads.unwrap_or_else(cores).min(placement.keepers).max(1) as u64
}

/// Hidden states behind a frozen prefix that are kept from epoch to epoch, at most.
pub(crate) fn prefix(
    model: &Model,
    (recipe, plan): (&Recipe, &Plan),
    clients: &[Shard],
) -> ByteCount {
    if !plan.crossings().is_empty() || plan.frozen_prefix().is_none() || recipe.work.epochs < 2 {
        return ByteCount(0);
    }
    let tokens = |shard: &Shard| shard.train.encoded().iter().map(|row| row.ids.len()).sum();
    let most: usize = clients.iter().map(tokens).max().unwrap_or(0);
    ByteCount(4 * (most * model.width()) as u64).min(PREFIX_CACHE)
}
