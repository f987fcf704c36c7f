//! Picking rows: the one token a classifier reads, or the positions that carry a label.
//! Saves only the row numbers.

use super::record::{Flow, Recorded, Tape, wanted};
use crate::error::ComputeError;
use crate::kernels;
use crate::tensor::Tensor;
use crate::value::{Slot, Value};

impl Tape {
    /// The given rows of `x`, in the given order; a row may be picked more than once.
    pub fn rows(&mut self, x: &Value, rows: &[u32]) -> Result<Value, ComputeError> {
        let (of, width) = x.tensor.shape();
        ComputeError::within("rows", "row", rows, of)?;
        let mut picked = Tensor::scratch(&self.device, rows.len(), width);
        ComputeError::not_empty("rows", "row", width)?;
        kernels::gather(&self.device, &mut picked, &[(&x.tensor, rows)]);
        let sequences = x.sequences().and_then(|sequences| sequences.picked(rows));
        let picked = self.finish(picked, wanted(&[x], &[]), |result| Rows {
            result,
            from: x.slot,
            shape: (of, width),
            picked: rows.to_vec(),
        });
        Ok(Value { sequences, ..picked })
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
        flow.add_rows(from, self.shape, &self.picked, &dy);
    }
}
