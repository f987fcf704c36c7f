//! What a cut costs: memory at either side, bytes and round trips, for one cut or for all of them.
//!
//! A client that says how much memory it has gets the cut that leaves it the most blocks within
//! that; the blocks are dealt to both ends alike, the first end before the last.

use fedra_engine::{
    ClientBlocks, CrossingBytes, Recipe, RowPrivacy, SideMemory, SplitConfig, SplitMode,
};
use fedra_model::Model;
use fedra_plan::{ByteCount, Cut, Layer, Plan, Round, Rule};

use crate::config::Experiment;

use crate::config::split_table::EndsAre;
use crate::error::Result;
use crate::forecast::largest_batches::LargestBatches;
use crate::forecast::memory;
use crate::forecast::traffic::crossing::{self, Batches};
use crate::prepare::prepared::Prepared;

/// What a cut makes of a round in which everybody takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutCosts {
    /// The cut.
    pub ends: ClientBlocks,
    /// The most tensor memory of a client and of the server: what the reports of a run measure.
    pub memory: SideMemory,
    /// Changes of the clients' ends on their way up.
    pub parameters_up: ByteCount,
    /// What crosses the cut in training.
    pub crossing: CrossingBytes,
}

/// Settles what of a cut depends on the model: ends that follow from a memory, and whose they are.
pub fn settle(recipe: &mut Recipe, experiment: &Experiment, model: &Model) -> Result<()> {
    let (Some(cut), Some(split)) = (&experiment.cut, &recipe.split) else {
        return Ok(());
    };
    if let Some(budget) = cut.memory {
        let ends = within(budget, (recipe, experiment), model)?;
        recipe.split = Some(SplitConfig { ends, ..split.clone() });
    }
    let longest = experiment.max_tokens;
    if let Some(split) = &mut recipe.split {
        let blocks = model.layout().blocks();
        (recipe.learns, recipe.personal) = rules(experiment, split.ends, blocks);
        if recipe.privacy.is_some() {
            let longest = u32::try_from(longest).unwrap_or(u32::MAX);
            split.privacy = RowPrivacy::Accounted { longest };
        }
    }
    Ok(())
}

/// What learns in a model that is cut there, and what of it never leaves a client.
fn rules(experiment: &Experiment, ends: ClientBlocks, blocks: u16) -> (Rule, Rule) {
    let Recipe { learns, personal, .. } = experiment.recipe.clone();
    match experiment.cut.map(|cut| cut.ends) {
        None | Some(EndsAre::Shared) => (learns, personal),
        Some(EndsAre::Personal) => (learns, Rule::Union(vec![personal, sites(ends, blocks)])),
        Some(EndsAre::Frozen) => (learns - sites(ends, blocks), personal),
    }
}

/// What a client has of a model that is cut there.
fn sites(ClientBlocks { first, last }: ClientBlocks, blocks: u16) -> Rule {
    let own = (0..first.min(blocks)).chain(blocks.saturating_sub(last)..blocks);
    Rule::Layers(own.map(Layer::Block).chain([Layer::Embedding, Layer::Head]).collect())
}

/// The cut that leaves a client the most blocks within a memory.
fn within(
    budget: ByteCount,
    (recipe, experiment): (&Recipe, &Experiment),
    model: &Model,
) -> Result<ClientBlocks> {
    let blocks = model.layout().blocks();
    // Near and far have to find the same cut, and a server has no rows.
    let batches = LargestBatches::full(experiment, model, recipe);
    let needed = |kept: u16| -> Result<(ClientBlocks, ByteCount)> {
        let ends = ClientBlocks { first: kept.div_ceil(2), last: kept / 2 };
        let (learns, split) = (rules(experiment, ends, blocks).0, Some(SplitConfig::new(ends)));
        let recipe = &Recipe { learns, split, ..recipe.clone() };
        let plan = plan_of(recipe, model, ends)?;
        let tensors = batches.client(model, recipe, &plan)?;
        let memory = memory::client(tensors, model, (recipe, experiment), &plan);
        Ok((ends, memory))
    };
    memory::last_within(
        budget,
        0..blocks,
        needed,
        ("split.client_memory", "embedding and head alone"),
    )
}

/// A client's plan of the first round under a cut.
fn plan_of(
    recipe: &Recipe,
    model: &Model,
    ClientBlocks { first, last }: ClientBlocks,
) -> Result<Plan> {
    let layout = model.layout();
    // Of blocks that are chosen, as many from the first on.
    let chosen = (0..recipe.selection.k.min(layout.blocks())).collect();
    let learns = recipe.learns_in(Round(0)).select_with(layout, &chosen)?;
    let cut = Cut::keep(first, last, layout.blocks())?;
    Ok(Plan::new(layout, learns, cut)?.keeping(&recipe.personal.select(layout)?))
}

/// Which cuts are gone through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cuts {
    /// All, of a model of few blocks; of a deeper one, those with equal ends and the chosen one.
    #[default]
    Few,
    /// All.
    All,
}

/// Blocks of a model beyond which it has many cuts.
const FEW_BLOCKS: u16 = 8;

/// The costs of the cuts of the model, by first and then last.
pub fn costs(
    (experiment, prepared, recipe): (&Experiment, &Prepared, &Recipe),
    largest: &LargestBatches,
    cuts: Cuts,
) -> Result<Vec<CutCosts>> {
    let Some(split) = &recipe.split else { return Ok(Vec::new()) };
    let (model, clients) = (&prepared.model, &prepared.shards.clients);
    let blocks = model.layout().blocks();
    let seed = experiment.seed;
    let batches: Vec<Batches> = (0_u64..)
        .zip(clients)
        .map(|(number, shard)| {
            let seed = crossing::client_seed(seed, Round(0), number);
            Batches::of_training(&recipe.work, shard.train.encoded(), seed)
        })
        .collect();
    let is_shown = |ends: &ClientBlocks| {
        cuts == Cuts::All || blocks <= FEW_BLOCKS || ends.first == ends.last || *ends == split.ends
    };
    let ends = (0..blocks)
        .flat_map(|first| (0..blocks - first).map(move |last| ClientBlocks { first, last }))
        .filter(is_shown);
    let costs = |ends: ClientBlocks| {
        let split = SplitConfig { ends, ..split.clone() };
        let (learns, personal) = rules(experiment, ends, blocks);
        let recipe = Recipe { split: Some(split.clone()), personal, learns, ..recipe.clone() };
        let plan = plan_of(&recipe, model, ends)?;
        let mut all = CrossingBytes::default();
        for batches in &batches {
            all += batches.crossing((&plan, &split), model.width(), recipe.work.clip.is_some());
        }
        let up = fedra_wire::payload_length(model.layout(), &plan.uploads(), recipe.work.encoding);
        Ok(CutCosts {
            ends,
            memory: largest.sides(model, &recipe, &plan)?,
            parameters_up: ByteCount(up as u64 * clients.len() as u64),
            crossing: all,
        })
    };
    ends.map(costs).collect()
}

/// How the server serves its clients, for people.
pub const fn describe(mode: SplitMode) -> &'static str {
    match mode {
        SplitMode::Sequential => "one copy of the middle, clients in turn",
        SplitMode::Batched => "one copy of the middle, all clients in one step",
        SplitMode::Replicated => "a copy of the middle for each client",
    }
}
