//! What a client and the server hold in memory, roughly, without the program itself.

use anyhow::Result;
use fedra_compute::Seed;
use fedra_engine::{Choice, ClientId, ClientInfo, Recipe, ServerRule, Solver};
use fedra_model::Model;
use fedra_plan::{ByteCount, Round, Scope, Site};

use crate::experiment::{Complaint, Experiment};

/// Values that a block keeps of each token for the backward pass, in multiples of the width: its
/// input, query, key, value, context, two norms and four and four again in the feed-forward layer.
const KEPT_WIDTHS: u64 = 16;

/// A client that trains this part: the model, a copy of what trains, its gradient, moments and
/// encoded change, and the activations of all blocks from the lowest that learns.
pub fn client(
    model: &Model,
    (recipe, experiment): (&Recipe, &Experiment),
    learns: &Scope,
) -> ByteCount {
    let layout = model.layout();
    let trained = learns.elements(layout) as u64;
    let moments = match recipe.work.solver {
        Solver::Sgd { .. } => 0,
        Solver::Momentum { .. } => 1,
        Solver::AdamW { .. } => 2,
    };
    let longest = experiment.draft.data.max_tokens.unwrap_or(0) as u64;
    let tokens = u64::from(recipe.work.batch) * longest;
    let below = learns.lowest_site().map_or(model.blocks(), |site| match site {
        Site::Embedding => 0,
        Site::Block(block) => usize::from(block),
        Site::Head => model.blocks(),
    });
    let recorded = (model.blocks() - below) as u64;
    let activations = tokens * model.width() as u64 * recorded * KEPT_WIDTHS;
    ByteCount(4 * (layout.elements() as u64 + trained * (3 + moments) + activations))
}

/// The model, the sum, the update that is being added, and what a server optimiser remembers.
pub fn server(model: &Model, recipe: &Recipe, learns: &Scope) -> ByteCount {
    let layout = model.layout();
    let moments = match recipe.server {
        ServerRule::Average { .. } => 0,
        ServerRule::Momentum { .. } | ServerRule::Dynamic { .. } => 1,
        ServerRule::Adaptive { .. } => 2,
    };
    let trained = learns.elements(layout) as u64;
    ByteCount(4 * (layout.elements() as u64 + trained * (2 + moments)))
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
    let needed = |k: u16| -> Result<ByteCount> {
        let recipe = Recipe { learns: recipe.learns.with_block_count(k), ..recipe.clone() };
        let (layout, seed) = (model.layout(), Seed(experiment.draft.seed));
        let rule = &recipe.learns;
        let choice = Choice { recipe: &recipe, rule, layout, round: Round(0), seed };
        let anyone = ClientInfo { id: ClientId(0), name: String::new(), examples: 0 };
        let fixed = recipe.selection.criterion.is_fixed() && recipe.selection.explore == 0;
        let order = if fixed { choice.order(&anyone, &[]) } else { (0..layout.blocks()).collect() };
        Ok(client(model, (&recipe, experiment), &choice.learns(&anyone.name, &order)?))
    };
    let mut fits = None;
    for k in 1..=model.layout().blocks() {
        if needed(k)? <= budget {
            fits = Some(k);
        }
    }
    if let Some(k) = fits {
        return Ok(k);
    }
    let expected = format!("at least {}, for one block", needed(1)?);
    Err(Complaint::new("method.k.memory", budget, expected).into())
}
