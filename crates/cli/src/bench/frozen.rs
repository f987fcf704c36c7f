//! Weights of a benchmark that do not learn: bf16 where the device computes in bf16, and made in seconds.
//!
//! What a step costs does not depend on its numbers, so only the first block and what is outside the blocks are
//! drawn; the other blocks are copies of the first, each in memory of its own.

use anyhow::Result;
use fedra_compute::{Device, Params, Seed, Tensor};
use fedra_model::Model;
use fedra_plan::{Layer, ParamId, Scope};

/// Fresh weights; matrices outside the scope are bf16.
pub fn frozen_in_bf16(model: &Model, device: &Device, scope: &Scope) -> Result<Params> {
    let is_drawn = |id: ParamId| !matches!(id.layer, Layer::Block(number) if number > 0);
    let drawn = model.fresh_part(device, Seed(0), is_drawn)?;
    let copied = |id: ParamId| {
        let source = if is_drawn(id) { id } else { ParamId { layer: Layer::Block(0), ..id } };
        let tensor = drawn.get(source)?;
        let (rows, cols) = tensor.shape();
        // Biases and norms are few, and kernels add them in f32.
        if rows > 1 && !scope.contains(id) {
            return Ok((id, tensor.to_bf16()));
        }
        Ok((id, Tensor::from_slice(device, rows, cols, &tensor.to_host())?))
    };
    model.layout().iter().map(|(id, _)| copied(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_model::{Adapters, Head, Preset};
    use fedra_plan::{Part, Role};

    #[test]
    fn only_what_learns_is_f32_and_no_two_blocks_share_memory() {
        let adapters = Adapters::new(2, 4.0, [Role::Query, Role::Value]).unwrap();
        let config = Preset::Tiny.config();
        let head = Head::Sequence { classes: 3, pooler: false };
        let model = Model::new(config, head, Some(adapters)).unwrap();
        let scope = Scope::of_parts(model.layout(), [Part::LoraA, Part::LoraB]);
        let device = Device::cpu();
        let params = frozen_in_bf16(&model, &device, &scope).unwrap();
        assert_eq!(params.len(), model.layout().len());
        for (id, tensor) in params.iter() {
            let is_frozen_matrix = tensor.rows() > 1 && !scope.contains(id);
            assert_eq!(tensor.is_bf16(), is_frozen_matrix, "{id}");
            if id.layer == Layer::Block(1) {
                let first = params.get(ParamId { layer: Layer::Block(0), ..id }).unwrap();
                assert_eq!(first.to_host(), tensor.to_host(), "{id}");
                assert!(!first.same_storage(tensor), "{id}");
            }
        }
    }
}
