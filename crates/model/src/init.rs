//! Fresh parameters, each from a seed of its own, so that adding one does not change another.

use crate::error::ModelError;
use crate::model::Model;
use fedra_compute::{Device, Params, Seed, Tensor};
use fedra_plan::{ParamId, Part, Role, Shape};

/// Standard deviation of fresh weights, as BERT and LLaMA have it.
const DEVIATION: f64 = 0.02;

impl Model {
    /// Fresh numbers for every parameter.
    pub fn fresh_params(&self, device: &Device, seed: Seed) -> Result<Params, ModelError> {
        self.layout().iter().map(|(id, shape)| Ok((id, fresh(device, seed, id, shape)?))).collect()
    }
}

/// Rows and columns of a parameter as a tensor: a vector is one row.
pub fn matrix_shape(shape: &Shape) -> (usize, usize) {
    match shape.dims() {
        [len] => (1, *len),
        [rows, cols] => (*rows, *cols),
        other => unreachable!("a parameter has one or two dimensions, not {other:?}"),
    }
}

/// One fresh parameter: norms are the identity, biases and LoRA's B are zero, weights are small.
pub fn fresh(
    device: &Device,
    seed: Seed,
    id: ParamId,
    shape: &Shape,
) -> Result<Tensor, ModelError> {
    let (rows, cols) = matrix_shape(shape);
    let mut generator = seed.of(&id.to_string()).generator();
    let mut values = vec![0.0f32; rows * cols];
    match (id.part, is_norm(id.role)) {
        (Part::Weight, true) => values.fill(1.0),
        (Part::Weight, false) => {
            values.fill_with(|| (generator.normal() * DEVIATION) as f32);
        }
        (Part::LoraA, _) => {
            let limit = 1.0 / (cols as f64).sqrt();
            values.fill_with(|| ((2.0 * generator.uniform() - 1.0) * limit) as f32);
        }
        (Part::Bias | Part::LoraB, _) => {}
    }
    Ok(Tensor::from_slice(device, rows, cols, &values)?)
}

fn is_norm(role: Role) -> bool {
    match role {
        Role::EmbeddingNorm
        | Role::AttentionNorm
        | Role::MlpNorm
        | Role::FinalNorm
        | Role::TransformNorm => true,
        Role::Token
        | Role::Position
        | Role::Segment
        | Role::Query
        | Role::Key
        | Role::Value
        | Role::Output
        | Role::Gate
        | Role::Up
        | Role::Down
        | Role::Pooler
        | Role::Transform
        | Role::Classifier
        | Role::Vocabulary => false,
    }
}
