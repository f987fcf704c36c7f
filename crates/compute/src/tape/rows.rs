//! Picking rows: the one token a classifier reads, or the positions that carry a label.
//! Saves only the row numbers.

use super::record::{Tape, wanted};
use crate::error::ComputeError;
use crate::kernels;
use crate::tensor::Tensor;
use crate::value::Value;

impl Tape {
    /// The given rows of `x`, in the given order; a row may be picked more than once.
    pub fn rows(&mut self, x: &Value, rows: &[u32]) -> Result<Value, ComputeError> {
        let (of, width) = x.tensor.shape();
        ComputeError::within("rows", "row", rows, of)?;
        let mut picked = Tensor::activation(&self.device, rows.len(), width);
        ComputeError::not_empty("rows", "row", width)?;
        kernels::gather(&self.device, &mut picked, &[(&x.tensor, rows)]);
        let sequences = x.sequences().and_then(|sequences| sequences.picked(rows));
        let picked = self.finish(picked, wanted(&[x], &[]), || {
            let (from, rows) = (x.slot, rows.to_vec());
            move |flow, dy| flow.add_rows(from, (of, width), &rows, &dy)
        });
        Ok(Value { sequences, ..picked })
    }
}
