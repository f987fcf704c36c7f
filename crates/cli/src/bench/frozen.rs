//! Weights of a benchmark that do not learn, in the model's formats and made in seconds.
//!
//! What a step costs does not depend on its numbers, so only the first block and what is outside the blocks are
//! drawn; the other blocks are copies of the first, each in memory of its own.

use anyhow::Result;
use fedra_compute::{Device, Params, Seed, Tensor};
use fedra_model::Model;
use fedra_plan::{Layer, ParamId};

/// Fresh weights.
pub fn copied_blocks(model: &Model, device: &Device) -> Result<Params> {
    if !device.has_numbers() {
        return Ok(model.fresh_params(device, Seed(0))?);
    }
    let is_drawn = |id: ParamId| !matches!(id.layer, Layer::Block(number) if number > 0);
    let drawn = model.fresh_part(&Device::cpu(), Seed(0), is_drawn)?;
    let copied = |id: ParamId| {
        let source = if is_drawn(id) { id } else { ParamId { layer: Layer::Block(0), ..id } };
        let tensor = drawn.get(source)?;
        let copy = Tensor::stored_as(device, tensor.format(), tensor.shape(), &tensor.to_host())?;
        device.check()?;
        Ok((id, copy))
    };
    model.layout().iter().map(|(id, _)| copied(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_compute::WeightFormat;
    use fedra_model::{Adapters, Head, Preset, WeightStorage};
    use fedra_plan::{Part, Role, Scope};

    #[test]
    fn only_what_never_learns_is_quantised_and_no_two_blocks_share_memory() {
        let adapters = Adapters::new(2, 4.0, [Role::Query, Role::Value]).unwrap();
        let config = Preset::Tiny.config();
        let head = Head::Sequence { classes: 3, pooler: false };
        let model = Model::new(config, head, Some(adapters)).unwrap();
        let scope = Scope::of_parts(model.layout(), [Part::LoraA, Part::LoraB]);
        let frozen = Scope::everything(model.layout()) - &scope;
        for format in WeightFormat::ALL {
            let storage = WeightStorage::new(format, model.layout(), &frozen);
            let model = model.clone().stored_as(storage);
            let params = copied_blocks(&model, &Device::cpu()).unwrap();
            assert_eq!(params.len(), model.layout().len());
            for (id, tensor) in params.iter() {
                assert_eq!(tensor.format(), model.storage().of(id), "{id}");
                if id.layer == Layer::Block(1) {
                    let first = params.get(ParamId { layer: Layer::Block(0), ..id }).unwrap();
                    assert_eq!(first.to_host(), tensor.to_host(), "{id}");
                    assert!(!first.same_storage(tensor), "{id}");
                }
            }
        }
    }
}
