//! Picking rows: the one token a classifier reads, or the positions that carry a label.
//! Saves only the row numbers.

use super::{Flow, Recorded, Slot, Tape, Value, wanted};
use crate::cpu::matmul::Start;
use crate::cpu::rows::{gather, scatter_add};
use crate::device::Device;
use crate::error::ComputeError;
use crate::tensor::Tensor;

impl Tape {
    /// The given rows of `x`, in the given order; a row may be picked more than once.
    pub fn rows(&mut self, x: &Value, rows: &[u32]) -> Result<Value, ComputeError> {
        let (of, width) = x.tensor.shape();
        ComputeError::within("rows", "row", rows, of)?;
        let mut picked = Tensor::scratch(&self.device, rows.len(), width);
        match &self.device {
            Device::Cpu(_) => gather(picked.data_mut(), width, &[(x.tensor.data(), rows)]),
        }
        Ok(self.finish(picked, wanted(&[x], &[]), |result| Rows {
            result,
            from: x.slot,
            shape: (of, width),
            picked: rows.to_vec(),
        }))
    }
}

#[derive(Debug)]
struct Rows {
    result: Slot,
    from: Option<Slot>,
    shape: (usize, usize),
    picked: Vec<u32>,
}

impl Recorded for Rows {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let (Some(dy), Some(from)) = (flow.take(self.result), self.from) else { return };
        flow.add_in_place(from, self.shape, |dx, start| {
            if !matches!(start, Start::Keep) {
                dx.fill(0.0);
            }
            scatter_add(dx, self.shape.1, &self.picked, dy.data());
        });
    }
}
