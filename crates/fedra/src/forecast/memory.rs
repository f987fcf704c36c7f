//! What a client and the server of a real deployment hold in memory, without the program itself.
//!
//! Each has a machine of its own here. What all of them take in one process, where clients share
//! weights and threads, is another question ([`crate::forecast::run_memory`]).

use std::ops::Range;

use fedra_engine::{
    Choice, ClientId, ClientInfo, LocalRule, Recipe, ServerRule, SideMemory, Start,
};
use fedra_model::Model;
use fedra_plan::{ByteCount, Plan, Round, Scope, Shape, Side};

use crate::config::{ConfigError, Experiment};
use crate::error::Result;
use crate::forecast::largest_batches::LargestBatches;
use crate::forecast::state_size::{StateSize, stays};
use crate::prepare::prepared::Prepared;

/// The most that a client and a server hold in any stage of a run.
pub(crate) fn sides(
    (experiment, prepared, recipe): (&Experiment, &Prepared, &Recipe),
    stages: &[(u32, Plan)],
    batches: &LargestBatches,
) -> Result<SideMemory> {
    let model = &prepared.model;
    // Those that wait in memory, the one that is added, and the one that the sum lies in.
    let most = if variates(recipe) == 0 { 6 } else { 5 };
    let updates = recipe.sampler.about(prepared.shards.clients.len()).clamp(1, most) as u64;
    let mut most = SideMemory { client: ByteCount(0), server: ByteCount(0) };
    for (_, plan) in stages {
        // Those of a GPU are not in main memory.
        let tensors = match experiment.device.gpu() {
            None => batches.sides(model, recipe, plan)?,
            Some(_) => SideMemory { client: ByteCount(0), server: ByteCount(0) },
        };
        let client = client(tensors.client, model, (recipe, experiment), plan);
        most.client = most.client.max(client).max(receiving(model, recipe.start, plan));
        most.server = most.server.max(tensors.server + server(model, recipe, plan, updates));
    }
    Ok(most)
}

/// A client whose tensors take so much in training: these, or afterwards the model, the change and its payload,
/// since what was learnt is let go as its change is taken (a plain change is written into its payload); what the
/// client keeps; and with SCAFFOLD the server's variate, as it came and as it is asked for, and its own next one, as
/// numbers and as payload.
pub fn client(
    tensors: ByteCount,
    model: &Model,
    (recipe, experiment): (&Recipe, &Experiment),
    plan: &Plan,
) -> ByteCount {
    let parameters = plan.memory(Side::Client, model.layout());
    let spared = model.storage().spared(model.layout(), &plan.held_by(Side::Client));
    let variates = ByteCount(4 * 4 * variates(recipe) * parameters.trained);
    let state = StateSize::of(model, (recipe, experiment), plan);
    // The next moments beside those that it began with.
    let afterwards = ByteCount(parameters.in_training(2).0 - spared.0);
    tensors.max(afterwards) + variates + state.bytes() + state.moments()
}

/// One where clients have control variates.
fn variates(recipe: &Recipe) -> u64 {
    u64::from(recipe.work.local == LocalRule::ControlVariate)
}

/// A client that receives its part of the model: what it has, what comes, and the largest parameter of that as
/// numbers. A first download is everything, however little learns, unless all have it already.
pub fn receiving(model: &Model, start: Start, plan: &Plan) -> ByteCount {
    let held = plan.held_by(Side::Client);
    let comes = match start {
        Start::Sent => held.clone(),
        Start::Shared => plan.uploads(),
    };
    let (layout, storage) = (model.layout(), model.storage());
    let comes = comes - storage.scope();
    let largest = comes.iter().filter_map(|id| layout.get(id)).map(Shape::elements).max();
    let numbers = (comes.elements(layout) + largest.unwrap_or(0)) as u64;
    storage.bytes(layout, &held) + ByteCount(4 * numbers)
}

