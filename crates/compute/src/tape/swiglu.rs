//! SwiGLU: `silu(gate) * up`. Saves gate and up.

use super::record::{Flow, Recorded, Tape, wanted};
use crate::error::ComputeError;
use crate::kernels;
use crate::tensor::Tensor;
use crate::value::{Slot, Value};

impl Tape {
    /// `silu(gate) * up`, where each row of `x` is gate then up.
    pub fn swiglu(&mut self, x: &Value) -> Result<Value, ComputeError> {
        let (rows, cols) = x.tensor.shape();
        ComputeError::expect("swiglu", "odd column", cols % 2, 0)?;
        let mut y = Tensor::scratch(&self.device, rows, cols / 2);
        ComputeError::not_empty("swiglu", "row", cols)?;
        kernels::swiglu(&self.device, &x.tensor, &mut y);
        let y = self.finish(y, wanted(&[x], &[]), |result| Swiglu { result, x: x.clone() });
        Ok(y.with_rows_of(x))
    }
}

#[derive(Debug)]
struct Swiglu {
    result: Slot,
    x: Value,
}

impl Recorded for Swiglu {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(dy) = flow.take(self.result) else { return };
        let (rows, cols) = self.x.tensor.shape();
        let mut dx = Tensor::scratch(&flow.device, rows, cols);
        kernels::swiglu_backward(&flow.device, (&self.x.tensor, &dy), &mut dx);
        flow.add(self.x.slot, dx);
    }
}
