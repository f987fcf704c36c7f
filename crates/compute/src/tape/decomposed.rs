//! Projections whose weights are decomposed into magnitudes and directions (`DoRA`, Liu et al. 2024,
//! <https://arxiv.org/abs/2402.09353>). The norms are constants in the backward pass, as in its section 4.3: gradients
//! reach A and B through the direction alone. Saves the product in front of the magnitudes when one of these trains.
//!
//! ```text
//! V = W + s B A      c_j = m_j / |V_j|      y = activation(c * (x V^T) + b) or c * (x V^T) + b + residual
//! dm_j = (dc_j) / |V_j|                     d(x V^T) = c * dy
//! ```

use super::linear::{Around, columns};
use super::projection::{Magnitude, Projection};
use super::record::{Flow, Tape};
use crate::error::ComputeError;
use crate::kernels::{self, ColumnFactors};
use crate::tensor::Tensor;
use crate::value::Value;
use fedra_plan::ParamId;
use std::ops::Range;

impl Tape {
    /// Projections of which some have magnitudes; their shapes have been checked.
    pub(super) fn decomposed(
        &mut self,
        x: &Value,
        projections: &[Projection],
        around: Around<'_>,
    ) -> Result<Value, ComputeError> {
        let directions: Vec<Projection> = projections.iter().map(Projection::direction).collect();
        let directions = self.linear(x, &directions)?;
        let magnitudes = || projections.iter().filter_map(Projection::magnitude);
        let biases = || projections.iter().filter_map(|projection| projection.bias.as_ref());
        let norms = magnitudes().filter(|(_, magnitude)| magnitude.trains());
        let learns = norms.clone().count() > 0;
        let own = norms.map(|(_, magnitude)| magnitude.weight()).chain(biases());
        let trains = learns || biases().any(|bias| bias.trains);
        let examples = self.example_rows("linear", directions.sequences(), own)?;
        let (activation, residual) = match around {
            Around::Nothing => (None, None),
            Around::Residual(residual) => (None, Some(residual)),
            Around::Activation(activation) => (Some(activation), None),
        };
        let residual_slot = residual.and_then(|residual| residual.slot);
        let wanted = trains || directions.slot.is_some() || residual_slot.is_some();
        let scales = Scales::of(&self.device, projections);

        let Value { mut tensor, slot, sequences } = directions;
        let saved = (wanted && learns).then(|| tensor.clone());
        kernels::scale_columns(&mut tensor, &scales.factors());
        let columns = || projections.iter().zip(columns(projections));
        let shifts: Vec<(Range<usize>, &Tensor)> = columns()
            .filter_map(|(projection, columns)| Some((columns, &projection.bias.as_ref()?.tensor)))
            .collect();
        kernels::shift_columns(&mut tensor, &shifts);
        if let Some(residual) = residual {
            tensor.add_scaled(1.0, &residual.tensor)?;
        }
        let (rows, outputs) = tensor.shape();
        let activated = activation.is_some() && wanted;
        let mut derivative = activated.then(|| Tensor::activation(&self.device, rows, outputs));
        if let Some(activation) = activation {
            kernels::activate(&self.device, activation, &mut tensor, derivative.as_mut());
        }
        let y = self.finish(tensor, wanted, || {
            let of_biases = columns()
                .filter_map(|(projection, columns)| {
                    let bias = projection.bias.as_ref().filter(|bias| bias.trains)?;
                    Some((bias.id, columns))
                })
                .collect::<Vec<_>>();
            move |flow: &mut Flow, mut dy: Tensor| {
                let device = flow.device.clone();
                if let Some(derivative) = &derivative {
                    kernels::multiply(&mut dy, derivative);
                }
                if residual_slot.is_some() {
                    flow.add(residual_slot, dy.clone());
                }
                flow.add_vectors(examples.as_ref(), rows, of_biases, |runs| {
                    kernels::example_sums(&device, &dy, runs)
                });
                if let Some(x) = &saved {
                    flow.add_vectors(examples.as_ref(), rows, scales.trained(), |runs| {
                        let both = (x, &dy);
                        let mut sums =
                            kernels::column_weight_sums(&device, both, &scales.factors(), runs);
                        kernels::scale_columns(&mut sums, &scales.inverses());
                        sums
                    });
                }
                if slot.is_some() {
                    kernels::scale_columns(&mut dy, &scales.factors());
                    flow.add(slot, dy);
                }
            }
        });
        Ok(Value { sequences, ..y })
    }
}

/// What the columns of decomposed weights are multiplied by.
struct Scales {
    magnitudes: Vec<Magnitude>,
    /// Magnitude over norm, by columns of the result.
    factors: Vec<(Range<usize>, Tensor)>,
    /// One over norm, one behind the other; unused where nothing trains.
    inverses: Vec<(Range<usize>, Tensor)>,
}

impl Scales {
    fn of(device: &crate::device::Device, projections: &[Projection]) -> Self {
        let mut scales = Self { magnitudes: Vec::new(), factors: Vec::new(), inverses: Vec::new() };
        let mut end = 0;
        for (projection, columns) in projections.iter().zip(columns(projections)) {
            let Some((lora, magnitude)) = projection.magnitude() else { continue };
            let low_rank = (&lora.a.tensor, &lora.b.tensor, lora.scale);
            let weight = (&projection.weight.tensor, low_rank);
            let [factor, inverse] = match magnitude {
                Magnitude::Norms(norms) => {
                    kernels::magnitude_factors(device, weight, &norms.tensor)
                }
                Magnitude::Factors(factors) => [&factors.tensor; 2].map(Tensor::clone),
            };
            let behind = end + columns.len();
            scales.factors.push((columns, factor));
            scales.inverses.push((end..behind, inverse));
            scales.magnitudes.push(magnitude.clone());
            end = behind;
        }
        scales
    }

    fn factors(&self) -> ColumnFactors<'_> {
        ColumnFactors { parts: &self.factors, epsilon: None }
    }

    fn inverses(&self) -> ColumnFactors<'_> {
        ColumnFactors { parts: &self.inverses, epsilon: None }
    }

    /// The magnitudes that train, and where the sums of each stand.
    fn trained(&self) -> Vec<(ParamId, Range<usize>)> {
        let places = self.magnitudes.iter().zip(&self.inverses);
        let trains = places.filter(|(magnitude, _)| magnitude.trains());
        trains.map(|(magnitude, (columns, _))| (magnitude.weight().id, columns.clone())).collect()
    }
}
