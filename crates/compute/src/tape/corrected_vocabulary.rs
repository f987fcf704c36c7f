//! Cross-entropy over a vocabulary with a low-rank correction, without ever holding all logits.
//!
//! Each run of rows is a small tape of its own: its logits, its loss and the gradients of input and correction are made,
//! the gradients are added up, and the next rows use the same memory. Rows without a target are never computed. Saves the
//! gradients themselves. On a tape that tells examples apart the logits of all rows with a target are kept instead: they
//! are a factor of each example's gradients.

use super::classify::labelled;
use super::projection::Projection;
use super::record::{Flow, Tape};
use super::weights::{LossWeights, RowWeights};
use crate::error::ComputeError;
use crate::gradients::{Gradient, Gradients};
use crate::kernels;
use crate::tensor::Tensor;
use crate::value::Value;

/// Logits held at once, in numbers.
const HELD: usize = 1 << 24;

impl Tape {
    /// Cross-entropy of the logits of `x` against the targets; rows without one are skipped. Logits are what the
    /// projection makes of `x`, capped at `cap * tanh(logit / cap)` where there is a cap.
    pub fn corrected_cross_entropy(
        &mut self,
        x: &Value,
        (vocabulary, soft_cap): (&Projection, Option<f32>),
        targets: &[Option<u32>],
        weights: LossWeights<'_>,
    ) -> Result<Value, ComputeError> {
        let step = (HELD / vocabulary.outputs().max(1)).max(16);
        self.in_runs(x, (vocabulary, soft_cap, step), targets, weights)
    }

    /// The same with the logits of at most so many rows at once.
    fn in_runs(
        &mut self,
        x: &Value,
        (vocabulary, soft_cap, step): (&Projection, Option<f32>, usize),
        targets: &[Option<u32>],
        weights: LossWeights<'_>,
    ) -> Result<Value, ComputeError> {
        let (count, width) = x.tensor.shape();
        vocabulary.check(width)?;
        ComputeError::expect("vocabulary loss", "number of targets", targets.len(), count)?;
        let (places, labels) = labelled(targets, vocabulary.outputs())?;
        let resolved = weights.resolve("vocabulary loss", x)?.at(&places);
        let of_rows = |now: std::ops::Range<usize>| {
            let own = resolved.rows().map(|rows| RowWeights::PerRow(&rows[now]));
            LossWeights { rows: own.unwrap_or(RowWeights::Uniform), ..weights }
        };
        let labels: Vec<Option<u32>> = labels.into_iter().map(Some).collect();
        if self.examples.is_some() && vocabulary.trains() {
            let picked = self.rows(x, &places)?;
            let logits = self.capped_logits(&picked, vocabulary, soft_cap)?;
            return self.cross_entropy(&logits, &labels, of_rows(0..places.len()));
        }

        let device = self.device.clone();
        let wanted = x.slot.is_some() || vocabulary.trains();
        let mut sum = Tensor::zeros(&device, 1, 1);
        let mut gradients = Gradients::default();
        let mut parts: Vec<(Vec<u32>, Tensor)> = Vec::new();
        for first in (0..places.len()).step_by(step) {
            let now = first..places.len().min(first + step);
            let here = &places[now.clone()];
            let mut tape = Self::new(&device);
            let mut picked = Tensor::activation(&device, here.len(), width);
            kernels::gather(&device, &mut picked, &[(&x.tensor, here)]);
            let picked = if x.slot.is_some() { tape.input(picked) } else { tape.constant(picked) };
            let logits = tape.capped_logits(&picked, vocabulary, soft_cap)?;
            let loss = tape.cross_entropy(&logits, &labels[now.clone()], of_rows(now))?;
            drop(logits);
            sum.add_scaled(1.0, &loss.tensor)?;
            if !wanted {
                continue;
            }
            let found = tape.backward(&[(&loss, Tensor::scalar(&device, 1.0))])?;
            parts.extend(found.of_input(&picked).map(|dx| (here.to_vec(), dx.clone())));
            gradients.add(found)?;
        }
        Ok(self.finish(sum, wanted, || {
            let from = x.slot;
            move |flow: &mut Flow, upstream: Tensor| {
                let scaled = |mut gradient: Tensor| {
                    kernels::scale_by(&device, &mut gradient, &upstream);
                    gradient
                };
                for (places, dx) in parts {
                    flow.add_rows(from, (count, width), &places, &scaled(dx));
                }
                for (id, gradient) in gradients.into_weights() {
                    flow.add_gradient(id, Gradient::Dense(scaled(gradient.into_dense())));
                }
            }
        }))
    }

