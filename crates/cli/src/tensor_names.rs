//! The names under which other libraries know the parameters of a model.

use anyhow::{Result, bail};
use fedra_flower::TensorNames;
use fedra_model::hf::Architecture;
use fedra_plan::Layout;

/// Classes that other libraries load models with; those with a head come before those without.
const CLASSES: [Architecture; 8] = [
    Architecture::BertForSequenceClassification,
    Architecture::BertForTokenClassification,
    Architecture::BertForMaskedLM,
    Architecture::BertModel,
    Architecture::LlamaForCausalLM,
    Architecture::LlamaForSequenceClassification,
    Architecture::LlamaForTokenClassification,
    Architecture::LlamaModel,
];

/// The names of all parameters of a model, by the class that has them all.
pub fn tensor_names(layout: &Layout) -> Result<TensorNames> {
    for class in CLASSES {
        let named = layout.ids().map(|id| class.tensor_name(id).map(|name| (id, name)));
        if let Some(names) = named.collect() {
            return Ok(names);
        }
    }
    bail!("--stock: the model has parameters that no Hugging Face class has");
}
