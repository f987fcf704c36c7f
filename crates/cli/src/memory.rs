//! What a client and the server hold in memory, roughly, without the program itself.
//!
//! A simulation shares the weights among its clients, so a client costs nothing while it waits,
//! unless its method keeps something for it between rounds ([`Upkeep`]). That is there once for every
//! client that is ever drawn: in memory, or, where it would be too much, in a scratch file
//! ([`crate::keeping`]).

use anyhow::Result;
use fedra_client::JOBS_AHEAD;
use fedra_compute::Seed;
use fedra_engine::{Choice, ClientId, ClientInfo, LocalRule, Recipe, ServerRule, Solver};
use fedra_model::Model;
use fedra_plan::{ByteCount, Round, Scope, Site};

use crate::experiment::{Complaint, Experiment};
use crate::keeping::{Home, Keeping};
use crate::upkeep::{Upkeep, stays};

/// Values that a block keeps of each token for the backward pass, in multiples of the width: its
/// input, query, key, value, context, two norms and four and four again in the feed-forward layer.
const KEPT_WIDTHS: u64 = 16;

/// All clients in one process: the server, what idle clients keep in memory, and on each thread one
/// client in training, the answer of one that waits for its turn, and what both will keep.
pub fn simulation(
    (model, keeping): (&Model, &Keeping),
    (recipe, experiment): (&Recipe, &Experiment),
    learns: &Scope,
) -> ByteCount {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = experiment.draft.threads.unwrap_or_else(cores).min(keeping.keepers) as u64;
    let kept = Upkeep::of(model, (recipe, experiment), learns).bytes().0;
    let shared = 4 * model.layout().elements() as u64;
    // The shared weights are there once, and what waits is counted with the clients.
    let training = client(model, (recipe, experiment), learns).0 - shared - kept;
    let server = server(model, recipe, learns).0;
    let in_memory = match keeping.home {
        Home::Memory => keeping.keepers as u64,
        Home::Disk => threads,
    };
    let (begun, waiting) = (threads * JOBS_AHEAD as u64, threads * (JOBS_AHEAD as u64 - 1));
    let answer = 4 * learns.elements(model.layout()) as u64 * payloads(recipe);
    let idle = (in_memory + begun) * kept;
    ByteCount(server + shared + idle + threads * training + waiting * answer)
}

/// How many models' worth a client's answer is, at most.
fn payloads(recipe: &Recipe) -> u64 {
    match recipe.work.local {
        LocalRule::Scaffold => 2,
        LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => 1,
    }
}

/// A client that trains this part: the model, a copy of what trains, its gradient, moments and
/// encoded change, the activations of all blocks from the lowest that learns, and what it keeps.
/// SCAFFOLD adds the server's variate, the mean gradient, the variate's change and that encoded.
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
    let variates = match recipe.work.local {
        LocalRule::Scaffold => 4,
        LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => 0,
    };
    let held = layout.elements() as u64 + trained * (3 + moments + variates) + activations;
    ByteCount(4 * held + Upkeep::of(model, (recipe, experiment), learns).bytes().0)
}

/// The model, the sum, the update that is being added, and what a server optimiser or a control
/// variate remembers.
pub fn server(model: &Model, recipe: &Recipe, learns: &Scope) -> ByteCount {
    let trained = learns.elements(model.layout()) as u64;
    ByteCount(saved(model, recipe, learns).0 + 4 * 2 * trained)
}

/// What of the server is in a checkpoint: the model and what is remembered.
pub fn saved(model: &Model, recipe: &Recipe, learns: &Scope) -> ByteCount {
    let layout = model.layout();
    let moments = match recipe.server {
        ServerRule::Average { .. } => 0,
        ServerRule::Momentum { .. } | ServerRule::Dynamic { .. } => 1,
        ServerRule::Adaptive { .. } => 2,
    };
    let variates = match recipe.work.local {
        LocalRule::Scaffold => 1,
        LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => 0,
    };
    let trained = learns.elements(layout) as u64;
    ByteCount(4 * (layout.elements() as u64 + trained * (moments + variates)))
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
        Ok(client(model, (&recipe, experiment), choice.plan(&anyone.name, &order)?.learns()))
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
