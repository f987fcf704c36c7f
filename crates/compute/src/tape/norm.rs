//! Layer norm and RMS norm. Saves the input and two numbers per row.

use super::example_factors::ExampleFactors;
use super::record::{Flow, Recorded, Tape, wanted};
use crate::error::ComputeError;
use crate::gradients::Gradient;
use crate::kernels::{self, NormKind as Kind};
use crate::params::Weight;
use crate::sequences::Sequences;
use crate::tensor::Tensor;
use crate::value::{Slot, Value};

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
        let mut y = Tensor::scratch(&self.device, rows, cols);
        let mut stats = Tensor::scratch(&self.device, rows, 2);
        let given = (&x.tensor, &factors, bias.map(|bias| &bias.tensor));
        kernels::norm(&self.device, (kind, epsilon), given, (&mut y, &mut stats));
        let trains = [Some(weight), bias].into_iter().flatten().any(|weight| weight.trains);
        let wanted = trains || wanted(&[x], &[]);
        let weights = std::iter::once(weight).chain(bias);
        let examples = self.example_rows("norm", x.sequences(), weights)?;
        Ok(self
            .finish(y, wanted, |result| Norm {
                kind,
                result,
                x: x.clone(),
                stats,
                factors,
                weight: weight.clone(),
                bias: bias.cloned(),
                examples,
            })
            .with_rows_of(x))
    }
}

#[derive(Debug)]
struct Norm {
    kind: Kind,
    result: Slot,
    x: Value,
    stats: Tensor,
    /// The weight with its offset.
    factors: Tensor,
    weight: Weight,
    bias: Option<Weight>,
    /// The rows of each example, where examples are told apart and something trains.
    examples: Option<Sequences>,
}

impl Recorded for Norm {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(dy) = flow.take(self.result) else { return };
        let device = flow.device.clone();
        let width = self.x.tensor.cols();
        let bias = self.bias.filter(|bias| bias.trains);
        let sums = || Tensor::scratch(&device, 1, width);
        let summed = self.examples.is_none() && (self.weight.trains || bias.is_some());
        let mut sums = summed.then(|| [sums(), sums()]);
        let mut input = self.x.slot.map(|slot| (slot, flow.open(slot, self.x.tensor.shape())));
        let saved = (&self.x.tensor, &self.stats, &self.factors, &dy);
        let dx = input.as_mut().map(|(_, (dx, fill))| (dx, *fill));
        kernels::norm_backward(
            &device,
            self.kind,
            saved,
            dx,
            sums.as_mut().map(<[Tensor; 2]>::each_mut),
        );
        if let Some((slot, (dx, _))) = input {
            flow.close(slot, dx);
        }
        let by_example = self.examples.as_ref().map(|examples| {
            let ranges: Vec<_> = examples.ranges().collect();
            kernels::norm_example_sums(&device, saved, &ranges)
        });
        let trained = [Some(self.weight).filter(|weight| weight.trains), bias];
        for (weight, sums) in trained.iter().zip(by_example.into_iter().flatten()) {
            if let Some(weight) = weight {
                flow.keep(ExampleFactors::Sums { of: vec![(weight.id, 0..width)], sums });
            }
        }
        for (weight, sums) in trained.into_iter().zip(sums.into_iter().flatten()) {
            if let Some(weight) = weight {
                flow.add_gradient(weight.id, Gradient::Dense(sums));
            }
        }
    }
}