    /// Logits below a cap, where there is one.
    fn capped_logits(
        &mut self,
        x: &Value,
        vocabulary: &Projection,
        soft_cap: Option<f32>,
    ) -> Result<Value, ComputeError> {
        let logits = self.linear(x, std::slice::from_ref(vocabulary))?;
        match soft_cap {
            Some(cap) => self.soft_capped(logits, cap),
            None => Ok(logits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::params::Weight;
    use crate::tape::{Lora, Magnitude};
    use fedra_plan::{Layer, ParamId, Part, Role};

    const ROWS: usize = 11;
    const WIDTH: usize = 6;
    const WORDS: usize = 9;

    fn tensor(rows: usize, cols: usize, seed: f32) -> Tensor {
        let values: Vec<f32> =
            (0..rows * cols).map(|place| (seed + 0.7 * place as f32).sin()).collect();
        Tensor::from_slice(&Device::cpu(), rows, cols, &values).expect("it has these numbers")
    }

    fn weight(part: Part, (rows, cols): (usize, usize), trains: bool) -> Weight {
        let id = ParamId::new(Layer::Head, Role::Vocabulary, part);
        Weight { id, tensor: tensor(rows, cols, part as usize as f32), trains }
    }

    /// Loss, gradients and the gradient of the input, by runs of so many rows.
    fn by_runs(magnitude: bool, step: usize) -> (f32, Vec<f32>, Vec<Vec<f32>>) {
        let magnitude =
            magnitude.then(|| Magnitude::Norms(weight(Part::Magnitude, (1, WORDS), true)));
        let (a, b) = (weight(Part::LoraA, (2, WIDTH), true), weight(Part::LoraB, (WORDS, 2), true));
        let lora = Some(Lora { a, b, scale: 0.5, magnitude });
        let vocabulary =
            Projection { weight: weight(Part::Weight, (WORDS, WIDTH), false), bias: None, lora };
        let targets: Vec<Option<u32>> =
            (0..ROWS as u32).map(|row| (row % 3 != 1).then_some(row % WORDS as u32)).collect();
        let rows: Vec<f32> = (0..ROWS).map(|row| 0.5 + row as f32).collect();
        let by_class: Vec<f32> = (0..WORDS).map(|word| 1.0 + word as f32 / 4.0).collect();
        let weights = LossWeights {
            rows: RowWeights::PerRow(&rows),
            divisor: 7.0,
            class_weights: Some(&by_class),
            smoothing: 0.1,
        };
        let mut tape = Tape::new(&Device::cpu());
        let x = tape.input(tensor(ROWS, WIDTH, 0.3));
        let given = (&vocabulary, Some(2.0), step);
        let loss = tape.in_runs(&x, given, &targets, weights).expect("it fits");
        let upstream = Tensor::scalar(&Device::cpu(), 3.0);
        let gradients = tape.backward(&[(&loss, upstream)]).expect("something trains");
        let dx = gradients.of_input(&x).expect("asked for").to_host().into_owned();
        let found = gradients.iter().map(|(_, gradient)| gradient.to_dense()).collect();
        (loss.tensor.item(), dx, found)
    }

    #[test]
    fn runs_of_rows_come_to_what_all_rows_come_to() {
        let near = |one: &[f32], other: &[f32]| {
            assert_eq!(one.len(), other.len());
            for (x, y) in one.iter().zip(other) {
                assert!((x - y).abs() < 1e-5 * (1.0 + y.abs()), "{x} {y}");
            }
        };
        for magnitude in [false, true] {
            let (loss, dx, gradients) = by_runs(magnitude, ROWS);
            assert_eq!(gradients.len(), if magnitude { 3 } else { 2 });
            // Rows without a target have no gradient.
            assert!(dx[WIDTH..2 * WIDTH].iter().all(|value| *value == 0.0));
            for step in [1, 3, 5] {
                let (other, parts, found) = by_runs(magnitude, step);
                near(&[loss], &[other]);
                near(&dx, &parts);
                for (one, other) in gradients.iter().zip(&found) {
                    near(one, other);
                }
            }
        }
    }
}
