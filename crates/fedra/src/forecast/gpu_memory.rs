//! What of a GPU's memory is in use at once: the run's own steps on a device that counts as a GPU does.
//!
//! It is the high-water mark of what tensors take, which a run reports as `device_peak_bytes`. The driver's own
//! context, some hundred megabytes, is outside of it.

use fedra_compute::{Device, Precision};
use fedra_plan::{ByteCount, Plan, Side};

use crate::error::Result;
use crate::forecast::largest_batches::LargestBatches;
use crate::forecast::memory;
use crate::forecast::run_memory::prefix;
use crate::forecast::traffic::course::Setting;
use crate::prepare::prepared::fresh_bytes;

/// What a GPU holds at once, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuMemory {
    /// The precision that it computes in.
    pub precision: Precision,
    /// A client with a GPU of its own.
    pub client: ByteCount,
    /// The server's half of a model that is cut, on a GPU of its own.
    pub server: ByteCount,
    /// Everybody on one GPU.
    pub run: ByteCount,
    /// Clients that are at work at a time there.
    pub at_once: u64,
}

impl GpuMemory {
    /// How far the high-water mark of a step may be from what is foreseen, as a share.
    pub const ERROR: f64 = 0.1;

    /// Of a run that goes through these stages; `None` where the processor computes.
    pub(crate) fn of(
        (experiment, prepared, recipe): Setting<'_>,
        (stages, at_once): (&[(u32, Plan)], u64),
        batches: &LargestBatches,
    ) -> Result<Option<Self>> {
        let Some(precision) = experiment.device.gpu() else { return Ok(None) };
        let (model, batches) = (&prepared.model, batches.clone().on_gpu(precision));
        let nothing = ByteCount(0);
        // Clients that are at work beside each other have each its own for their products, unless a server's half is
        // on the same GPU.
        let workspace = Device::meta_gpu(precision).usage().live_bytes as u64;
        let mut most = Self { precision, client: nothing, server: nothing, run: nothing, at_once };
        let weights = fresh_bytes(model).0;
        // Products have read the shared weights as bf16.
        let exchanged = memory::exchanged(model).0;
        let rounded = if precision == Precision::Bf16 { exchanged / 2 } else { 0 };
        let scoring = ByteCount(weights + rounded) + batches.scoring(model, recipe)?;
        for (_, plan) in stages {
            let cached = prefix(model, (recipe, plan), &prepared.shards.clients);
            let client = batches.client(model, recipe, plan)? + cached;
            let server = match recipe.split {
                Some(_) => batches.server(model, recipe, plan)?,
                None => nothing,
            };
            let held = plan.memory(Side::Client, model.layout()).in_training(0);
            let spared = model.storage().spared(model.layout(), &plan.held_by(Side::Client));
            let held = held.0 - spared.0;
            let shared = if recipe.split.is_some() || at_once == 1 { workspace } else { 0 };
            let beside = at_once * client.0.saturating_sub(held + shared);
            let training = ByteCount(weights + workspace + beside) + server;
            most.client = most.client.max(client);
            most.server = most.server.max(server);
            most.run = most.run.max(training).max(scoring);
        }
        Ok(Some(most))
    }
}
