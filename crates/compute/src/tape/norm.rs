//! Layer norm and RMS norm. Saves the input and two numbers per row.

use super::{Flow, Recorded, Slot, Tape, Value, wanted};
use crate::cpu::matmul::Start;
use crate::cpu::norm::{self, Kind, Saved, Wanted};
use crate::device::Device;
use crate::error::ComputeError;
use crate::params::Weight;
use crate::tensor::Tensor;

impl Tape {
    /// `(x - mean) / sqrt(variance + epsilon) * weight + bias`, row by row.
    pub fn layer_norm(
        &mut self,
        x: &Value,
        weight: &Weight,
        bias: &Weight,
        epsilon: f32,
    ) -> Result<Value, ComputeError> {
        let shape = (1, x.tensor.cols());
        ComputeError::expect("layer norm", "bias shape", bias.tensor.shape(), shape)?;
        self.norm(Kind::Layer, x, weight, Some(bias), epsilon)
    }

    /// `x / sqrt(mean square + epsilon) * weight`, row by row.
    pub fn rms_norm(
        &mut self,
        x: &Value,
        weight: &Weight,
        epsilon: f32,
    ) -> Result<Value, ComputeError> {
        self.norm(Kind::Root, x, weight, None, epsilon)
    }

    fn norm(
        &mut self,
        kind: Kind,
        x: &Value,
        weight: &Weight,
        bias: Option<&Weight>,
        epsilon: f32,
    ) -> Result<Value, ComputeError> {
        let (rows, cols) = x.tensor.shape();
        ComputeError::expect("norm", "weight shape", weight.tensor.shape(), (1, cols))?;
        let mut y = Tensor::scratch(&self.device, rows, cols);
        let mut stats = Tensor::scratch(&self.device, rows, 2);
        match &self.device {
            Device::Cpu(_) => norm::forward(
                kind,
                epsilon,
                x.tensor.data(),
                (weight.tensor.data(), bias.map(|bias| bias.tensor.data())),
                y.data_mut(),
                stats.data_mut(),
            ),
        }
        let trains = [Some(weight), bias].into_iter().flatten().any(|weight| weight.trains);
        Ok(self.finish(y, trains || wanted(&[x], &[]), |result| Norm {
            kind,
            result,
            x: x.clone(),
            stats,
            weight: weight.clone(),
            bias: bias.cloned(),
        }))
    }
}

#[derive(Debug)]
struct Norm {
    kind: Kind,
    result: Slot,
    x: Value,
    stats: Tensor,
    weight: Weight,
    bias: Option<Weight>,
}

impl Recorded for Norm {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(dy) = flow.take(self.result) else { return };
        let width = self.x.tensor.cols();
        let bias = self.bias.filter(|bias| bias.trains);
        let mut sums =
            (self.weight.trains || bias.is_some()).then(|| Tensor::scratch(&flow.device, 2, width));
        let saved = Saved {
            x: self.x.tensor.data(),
            stats: self.stats.data(),
            weight: self.weight.tensor.data(),
        };
        let device = flow.device.clone();
        let Device::Cpu(pool) = &device;
        let mut run = |x: Option<(&mut [f32], bool)>| {
            let weights = sums.as_mut().map(Tensor::data_mut);
            norm::backward(pool, self.kind, saved, dy.data(), Wanted { x, weights });
        };
        match self.x.slot {
            Some(slot) => flow.add_in_place(slot, self.x.tensor.shape(), |dx, start| {
                run(Some((dx, matches!(start, Start::Keep))));
            }),
            None => run(None),
        }
        let Some(sums) = sums else { return };
        let (weight_sums, bias_sums) = sums.data().split_at(width);
        for (weight, sums) in
            [(Some(self.weight).filter(|w| w.trains), weight_sums), (bias, bias_sums)]
        {
            if let Some(weight) = weight {
                flow.add_row(weight.id, sums);
            }
        }
    }
}
