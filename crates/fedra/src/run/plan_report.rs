//! What an experiment would train, send and cost. Nothing is trained.
//!
//! Bytes are foreseen to the last one ([`crate::forecast::traffic`]); where they depend on how far choices
//! overlap, they are a range. Memory is an estimate: of a client and a server that have machines of
//! their own ([`crate::forecast::memory`]), and of all in one process ([`crate::forecast::run_memory`]).

use fedra_compute::Device;
use fedra_engine::{Population, Recipe};
use fedra_model::{Head, Model};
use fedra_plan::{ByteCount, Cut, Layer, Layout, Plan, Scope, Side};
use fedra_wire::payload_length;

use crate::config::{Experiment, ModelSource, unused_settings};
use crate::error::Result;
use crate::forecast::cutting::{self, CutCosts, Cuts};
use crate::forecast::gpu_memory::GpuMemory;
use crate::forecast::largest_batches::LargestBatches;
use crate::forecast::memory;
use crate::forecast::private::PrivacySummary;
use crate::forecast::run_memory::{self, RunMemory};
use crate::forecast::state_placement::StatePlacement;
use crate::forecast::traffic::choices::Overlap;
use crate::forecast::traffic::{Alike, Forecast};
use crate::listener::{Listener, Silent};
use crate::prepare::prepared::{Prepared, fresh_bytes};
use crate::process::resident_bytes;
use crate::run::federate::Run;

/// What a run of an experiment would do.
pub struct PlanReport {
    /// The experiment's name.
    pub name: String,
    /// How many rounds it has.
    pub rounds: u32,
    /// The method.
    pub recipe: Recipe,
    /// The parameters of the model.
    pub layout: Layout,
    /// What a person should know before it runs.
    pub notes: Vec<String>,
    /// What learns and travels, stage by stage and layer by layer.
    pub parts: Vec<PartRow>,
    /// Clients.
    pub clients: u64,
    /// Their training examples.
    pub examples: u64,
    /// Steps of a round in which all take part.
    pub steps: u64,
    /// Its rounds if choices overlap as much as they can: the least that it sends.
    pub least: Forecast,
    /// Its rounds if they overlap as little as they can: the most.
    pub most: Forecast,
    /// About the most memory that a client on its own machine needs: in training, or when it receives its first model.
    pub client_memory: ByteCount,
    /// About the memory that a server on its own machine needs.
    pub server_memory: ByteCount,
    /// The privacy guarantee and the epsilon that a private run will spend.
    pub privacy: Option<PrivacySummary>,
    /// What lengths take in place of masks, where it is cut.
    pub masks: Option<MaskCosts>,
    /// What a cut spares a client, where it is cut.
    pub saving: Option<Saving>,
    /// What every cut of the model would cost, where it is cut.
    pub cuts: Vec<CutCosts>,
    /// What clients keep between rounds, and where.
    pub kept: StatePlacement,
    /// The length of a checkpoint, about.
    pub checkpoint: ByteCount,
    /// What all of it takes in one process.
    pub memory: RunMemory,
    /// What of it is on a GPU, where one computes.
    pub gpu: Option<GpuMemory>,
    /// The first round, counted from 0, in which every attempt draws too few clients.
    pub hopeless: Option<usize>,
    /// Whether clients fail or are late on purpose, which no forecast follows.
    pub has_conditions: bool,
}

/// Bytes a sample, in the mean over the clients' examples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaskCosts {
    /// One length, and the sample's share of a frame's header.
    pub lengths: f64,
    /// One byte for each pair of tokens of a sample.
    pub mask: f64,
}

impl MaskCosts {
    fn of(prepared: &Prepared, recipe: &Recipe) -> Self {
        let lengths = || {
            let all = prepared.shards.clients.iter().flat_map(|shard| shard.train.encoded());
            all.map(|example| example.ids.len() as f64)
        };
        let count = lengths().count().max(1) as f64;
        let header = fedra_wire::FRAME_HEADER as f64 / f64::from(recipe.work.batch);
        Self { lengths: 4.0 + header, mask: lengths().map(|one| one * one).sum::<f64>() / count }
    }
}

/// A client of a cut model beside one that trains the whole model, on the same batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saving {
    /// The most tensor memory of a client without a cut.
    pub whole: ByteCount,
    /// How much less the client of a cut model holds, as a share.
    pub memory: f64,
    /// The same of weights alone.
    pub weights: f64,
}

impl Saving {
    fn of(
        (prepared, recipe): (&Prepared, &Recipe),
        plan: &Plan,
        largest: &LargestBatches,
    ) -> Result<Self> {
        let (model, layout) = (&prepared.model, prepared.model.layout());
        let uncut = Plan::new(layout, plan.learns().clone(), Cut::none())?.keeping(plan.keeps());
        let share = |part: u64, whole: u64| 1.0 - part as f64 / whole as f64;
        let (client, whole) =
            (largest.client(model, recipe, plan)?, largest.client(model, recipe, &uncut)?);
        let own = plan.held_by(Side::Client).elements(layout);
        let weights = share(own as u64, layout.elements() as u64);
        Ok(Self { whole, memory: share(client.0, whole.0), weights })
    }
}

