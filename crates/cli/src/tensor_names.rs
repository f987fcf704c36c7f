//! The names under which other libraries know the parameters of a model.

use anyhow::{Result, bail};
use fedra_flower::TensorNames;
use fedra_model::hf::Architecture;
use fedra_plan::Layout;

/// The names of all parameters of a model, by the class that has them all.
pub fn tensor_names(layout: &Layout) -> Result<TensorNames> {
    for class in Architecture::all() {
        let named = layout.ids().map(|id| class.tensor_name(id).map(|name| (id, name)));
        if let Some(names) = named.collect() {
            return Ok(names);
        }
    }
    bail!("--stock: the model has parameters that no Hugging Face class has");
}
