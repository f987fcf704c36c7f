//! Cross-entropy over a vocabulary, without ever holding all logits.
//!
//! Logits of a language model are the largest thing in its memory. Here a few rows of them exist at
//! a time: their loss and their gradients are taken, and the next rows use the same memory. Rows
//! without a target are never computed. Saves the gradients of input and weights themselves.

use super::classify::labelled;
use super::{Flow, Recorded, Slot, Tape, Value};
use crate::cpu::matmul::{Extras, Mat, MatMut, Right, Start, multiply};
use crate::cpu::{elementwise, losses, rows};
use crate::device::Device;
use crate::error::ComputeError;
use crate::gradients::Gradient;
use crate::params::Weight;
use crate::tensor::Tensor;

/// Logits held at once, in floats (16 MiB).
const HELD: usize = 1 << 22;

impl Tape {
    /// Mean cross-entropy of `x W^T + b` against the targets; rows without one are skipped.
    pub fn vocabulary_cross_entropy(
        &mut self,
        x: &Value,
        weight: &Weight,
        bias: Option<&Weight>,
        targets: &[Option<u32>],
    ) -> Result<Value, ComputeError> {
        let (count, width) = x.tensor.shape();
        let (words, inputs) = weight.tensor.shape();
        ComputeError::expect("vocabulary loss", "input width", width, inputs)?;
        ComputeError::expect("vocabulary loss", "number of targets", targets.len(), count)?;
        if let Some(bias) = bias {
            ComputeError::expect("vocabulary loss", "bias shape", bias.tensor.shape(), (1, words))?;
        }
        let (places, labels) = labelled(targets, words)?;
        let device = self.device.clone();
        let Device::Cpu(pool) = &device;

        let mut picked = Tensor::scratch(&device, places.len(), width);
        rows::gather(picked.data_mut(), width, &[(x.tensor.data(), &places)]);
        let bias_trains = bias.filter(|bias| bias.trains);
        let mut dx = x.slot.map(|_| Tensor::scratch(&device, places.len(), width));
        let mut dw = weight.trains.then(|| Tensor::scratch(&device, words, width));
        let mut db = bias_trains.map(|_| Tensor::zeros(&device, 1, words));

        let forward = Right::beside(pool, &[weight.tensor.mat().t()]);
        let backward = dx.is_some().then(|| Right::stacked(pool, &[weight.tensor.mat()]));
        let start = bias.map_or(Start::Zero, |bias| Start::Bias(bias.tensor.data()));
        let factor = 1.0 / places.len() as f32;
        let step = (HELD / words).clamp(16, 1024);
        let mut logits = pool.take(step.min(places.len()) * words);
        let mut loss = 0.0;
        for first in (0..places.len()).step_by(step) {
            let now = first..places.len().min(first + step);
            let input = &picked.data()[now.start * width..now.end * width];
            let input = Mat::new(input, now.len(), width);
            let logits = &mut logits[..now.len() * words];
            let into = MatMut::new(logits, now.len(), words);
            multiply(into, input, &forward, start, Extras::default());
            loss += losses::cross_entropy_rows(logits, words, &labels[now.clone()], factor);
            let slope = Mat::new(logits, now.len(), words);
            if let (Some(dx), Some(backward)) = (&mut dx, &backward) {
                let into = &mut dx.data_mut()[now.start * width..now.end * width];
                let into = MatMut::new(into, now.len(), width);
                multiply(into, slope, backward, Start::Zero, Extras::default());
            }
            if let Some(dw) = &mut dw {
                let right = Right::rows(pool, input);
                let start = if first == 0 { Start::Zero } else { Start::Keep };
                let row_sums = db.as_mut().map(Tensor::data_mut);
                let into = MatMut::new(dw.data_mut(), words, width);
                multiply(into, slope.t(), &right, start, Extras { finish: None, row_sums });
            } else if let Some(db) = &mut db {
                for row in logits.chunks_exact(words) {
                    elementwise::add_into(db.data_mut(), row);
                }
            }
        }
        let value = Tensor::scalar(&device, (loss / places.len() as f64) as f32);
        let wanted = dx.is_some() || dw.is_some() || db.is_some();
        Ok(self.finish(value, wanted, |result| Vocabulary {
            result,
            from: x.slot,
            shape: (count, width),
            places,
            dx,
            dw: dw.map(|gradient| (weight.clone(), gradient)),
            db: bias_trains.cloned().zip(db),
        }))
    }
}

#[derive(Debug)]
struct Vocabulary {
    result: Slot,
    from: Option<Slot>,
    shape: (usize, usize),
    places: Vec<u32>,
    dx: Option<Tensor>,
    dw: Option<(Weight, Tensor)>,
    db: Option<(Weight, Tensor)>,
}

impl Recorded for Vocabulary {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(upstream) = flow.take(self.result) else { return };
        let factor = upstream.item();
        let scaled = |mut gradient: Tensor| {
            if factor != 1.0 {
                elementwise::scale(gradient.data_mut(), factor);
            }
            gradient
        };
        if let (Some(slot), Some(dx)) = (self.from, self.dx.map(scaled)) {
            flow.add_in_place(slot, self.shape, |all, start| {
                if !matches!(start, Start::Keep) {
                    all.fill(0.0);
                }
                rows::scatter_add(all, self.shape.1, &self.places, dx.data());
            });
        }
        for (weight, gradient) in [self.dw, self.db].into_iter().flatten() {
            flow.add_gradient(weight.id, Gradient::Dense(scaled(gradient)));
        }
    }
}
