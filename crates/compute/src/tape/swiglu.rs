//! SwiGLU: `silu(gate) * up`. Saves gate and up.

use super::record::{Flow, Tape, wanted};
use crate::error::ComputeError;
use crate::kernels;
use crate::tensor::Tensor;
use crate::value::Value;

impl Tape {
    /// `silu(gate) * up`, where each row of `x` is gate then up.
    pub fn swiglu(&mut self, x: &Value) -> Result<Value, ComputeError> {
        let (rows, cols) = x.tensor.shape();
        ComputeError::expect("swiglu", "odd column", cols % 2, 0)?;
        let mut y = Tensor::scratch(&self.device, rows, cols / 2);
        ComputeError::not_empty("swiglu", "row", cols)?;
        kernels::swiglu(&x.tensor, &mut y);
        let y = self.finish(y, wanted(&[x], &[]), || {
            let x = x.clone();
            move |flow: &mut Flow, dy| {
                let mut dx = Tensor::scratch(&flow.device, rows, cols);
                kernels::swiglu_backward((&x.tensor, &dy), &mut dx);
                flow.add(x.slot, dx);
            }
        });
        Ok(y.with_rows_of(x))
    }
}
