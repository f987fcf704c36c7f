//! Fresh weights that no round will ever train.
//!
//! A part that stays frozen makes sense when it is pretrained. In a model that starts from fresh
//! weights it stays as it was drawn, and the rest works on noise; nothing in the scores says so.

use fedra_engine::{Choice, ClientId, ClientInfo, Masks, Recipe};
use fedra_plan::{Layer, Layout, ParamId, Part, Round, Scope};

use crate::config::{Experiment, ModelSource, safl_table};
use crate::error::Result;
use crate::text::grid::grouped;

/// Most rounds that are looked at: what learns for less than a thousandth of a run has not learnt.
const LOOKED_AT: u32 = 1000;

/// What stays as it was drawn, in words; nothing for a folder, whose weights are trained.
pub fn untrained(
    experiment: &Experiment,
    recipe: &Recipe,
    layout: &Layout,
) -> Result<Option<String>> {
    if matches!(experiment.model, ModelSource::Folder(_)) {
        return Ok(None);
    }
    let never = Scope::everything(layout) - ever(experiment, recipe, layout)?;
    let never = never.filter(|id| is_drawn(layout, id));
    if never.is_empty() {
        return Ok(None);
    }
    let count = grouped(never.elements(layout) as u64);
    let of = grouped(layout.elements() as u64);
    let embedding = never.iter().any(|id| id.layer == Layer::Embedding);
    let remedy = match safl_table(experiment) {
        _ if experiment.raw.model.lora.is_some() => "without model.lora they learn".to_owned(),
        Some((table, _)) if embedding => {
            format!("{table}.embeddings = \"learn\" lets embeddings learn")
        }
        Some(_) | None => "let them learn".to_owned(),
    };
    Ok(Some(format!(
        "the model starts from fresh weights, and {count} of {of} never learn: {}; they keep their random \
         values; {remedy}, or start from a pretrained model with model.path",
        in_words(&never, layout)
    )))
}

/// Whatever may learn in some round, or is adapted before a score.
pub(crate) fn ever(experiment: &Experiment, recipe: &Recipe, layout: &Layout) -> Result<Scope> {
    let everything = Scope::everything(layout);
    let mut ever = Scope::empty();
    if let Some(adapt) = &recipe.adapt {
        ever = adapt.learns.select(layout)?;
    }
    let last = experiment.rounds.saturating_sub(1);
    let step = (experiment.rounds / LOOKED_AT).max(1) as usize;
    for number in (0..last).step_by(step).chain([last]) {
        if ever == everything {
            break;
        }
        ever = ever | in_round(experiment, recipe, (layout, Round(number)))?;
    }
    Ok(ever)
}

/// Whatever may learn in a round, whoever is asked. Where only the run can tell which blocks are
/// chosen, each of them may be.
fn in_round(
    experiment: &Experiment,
    recipe: &Recipe,
    (layout, round): (&Layout, Round),
) -> Result<Scope> {
    let rule = &recipe.learns_in(round);
    if !rule.needs_choice() {
        return Ok(rule.select(layout)?);
    }
    let selection = &recipe.selection;
    // How many fit into a memory is settled later.
    let is_counted = selection.counts.is_empty() && selection.budget.is_none();
    let alike = recipe.masks == Masks::Consensus && is_counted;
    if selection.criterion.is_fixed() && alike && selection.explore == 0 && recipe.depths.is_empty()
    {
        let seed = experiment.seed;
        let choice = Choice { recipe, rule, layout, round, seed };
        let anybody = ClientInfo { id: ClientId(0), name: String::new(), examples: 0 };
        let plan = choice.plan(&anybody.name, &choice.order(&anybody, &[]))?;
        return Ok(plan.learns().clone());
    }
    Ok(rule.select_with(layout, &(0..layout.blocks()).collect())?)
}

/// `the embeddings, block.1, block.3, query, key`.
fn in_words(never: &Scope, layout: &Layout) -> String {
    let drawn = |layer: Layer| {
        let own = Scope::of_layers(layout, [layer]);
        own.filter(|id| is_drawn(layout, id) && id.part == Part::Weight)
    };
    let mut words = Vec::new();
    if never.iter().any(|id| id.layer == Layer::Embedding) {
        words.push("the embeddings".to_owned());
    }
    let whole: Vec<u16> =
        (0..layout.blocks()).filter(|block| drawn(Layer::Block(*block)).is_subset(never)).collect();
    let some = |id: &ParamId| id.layer.block().is_some_and(|block| !whole.contains(&block));
    if whole.len() == usize::from(layout.blocks()) {
        words.push("all blocks".to_owned());
    } else {
        words.extend(whole.iter().map(|block| Layer::Block(*block).to_string()));
    }
    let mut roles: Vec<String> = Vec::new();
    for id in never.iter().filter(some) {
        let role = id.role.to_string();
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    words.extend(roles);
    if never.iter().any(|id| id.layer == Layer::Head) {
        words.push("the head".to_owned());
    }
    words.join(", ")
}

/// Matrices are drawn. Vectors are norms and biases, which begin as the identity and as zero:
/// frozen, they do no harm.
fn is_drawn(layout: &Layout, id: ParamId) -> bool {
    layout.get(id).is_some_and(|shape| shape.dims().len() == 2)
}
