//! Losses over given logits: classes, labelled tokens, several labels at once.
//!
//! The gradient of the logits is computed with the loss and kept in their place.

use super::record::{Flow, Tape};
use super::weights::LossWeights;
use crate::error::ComputeError;
use crate::kernels;
use crate::tensor::Tensor;
use crate::value::{Slot, Value};

impl Tape {
    /// Cross-entropy of the rows that have a target; `None` rows are ignored. With weights of classes, label
    /// smoothing and the sum of the targets' weights as divisor, it is `CrossEntropyLoss` of PyTorch.
    pub fn cross_entropy(
        &mut self,
        logits: &Value,
        targets: &[Option<u32>],
        weights: LossWeights<'_>,
    ) -> Result<Value, ComputeError> {
        let (count, classes) = logits.tensor.shape();
        ComputeError::expect("cross-entropy", "number of targets", targets.len(), count)?;
        let (places, labels) = labelled(targets, classes)?;
        let resolved = weights.resolve("cross-entropy", logits)?.at(&places);
        let weights = resolved.of_classes(weights, (&labels, classes))?;
        let mut picked = Tensor::activation(&self.device, places.len(), classes);
        kernels::gather(&self.device, &mut picked, &[(&logits.tensor, &places)]);
        let loss = kernels::cross_entropy(&self.device, &mut picked, &labels, weights.factors());
        let mut gradient = Tensor::zeros(&self.device, count, classes);
        kernels::scatter_add(&mut gradient, &places, &picked);
        Ok(self.loss(loss, logits.slot, gradient))
    }

    /// Binary cross-entropy of every logit; targets are rows of zeros and ones.
    pub fn multi_label(
        &mut self,
        logits: &Value,
        targets: &[f32],
        weights: LossWeights<'_>,
    ) -> Result<Value, ComputeError> {
        let count = logits.tensor.elements();
        ComputeError::expect("multi-label loss", "number of targets", targets.len(), count)?;
        ComputeError::not_empty("multi-label loss", "batch", count)?;
        if let Some(&found) = targets.iter().find(|target| !(0.0..=1.0).contains(*target)) {
            let (what, expected) = ("multi-label target", "between 0 and 1");
            return Err(ComputeError::Setting { what, found, expected });
        }
        weights.expect_no_classes()?;
        let weights = weights.resolve("multi-label loss", logits)?;
        let mut gradient = logits.tensor.clone();
        let (device, factors) = (&self.device, weights.factors());
        let loss = kernels::binary_cross_entropy(device, &mut gradient, targets, factors);
        Ok(self.loss(loss, logits.slot, gradient))
    }

    /// A loss whose gradient with respect to one value is already known.
    fn loss(&mut self, value: Tensor, from: Option<Slot>, gradient: Tensor) -> Value {
        self.finish(value, from.is_some(), || {
            let mut gradient = gradient;
            move |flow: &mut Flow, upstream: Tensor| {
                kernels::scale_by(&flow.device, &mut gradient, &upstream);
                flow.add(from, gradient);
            }
        })
    }
}

/// Places and labels of the rows that have a target, all labels below `classes`.
pub(super) fn labelled(
    targets: &[Option<u32>],
    classes: usize,
) -> Result<(Vec<u32>, Vec<u32>), ComputeError> {
    let with_place = targets.iter().enumerate();
    let (places, labels): (Vec<u32>, Vec<u32>) =
        with_place.filter_map(|(place, label)| Some((place as u32, (*label)?))).unzip();
    ComputeError::not_empty("cross-entropy", "set of labelled rows", places.len())?;
    if let Some(bad) = labels.iter().position(|&label| label as usize >= classes) {
        let (operation, what) = ("cross-entropy", "label");
        let (found, place) = (labels[bad] as usize, places[bad] as usize);
        return Err(ComputeError::Index { operation, what, found, place, limit: classes });
    }
    Ok((places, labels))
}
