//! Cross-entropy over a vocabulary, without ever holding all logits.
//!
//! Logits of a language model are the largest thing in its memory. Here a few rows of them exist at
//! a time: their loss and their gradients are taken, and the next rows use the same memory. Rows
//! without a target are never computed. Saves the gradients of input and weights themselves.

use super::classify::labelled;
use super::example_factors::{ExampleFactors, VocabularyFactors};
use super::record::{Flow, Tape};
use super::weights::LossWeights;
use crate::error::ComputeError;
use crate::gradients::Gradient;
use crate::kernels;
use crate::params::Weight;
use crate::tensor::Tensor;
use crate::value::Value;

/// How logits come from the last hidden states: `x W^T + b`, with a cap `cap * tanh((x W^T + b) / cap)`.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a> {
    /// Words by features.
    pub weight: &'a Weight,
    /// One number per word.
    pub bias: Option<&'a Weight>,
    /// What logits stay below.
    pub soft_cap: Option<f32>,
}

impl<'a> Logits<'a> {
    /// Logits without a cap.
    pub fn new(weight: &'a Weight, bias: Option<&'a Weight>) -> Self {
        Self { weight, bias, soft_cap: None }
    }
}

impl Tape {
    /// Cross-entropy of the logits of `x` against the targets; rows without one are skipped.
    pub fn vocabulary_cross_entropy(
        &mut self,
        x: &Value,
        Logits { weight, bias, soft_cap }: Logits<'_>,
        targets: &[Option<u32>],
        weights: LossWeights<'_>,
    ) -> Result<Value, ComputeError> {
        let (count, width) = x.tensor.shape();
        let (words, inputs) = weight.tensor.shape();
        ComputeError::expect("vocabulary loss", "input width", width, inputs)?;
        ComputeError::expect("vocabulary loss", "number of targets", targets.len(), count)?;
        if let Some(bias) = bias {
            ComputeError::expect("vocabulary loss", "bias shape", bias.tensor.shape(), (1, words))?;
        }
        soft_cap.map_or(Ok(()), |cap| ComputeError::positive("soft cap of logits", cap))?;
        let (places, labels) = labelled(targets, words)?;
        let resolved = weights.resolve("vocabulary loss", x)?.at(&places);
        let weights = resolved.of_classes(weights, (&labels, words))?;
        let device = self.device.clone();
        let mut picked = Tensor::activation(&device, places.len(), width);
        kernels::gather(&device, &mut picked, &[(&x.tensor, &places)]);
        let trained = std::iter::once(weight).chain(bias);
        let examples = self.example_rows("vocabulary loss", x.sequences(), trained)?;
        let examples = examples.and_then(|examples| examples.picked(&places));
        let summed = examples.is_none();
        let bias_trains = bias.filter(|bias| bias.trains);
        let mut dx = x.slot.map(|_| Tensor::activation(&device, places.len(), width));
        let mut dw = (weight.trains && summed).then(|| Tensor::scratch(&device, words, width));
        let mut db = bias_trains.filter(|_| summed).map(|_| Tensor::scratch(&device, 1, words));
        let loss = kernels::Vocabulary {
            x: &picked,
            weight: &weight.tensor,
            bias: bias.map(|bias| &bias.tensor),
            soft_cap,
            labels: &labels,
            factors: weights.factors(),
            dx: dx.as_mut(),
            dw: dw.as_mut(),
            db: db.as_mut(),
        };
        // On a tape that tells examples apart, weights' gradients are made when the factors are known,
        // from logits that are computed again; the squares of weight and bias are kept, before the
        // gradient of the loss is known.
        let (value, kept) = match examples {
            None => (kernels::vocabulary_loss(&device, loss), None),
            Some(examples) => {
                let ranges: Vec<_> = examples.ranges().collect();
                let wanted = kernels::VocabularyExamples {
                    rows: &ranges,
                    weight: weight.trains && !self.is_shared(weight.id),
                    bias: bias_trains.is_some(),
                };
                let (value, squares) = kernels::vocabulary_loss_by_example(&device, loss, wanted);
                let kept = VocabularyFactors {
                    x: picked,
                    weight: weight.clone(),
                    bias: bias.cloned(),
                    soft_cap,
                    labels,
                    weights,
                    upstream: Tensor::scalar(&device, 1.0),
                    examples,
                };
                (value, Some((kept, squares)))
            }
        };
        let wanted = dx.is_some() || dw.is_some() || db.is_some() || kept.is_some();
        Ok(self.finish(value, wanted, || {
            let (from, summed) = (x.slot, [(Some(weight.id), dw), (bias.map(|bias| bias.id), db)]);
            move |flow: &mut Flow, upstream: Tensor| {
                let scaled = |mut gradient: Tensor| {
                    kernels::scale_by(&device, &mut gradient, &upstream);
                    gradient
                };
                if let Some(dx) = dx.map(scaled) {
                    flow.add_rows(from, (count, width), &places, &dx);
                }
                for (id, gradient) in summed.into_iter().filter_map(|(id, sum)| id.zip(sum)) {
                    flow.add_gradient(id, Gradient::Dense(scaled(gradient)));
                }
                if let Some((mut kept, squares)) = kept {
                    for (weight, squares) in kept.trained().into_iter().zip(squares) {
                        if let (Some(weight), Some(squares)) = (weight, squares) {
                            flow.add_vocabulary_squares(weight.id, squares, &upstream);
                        }
                    }
                    kept.upstream = upstream;
                    flow.keep(ExampleFactors::Vocabulary(kept));
                }
            }
        }))
    }
}