/// A layer of the model in a stage of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRow {
    /// The round that the stage begins in, counted from 0.
    pub from: u32,
    /// The layer; none for the whole model.
    pub layer: Option<Layer>,
    /// Its parameters.
    pub parameters: u64,
    /// Those that learn.
    pub learn: u64,
    /// Those that travel.
    pub travel: u64,
    /// What they take on the way up, without header and bitmap, which belong to no layer.
    pub bytes_up: ByteCount,
}

/// Prepares all that a run would prepare, and foresees its rounds.
pub fn plan(experiment: &Experiment) -> Result<PlanReport> {
    plan_with(experiment, Cuts::Few, &Silent)
}

/// The same with these cuts of a split model, with a listener.
pub fn plan_with(
    experiment: &Experiment,
    cuts: Cuts,
    listener: &dyn Listener,
) -> Result<PlanReport> {
    let device = if has_large_fresh_weights(experiment) { Device::meta() } else { Device::cpu() };
    plan_of(&Run::prepare_on(experiment, device, listener)?, cuts)
}

/// The same for what is prepared already.
pub fn plan_of(run: &Run, cuts: Cuts) -> Result<PlanReport> {
    // Before the forecasts take memory of their own.
    let resident = ByteCount(resident_bytes().unwrap_or(0));
    let Run { experiment, prepared, recipe, device, .. } = run;
    let unmade = if device.has_numbers() { ByteCount(0) } else { fresh_bytes(&prepared.model) };
    let resident = resident + unmade;
    let (model, layout) = (&prepared.model, prepared.model.layout());
    let of = (experiment, prepared, recipe);
    let (least, most) = (Forecast::of(of, Overlap::Most)?, Forecast::of(of, Overlap::Least)?);
    let clients = &prepared.shards.clients;
    let kept = least.stages.placement(experiment, prepared);
    let batches = LargestBatches::of(of);
    let stages = &least.stages.plans[..];
    let sides = memory::sides(of, stages, &batches)?;
    let cut_from_the_first = stages.first().filter(|_| recipe.split.is_some());
    let saving = cut_from_the_first
        .map(|(_, plan)| Saving::of((prepared, recipe), plan, &batches))
        .transpose()?;
    let saved = stages.iter().map(|(_, plan)| memory::saved(model, recipe, plan)).max();
    let hopeless = |alike: &&Alike| alike.bytes.full_down == ByteCount(0);
    let hopeless = least.rounds.iter().find(hopeless).map(|alike| alike.from as usize);
    let needs_clients = recipe.population == Population::Federated && recipe.min_arrivals.of(0) > 0;
    Ok(PlanReport {
        name: experiment.name.clone(),
        rounds: experiment.rounds,
        notes: unused_settings(experiment)
            .into_iter()
            .chain(run.notes())
            .chain(run.privacy_warning()?)
            .collect(),
        parts: parts(layout, stages, recipe),
        clients: clients.len() as u64,
        examples: clients.iter().map(|shard| shard.train.len() as u64).sum(),
        steps: clients.iter().map(|shard| recipe.steps(shard.train.len() as u64)).sum(),
        client_memory: sides.client,
        server_memory: sides.server,
        saving,
        privacy: run.privacy()?,
        masks: recipe.split.as_ref().map(|_| MaskCosts::of(prepared, recipe)),
        cuts: cutting::costs(of, &batches, cuts)?,
        checkpoint: saved.unwrap_or_default() + kept.total(),
        memory: RunMemory::of(of, (&kept, stages), &batches, resident)?,
        gpu: GpuMemory::of(of, (stages, run_memory::at_work(of, &kept)), &batches)?,
        kept,
        hopeless: hopeless.filter(|_| needs_clients),
        has_conditions: experiment.raw.conditions.is_some(),
        recipe: recipe.clone(),
        layout: layout.clone(),
        least,
        most,
    })
}

/// Whether a model starts from fresh weights, which a plan need not make.
fn has_large_fresh_weights(experiment: &Experiment) -> bool {
    const LARGE: usize = 1 << 28;
    let ModelSource::Fresh(config, _) = &experiment.model else { return false };
    Model::new((**config).clone(), Head::Bare, None)
        .is_ok_and(|model| model.layout().elements() > LARGE)
}

/// What each layer holds, what of it learns, what travels.
fn parts(layout: &Layout, stages: &[(u32, Plan)], recipe: &Recipe) -> Vec<PartRow> {
    let mut rows = Vec::new();
    let blocks = (0..layout.blocks()).map(Layer::Block);
    let layers: Vec<Layer> =
        [Layer::Embedding].into_iter().chain(blocks).chain([Layer::Head]).collect();
    for (from, plan) in stages {
        let row = |layer: Option<Layer>| {
            let whole = layer.map_or_else(
                || Scope::everything(layout),
                |layer| Scope::of_layers(layout, [layer]),
            );
            let (learns, travels) = (&whole & plan.learns(), &whole & &plan.uploads());
            let pooled = recipe.population == Population::Pooled;
            let travels = if pooled { Scope::empty() } else { travels };
            let count = |scope: &Scope| scope.elements(layout) as u64;
            let frame = payload_length(layout, &Scope::empty(), recipe.work.encoding);
            let length = payload_length(layout, &travels, recipe.work.encoding) - frame;
            PartRow {
                from: *from,
                layer,
                parameters: count(&whole),
                learn: count(&learns),
                travel: count(&travels),
                bytes_up: ByteCount(length as u64),
            }
        };
        rows.extend(layers.iter().map(|layer| row(Some(*layer))).chain([row(None)]));
    }
    rows
}
