//! What a client and the server of a real deployment hold in memory, without the program itself.
//!
//! Each has a machine of its own here. What all of them take in one process, where clients share
//! weights and threads, is another question ([`crate::forecast::run_memory`]).

use fedra_engine::{Choice, ClientId, ClientInfo, LocalRule, Recipe, ServerRule, Start};
use fedra_model::Model;
use fedra_plan::{ByteCount, Plan, Round, Shape, Side};

use crate::config::{Complaint, Experiment};
use crate::error::Result;
use crate::forecast::activations::{BatchSize, of_side};
use crate::forecast::state_size::{StateSize, stays};

/// A client with this plan on such batches: the model, and either a copy of what trains, moments and what a step
/// holds, or afterwards the change and its payload; and what the client keeps.
/// SCAFFOLD adds seven: the server's variate as it came and as it is asked, as values and as tensors, its own as
/// tensors, the mean gradient, and gradients of embeddings whose rows were not used.
pub fn client(
    model: &Model,
    (recipe, experiment): (&Recipe, &Experiment),
    (plan, batch): (&Plan, BatchSize),
) -> ByteCount {
    let moments = recipe.work.solver.moments();
    let step = of_side(model, plan, Side::Client, batch);
    let variates = match recipe.work.local {
        LocalRule::ControlVariate => 7,
        LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => 0,
    };
    let parameters = plan.memory(Side::Client, model.layout());
    let training = parameters.in_training(1 + moments) + ByteCount(4 * step);
    let most = with_answer(training, (model, plan));
    let kept = StateSize::of(model, (recipe, experiment), plan).bytes();
    ByteCount(most.0 + 4 * variates * parameters.trained + kept.0)
}

/// A batch of the longest sequences, for who has no rows to look at.
pub fn full_batch(model: &Model, (recipe, experiment): (&Recipe, &Experiment)) -> BatchSize {
    let longest = experiment.max_tokens as u64;
    let sequences = u64::from(recipe.work.batch);
    BatchSize::full(model, sequences * longest, sequences)
}

/// The larger of what training takes and what is there afterwards: the model, the change and its payload. What
/// was learnt is let go as its change is taken, and a change as it is written.
fn with_answer(training: ByteCount, (model, plan): (&Model, &Plan)) -> ByteCount {
    training.max(plan.memory(Side::Client, model.layout()).in_training(2))
}

/// A client that receives its part of the model: what it has, what comes, and the largest parameter of that as
/// numbers. A first download is everything, however little learns, unless all have it already.
pub fn receiving(model: &Model, start: Start, plan: &Plan) -> ByteCount {
    let held = plan.held_by(Side::Client);
    let comes = match start {
        Start::Sent => held.clone(),
        Start::Shared => plan.uploads(),
    };
    let (layout, has) = (model.layout(), held.elements(model.layout()));
    let largest = comes.iter().filter_map(|id| layout.get(id)).map(Shape::elements).max();
    ByteCount(4 * (has + comes.elements(layout) + largest.unwrap_or(0)) as u64)
}

/// The server of a cohort: the model, and the same once more to bring clients back with; what a server optimiser
/// or a control variate remembers; and the largest of what sending takes (what is sent, as numbers and as bytes,
/// and what it replaces), what folding takes (the sum, what was sent, and updates that wait) and a checkpoint as
/// it is written.
pub fn server(model: &Model, recipe: &Recipe, plan: &Plan, cohort: usize) -> ByteCount {
    /// Those that wait in memory, and the one that is added.
    const UPDATES: usize = 5;
    let (whole, trained) =
        (model.layout().elements() as u64, plan.memory(Side::Client, model.layout()).trained);
    let kinds = match recipe.work.local {
        LocalRule::ControlVariate => 2,
        LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => 1,
    };
    let folding = kinds * (2 + cohort.clamp(1, UPDATES) as u64) * trained;
    let sending = match recipe.start {
        Start::Sent => 3 * whole,
        Start::Shared => 3 * trained,
    };
    ByteCount(saved(model, recipe, plan).0 + 4 * (whole + folding.max(sending).max(whole)))
}

/// A client of a cut model whose tensors take so much in training.
pub fn client_of_cut(
    tensors: ByteCount,
    model: &Model,
    (recipe, experiment): (&Recipe, &Experiment),
    plan: &Plan,
) -> ByteCount {
    let kept = StateSize::of(model, (recipe, experiment), plan).bytes();
    with_answer(tensors, (model, plan)) + kept
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
        let (layout, seed) = (model.layout(), experiment.seed);
        let rule = &recipe.learns;
        let choice = Choice { recipe: &recipe, rule, layout, round: Round(0), seed };
        let anyone = ClientInfo { id: ClientId(0), name: String::new(), examples: 0 };
        let order = if stays(&recipe) {
            choice.order(&anyone, &[])
        } else {
            (0..layout.blocks()).collect()
        };
        // Near and far have to find the same number, and a server has no rows.
        let batch = full_batch(model, (&recipe, experiment));
        Ok(client(model, (&recipe, experiment), (&choice.plan(&anyone.name, &order)?, batch)))
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
    let expected = format!("at least {}, for one block and the longest rows", needed(1)?);
    Err(Complaint::new("method.k.memory", budget, expected).into())
}
