//! Layer norm and RMS norm. Saves the input and two numbers per row.

use super::example_factors::ExampleFactors;
use super::record::{Flow, Tape};
use crate::error::ComputeError;
use crate::gradients::Gradient;
use crate::kernels::{self, NormKind as Kind};
use crate::params::Weight;
use crate::tensor::Tensor;
use crate::value::Value;

impl Tape {
    /// `(x - mean) / sqrt(variance + epsilon) * weight + bias`, row by row.
    pub fn layer_norm(
        &mut self,
        x: &Value,
        weight: &Weight,
        bias: Option<&Weight>,
        epsilon: f32,
    ) -> Result<Value, ComputeError> {
        if let Some(bias) = bias {
            let shape = (1, x.tensor.cols());
            ComputeError::expect("layer norm", "bias shape", bias.tensor.shape(), shape)?;
        }
        self.norm((Kind::Layer, epsilon), x, (weight, 0.0), bias)
    }

    /// `x / sqrt(mean square + epsilon) * (weight + offset)`, row by row.
    pub fn rms_norm(
        &mut self,
        x: &Value,
        weight: &Weight,
        epsilon: f32,
        offset: f32,
    ) -> Result<Value, ComputeError> {
        self.norm((Kind::Root, epsilon), x, (weight, offset), None)
    }

    fn norm(
        &mut self,
        (kind, epsilon): (Kind, f32),
        x: &Value,
        (weight, offset): (&Weight, f32),
        bias: Option<&Weight>,
    ) -> Result<Value, ComputeError> {
        let (rows, cols) = x.tensor.shape();
        ComputeError::expect("norm", "weight shape", weight.tensor.shape(), (1, cols))?;
        ComputeError::not_empty("norm", "row", cols)?;
        let factors = kernels::shifted(&self.device, &weight.tensor, offset);
        let mut y = Tensor::activation(&self.device, rows, cols);
        let mut stats = Tensor::scratch(&self.device, rows, 2);
        let given = (&x.tensor, &factors, bias.map(|bias| &bias.tensor));
        kernels::norm(&self.device, (kind, epsilon), given, (&mut y, &mut stats));
        let weights = || std::iter::once(weight).chain(bias);
        let wanted = x.slot.is_some() || weights().any(|weight| weight.trains);
        let examples = self.example_rows("norm", x.sequences(), weights())?;
        let y = self.finish(y, wanted, || {
            let (x, weight, bias) = (x.clone(), weight.clone(), bias.cloned());
            move |flow: &mut Flow, dy: Tensor| {
                let device = flow.device.clone();
                let bias = bias.filter(|bias| bias.trains);
                let sums = || Tensor::scratch(&device, 1, cols);
                let summed = examples.is_none() && (weight.trains || bias.is_some());
                let mut sums = summed.then(|| [sums(), sums()]);
                let mut input = x.slot.map(|slot| (slot, flow.open(slot, (rows, cols))));
                let saved = (&x.tensor, &stats, &factors, &dy);
                let dx = input.as_mut().map(|(_, (dx, fill))| (dx, *fill));
                let into = sums.as_mut().map(<[Tensor; 2]>::each_mut);
                kernels::norm_backward(&device, kind, saved, dx, into);
                if let Some((slot, (dx, _))) = input {
                    flow.close(slot, dx);
                }
                let by_example = examples.map(|examples| {
                    let ranges: Vec<_> = examples.ranges().collect();
                    kernels::norm_example_sums(&device, saved, &ranges)
                });
                let trained = [Some(weight.id).filter(|_| weight.trains), bias.map(|bias| bias.id)];
                for (id, sums) in trained.into_iter().zip(by_example.into_iter().flatten()) {
                    if let Some(id) = id {
                        flow.keep(ExampleFactors::Sums { of: vec![(id, 0..cols)], sums });
                    }
                }
                for (id, sums) in trained.into_iter().zip(sums.into_iter().flatten()) {
                    if let Some(id) = id {
                        flow.add_gradient(id, Gradient::Dense(sums));
                    }
                }
            }
        });
        Ok(y.with_rows_of(x))
    }
}
