//! Losses over given logits: classes, labelled tokens, several labels at once.
//!
//! The gradient of the logits is computed with the loss and kept in their stead.

use super::{Flow, Recorded, Slot, Tape, Value};
use crate::cpu::{elementwise, losses, rows};
use crate::device::Device;
use crate::error::ComputeError;
use crate::tensor::Tensor;

impl Tape {
    /// Mean cross-entropy over the rows that have a target; `None` rows are ignored.
    pub fn cross_entropy(
        &mut self,
        logits: &Value,
        targets: &[Option<u32>],
    ) -> Result<Value, ComputeError> {
        let (count, classes) = logits.tensor.shape();
        ComputeError::expect("cross-entropy", "number of targets", targets.len(), count)?;
        let (places, labels) = labelled(targets, classes)?;
        let mut picked = Tensor::scratch(&self.device, places.len(), classes);
        let factor = 1.0 / places.len() as f32;
        let sum = match &self.device {
            Device::Cpu(_) => {
                let into = picked.data_mut();
                rows::gather(into, classes, &[(logits.tensor.data(), &places)]);
                losses::cross_entropy_rows(into, classes, &labels, factor)
            }
        };
        let mut gradient = Tensor::zeros(&self.device, count, classes);
        rows::scatter_add(gradient.data_mut(), classes, &places, picked.data());
        Ok(self.loss(sum / places.len() as f64, logits.slot, gradient))
    }

    /// Mean binary cross-entropy over every logit; targets are rows of zeros and ones.
    pub fn multi_label(&mut self, logits: &Value, targets: &[f32]) -> Result<Value, ComputeError> {
        let count = logits.tensor.elements();
        ComputeError::expect("multi-label loss", "number of targets", targets.len(), count)?;
        if count == 0 {
            return Err(ComputeError::Empty { operation: "multi-label loss", what: "batch" });
        }
        if let Some(&found) = targets.iter().find(|target| !(0.0..=1.0).contains(*target)) {
            let (what, expected) = ("multi-label target", "between 0 and 1");
            return Err(ComputeError::Setting { what, found, expected });
        }
        let mut gradient = logits.tensor.clone();
        let factor = 1.0 / count as f32;
        let sum = losses::binary_cross_entropy(gradient.data_mut(), targets, factor);
        Ok(self.loss(sum / count as f64, logits.slot, gradient))
    }

    /// A loss whose gradient with respect to one value is already known.
    pub(super) fn loss(&mut self, loss: f64, from: Option<Slot>, gradient: Tensor) -> Value {
        let value = Tensor::scalar(&self.device, loss as f32);
        self.finish(value, from.is_some(), |result| Loss { result, from, gradient })
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
    if places.is_empty() {
        return Err(ComputeError::Empty {
            operation: "cross-entropy",
            what: "set of labelled rows",
        });
    }
    if let Some(bad) = labels.iter().position(|&label| label as usize >= classes) {
        let (operation, what) = ("cross-entropy", "label");
        let (found, place) = (labels[bad] as usize, places[bad] as usize);
        return Err(ComputeError::Index { operation, what, found, place, limit: classes });
    }
    Ok((places, labels))
}

#[derive(Debug)]
struct Loss {
    result: Slot,
    from: Option<Slot>,
    gradient: Tensor,
}

impl Recorded for Loss {
    fn backward(mut self: Box<Self>, flow: &mut Flow) {
        let Some(upstream) = flow.take(self.result) else { return };
        if upstream.item() != 1.0 {
            elementwise::scale(self.gradient.data_mut(), upstream.item());
        }
        flow.add(self.from, self.gradient);
    }
}