/// A server with so many updates in memory: the model, and the same once more to bring clients back with; what a
/// server optimiser or a control variate remembers; and the largest of what sending takes, what folding takes and
/// a checkpoint as it is written.
pub fn server(model: &Model, recipe: &Recipe, plan: &Plan, updates: u64) -> ByteCount {
    let whole = exchanged(model);
    let most = folding(model, recipe, plan, updates).max(sending(model, recipe, plan)).max(whole);
    saved(model, recipe, plan) + whole + most + base(model)
}

/// What of a model is exchanged.
pub fn exchanged(model: &Model) -> ByteCount {
    let everything = Scope::everything(model.layout());
    ByteCount(4 * model.storage().exchanged(model.layout(), &everything))
}

/// What of a model is stored in another format, and never exchanged.
fn base(model: &Model) -> ByteCount {
    model.storage().bytes(model.layout(), model.storage().scope())
}

/// The first model on its way: what is sent, and what it replaces.
pub fn sending(model: &Model, recipe: &Recipe, plan: &Plan) -> ByteCount {
    ByteCount(match recipe.start {
        Start::Sent => 2 * exchanged(model).0,
        Start::Shared => 4 * 2 * plan.memory(Side::Client, model.layout()).trained,
    })
}

/// Updates on their way: what was sent, and those that are in memory. The sum lies in the first of them, unless
/// they come with a variate.
pub fn folding(model: &Model, recipe: &Recipe, plan: &Plan, updates: u64) -> ByteCount {
    let (trained, variates) = (plan.memory(Side::Client, model.layout()).trained, variates(recipe));
    ByteCount(4 * (1 + variates) * (1 + variates + updates) * trained)
}

/// What of the server is in a checkpoint: the model and what is remembered.
pub fn saved(model: &Model, recipe: &Recipe, plan: &Plan) -> ByteCount {
    let moments = match recipe.server {
        ServerRule::Average { .. } => 0,
        ServerRule::Momentum { .. } | ServerRule::Dynamic { .. } => 1,
        ServerRule::Adaptive { .. } => 2,
    };
    let trained = plan.memory(Side::Client, model.layout()).trained;
    let remembered = trained * (moments + variates(recipe));
    exchanged(model) + ByteCount(4 * remembered)
}

/// The most blocks that a client may train within a budget.
///
/// Where data or a lot decides which blocks learn, the worst choice counts: one that reaches down
/// to the first block, so that every block's activations are kept.
pub fn blocks_within(
    budget: ByteCount,
    model: &Model,
    (recipe, experiment): (&Recipe, &Experiment),
) -> Result<u16> {
    // Near and far have to find the same number, and a server has no rows.
    let batches = LargestBatches::full(experiment, model, recipe);
    let needed = |k: u16| -> Result<(u16, ByteCount)> {
        let mut recipe = recipe.clone();
        recipe.selection.k = k;
        let (layout, seed) = (model.layout(), experiment.seed);
        let rule = &recipe.learns;
        let choice = Choice { recipe: &recipe, rule, layout, round: Round(0), seed };
        let anyone = ClientInfo { id: ClientId(0), name: String::new(), examples: 0 };
        let order = if stays(&recipe) {
            choice.order(&anyone, &[])
        } else {
            (0..layout.blocks()).collect()
        };
        let plan = choice.plan(&anyone.name, &order)?;
        let tensors = batches.client(model, &recipe, &plan)?;
        Ok((k, client(tensors, model, (&recipe, experiment), &plan)))
    };
    let what = ("method.k.memory", "one block and the longest rows");
    last_within(budget, 1..model.layout().blocks() + 1, needed, what)
}

/// The last of some choices whose need fits into a memory that a key gives; where none does, what the first
/// one needs, and for what, is said.
pub(crate) fn last_within<T>(
    budget: ByteCount,
    choices: Range<u16>,
    needed: impl Fn(u16) -> Result<(T, ByteCount)>,
    (key, what): (&str, &str),
) -> Result<T> {
    let all = choices.map(needed).collect::<Result<Vec<_>>>()?;
    let least = all.first().map_or(ByteCount(0), |(_, needed)| *needed);
    let fits = all.into_iter().rev().find(|(_, needed)| *needed <= budget);
    let expected = format_args!("at least {least}, for {what}");
    Ok(fits.ok_or_else(|| ConfigError::new(key, budget, expected))?.0)
}
