//! Fresh parameters, each from a seed of its own, so that adding one does not change another.

use crate::error::ModelError;
use crate::family::is_norm;
use crate::model::Model;
use fedra_compute::{Device, Params, Seed, Tensor, WeightFormat};
use fedra_plan::{ParamId, Part, Role, Shape};

/// Standard deviation of fresh embeddings, as BERT and LLaMA have it.
const DEVIATION: f64 = 0.02;

impl Model {
    /// Fresh numbers for every parameter, each in the format that the model's storage says.
    ///
    /// Matrices keep the size of what passes through them: 1 / sqrt(inputs). BERT's 0.02 does
    /// nearly that at width 768; at width 64 it would pass on a sixth, and a token that reads the
    /// others (the first one, under a sequence head) would see next to nothing of them.
    pub fn fresh_params(&self, device: &Device, seed: Seed) -> Result<Params, ModelError> {
        self.fresh_part(device, seed, |_| true)
    }

    /// The same of the parameters that `keep` accepts; the others are never made.
    pub fn fresh_part(
        &self,
        device: &Device,
        seed: Seed,
        keep: impl Fn(ParamId) -> bool,
    ) -> Result<Params, ModelError> {
        let fresh = |(id, shape)| {
            let format = self.storage().of(id);
            if !device.has_numbers() {
                let (rows, cols) = matrix_shape(shape);
                return Ok((id, Tensor::zeros_as(device, format, rows, cols)));
            }
            let how = (deviation(id, shape), format);
            Ok((id, drawn((id, shape), how, device, seed)?))
        };
        let made = self.layout().iter().filter(|(id, _)| keep(*id)).map(fresh);
        let mut params: Params = made.collect::<Result<_, ModelError>>()?;
        let magnitudes: Vec<ParamId> = params.iter().map(|(id, _)| id).collect();
        start_magnitudes(&mut params, &magnitudes, device)?;
        Ok(params)
    }
}

/// Gives the magnitudes among fresh parameters the norms of their weights' rows, which must be there.
pub fn start_magnitudes<'a>(
    params: &mut Params,
    fresh: impl IntoIterator<Item = &'a ParamId>,
    device: &Device,
) -> Result<(), ModelError> {
    let is_magnitude = |id: &&ParamId| id.part == Part::Magnitude && device.has_numbers();
    for &id in fresh.into_iter().filter(is_magnitude) {
        let norms = params.get(ParamId { part: Part::Weight, ..id })?.row_norms();
        params.insert(id, Tensor::from_slice(device, 1, norms.len(), &norms)?);
    }
    Ok(())
}

/// Rows and columns of a parameter as a tensor: a vector is one row.
pub fn matrix_shape(shape: &Shape) -> (usize, usize) {
    match shape.dims() {
        [len] => (1, *len),
        [rows, cols] => (*rows, *cols),
        other => unreachable!("a parameter has one or two dimensions, not {other:?}"),
    }
}

/// A fresh parameter in a format, its weights of this deviation and from a seed of its own. Norms and layer
/// scales are the identity, biases and LoRA's B are zero; a magnitude follows from its weight ([`start_magnitudes`]).
pub fn drawn(
    (id, shape): (ParamId, &Shape),
    (deviation, format): (f64, WeightFormat),
    device: &Device,
    seed: Seed,
) -> Result<Tensor, ModelError> {
    let (rows, cols) = matrix_shape(shape);
    let mut generator = seed.of(&id.to_string()).generator();
    let mut values = vec![0.0f32; rows * cols];
    match (id.part, is_norm(id.role)) {
        (Part::Weight, true) => values.fill(1.0),
        (Part::Weight, false) => {
            values.fill_with(|| (generator.normal() * deviation) as f32);
        }
        (Part::LoraA, _) => {
            let limit = 1.0 / (cols as f64).sqrt();
            values.fill_with(|| ((2.0 * generator.uniform() - 1.0) * limit) as f32);
        }
        (Part::Bias | Part::LoraB | Part::Magnitude, _) => {}
    }
    Ok(Tensor::stored_as(device, format, (rows, cols), &values)?)
}

/// The deviation of a weight in a model that has never learnt.
fn deviation(id: ParamId, shape: &Shape) -> f64 {
    let is_table = matches!(
        id.role,
        Role::Token
            | Role::ClassToken
            | Role::DistillationToken
            | Role::RegisterToken
            | Role::Position
            | Role::Segment
            | Role::Vocabulary
    );
    if is_table { DEVIATION } else { 1.0 / (matrix_shape(shape).1 as f64).sqrt() }
}
