//! Gated activations: `activation(gate) * up`. Saves gate and up.

use super::record::{Flow, Tape, wanted};
use crate::activation::Activation;
use crate::error::ComputeError;
use crate::kernels;
use crate::tensor::Tensor;
use crate::value::Value;

impl Tape {
    /// `activation(gate) * up`, where each row of `x` is gate then up: with `SiLU` this is `SwiGLU`,
    /// with GELU `GeGLU`.
    pub fn gated(&mut self, x: &Value, activation: Activation) -> Result<Value, ComputeError> {
        let (rows, cols) = x.tensor.shape();
        ComputeError::expect("gate", "odd column", cols % 2, 0)?;
        let mut y = Tensor::activation(&self.device, rows, cols / 2);
        ComputeError::not_empty("gate", "row", cols)?;
        kernels::gated(activation, &x.tensor, &mut y);
        let y = self.finish(y, wanted(&[x], &[]), || {
            let x = x.clone();
            move |flow: &mut Flow, dy| {
                let mut dx = Tensor::activation(&flow.device, rows, cols);
                kernels::gated_backward(activation, (&x.tensor, &dy), &mut dx);
                flow.add(x.slot, dx);
            }
        });
        Ok(y.with_rows_of(x))
    }
}
