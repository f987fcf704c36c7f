//! How the weights of an experiment are stored: in another format than f32 where they never learn.

use fedra_model::WeightStorage;
use fedra_plan::{Layout, Scope};

use crate::config::{ConfigError, Experiment};
use crate::error::Result;
use crate::prepare::untrained::ever;
use crate::text::grid::grouped;

/// The formats that `model.weights` comes to in a model.
pub(crate) fn storage(experiment: &Experiment, layout: &Layout) -> Result<WeightStorage> {
    let format = experiment.raw.model.weights;
    if format == fedra_compute::WeightFormat::F32 {
        return Ok(WeightStorage::default());
    }
    if !experiment.learns {
        return Ok(WeightStorage::of_all(format, layout));
    }
    let recipe = &experiment.recipe;
    // What a client keeps for itself becomes its own copy.
    let learns = ever(experiment, recipe, layout)? | recipe.personal.select(layout)?;
    let storage = WeightStorage::new(format, layout, &(Scope::everything(layout) - &learns));
    let is_whole = storage.scope().iter().all(|id| id.layer.block().is_none());
    let expected = "\"f32\": every block learns in some round, and what learns is f32; adapters ([model.lora]) or blocks that stay frozen leave weights to store so";
    ConfigError::new("model.weights", format_args!("{:?}", format.name()), expected)
        .when(is_whole)?;
    Ok(storage)
}

/// What is stored so, for people.
pub(crate) fn note(storage: &WeightStorage, layout: &Layout) -> Option<String> {
    let all = layout.elements() as u64;
    let frozen = storage.scope().elements(layout) as u64;
    (frozen > 0).then(|| {
        format!(
            "{} of {} weights never learn and are stored as {}: {} instead of {}",
            grouped(frozen),
            grouped(all),
            storage.format(),
            storage.bytes(layout, storage.scope()),
            fedra_plan::ByteCount(4 * frozen),
        )
    })
}
