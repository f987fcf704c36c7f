//! What a client and the server of a real deployment hold in memory, without the program itself.
//!
//! Each has a machine of its own here. What all of them take in one process, where clients share
//! weights and threads, is another question ([`crate::run_memory`]).

use fedra_compute::Seed;
use fedra_engine::{Choice, ClientId, ClientInfo, LocalRule, Recipe, ServerRule};
use fedra_model::Model;
use fedra_plan::{ByteCount, Plan, Round, Side};

use crate::activations::{BatchSize, of_side};
use crate::error::Result;
use crate::experiment::{Complaint, Experiment};
use crate::state_size::{StateSize, stays};

/// A client with this plan on batches of the longest sequences: the model, a copy of what
/// trains, moments, what a step holds, the change and its payload, and what the client keeps.
/// SCAFFOLD adds the server's variate, the mean gradient, the variate's change and that encoded.
pub fn client(
    model: &Model,
    (recipe, experiment): (&Recipe, &Experiment),
    plan: &Plan,
) -> ByteCount {
    let moments = recipe.work.solver.moments();
    let longest = experiment.draft.data.max_tokens.unwrap_or(model.longest()) as u64;
    let sequences = u64::from(recipe.work.batch);
    let batch = BatchSize::full(model, sequences * longest, sequences);
    let step = of_side(model, plan, Side::Client, batch);
    let variates = match recipe.work.local {
        LocalRule::ControlVariate => 4,
        LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => 0,
    };
    let parameters = plan.memory(Side::Client, model.layout()).in_training(3 + moments + variates);
    let kept = StateSize::of(model, (recipe, experiment), plan).bytes();
    ByteCount(parameters.0 + 4 * step + kept.0)
}

/// The model, the sum, the update that is being added, and what a server optimiser or a control
/// variate remembers.
pub fn server(model: &Model, recipe: &Recipe, plan: &Plan) -> ByteCount {
    let trained = plan.memory(Side::Client, model.layout()).trained;
    ByteCount(saved(model, recipe, plan).0 + 4 * 2 * trained)
}

/// What a client of a cut model holds beside tensors: the change, its payload, and what it keeps.
pub fn beside_tensors(
    model: &Model,
    (recipe, experiment): (&Recipe, &Experiment),
    plan: &Plan,
) -> ByteCount {
    let trained = plan.memory(Side::Client, model.layout()).trained;
    let kept = StateSize::of(model, (recipe, experiment), plan).bytes();
    ByteCount(4 * 2 * trained + kept.0)
}

/// What of the server is in a checkpoint: the model and what is remembered.
pub fn saved(model: &Model, recipe: &Recipe, plan: &Plan) -> ByteCount {
    let moments = match recipe.server {
        ServerRule::Average { .. } => 0,
        ServerRule::Momentum { .. } | ServerRule::Dynamic { .. } => 1,
        ServerRule::Adaptive { .. } => 2,
    };
    let variates = match recipe.work.local {
        LocalRule::ControlVariate => 1,
        LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => 0,
    };
    let trained = plan.memory(Side::Client, model.layout()).trained;
    ByteCount(4 * (model.layout().elements() as u64 + trained * (moments + variates)))
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
        let mut recipe = recipe.clone();
        recipe.selection.k = k;
        let (layout, seed) = (model.layout(), Seed(experiment.draft.seed));
        let rule = &recipe.learns;
        let choice = Choice { recipe: &recipe, rule, layout, round: Round(0), seed };
        let anyone = ClientInfo { id: ClientId(0), name: String::new(), examples: 0 };
        let order = if stays(&recipe) {
            choice.order(&anyone, &[])
        } else {
            (0..layout.blocks()).collect()
        };
        Ok(client(model, (&recipe, experiment), &choice.plan(&anyone.name, &order)?))
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
