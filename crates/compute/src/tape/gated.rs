//! Gated activations: `activation(gate) * up`. Saves gate and up.

use super::record::{Flow, Recorded, Tape, wanted};
use crate::activation::Activation;
use crate::error::ComputeError;
use crate::kernels;
use crate::tensor::Tensor;
use crate::value::{Slot, Value};

impl Tape {
    /// `activation(gate) * up`, where each row of `x` is gate then up: with `SiLU` this is `SwiGLU`,
    /// with GELU `GeGLU`.
    pub fn gated(&mut self, x: &Value, activation: Activation) -> Result<Value, ComputeError> {
        let (rows, cols) = x.tensor.shape();
        ComputeError::expect("gate", "odd column", cols % 2, 0)?;
        let mut y = Tensor::scratch(&self.device, rows, cols / 2);
        ComputeError::not_empty("gate", "row", cols)?;
        kernels::gated(&self.device, activation, &x.tensor, &mut y);
        let record = |result| Gated { result, x: x.clone(), activation };
        Ok(self.finish(y, wanted(&[x], &[]), record).with_rows_of(x))
    }
}

#[derive(Debug)]
struct Gated {
    result: Slot,
    x: Value,
    activation: Activation,
}

impl Recorded for Gated {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(dy) = flow.take(self.result) else { return };
        let (rows, cols) = self.x.tensor.shape();
        let mut dx = Tensor::scratch(&flow.device, rows, cols);
        kernels::gated_backward(&flow.device, self.activation, (&self.x.tensor, &dy), &mut dx);
        flow.add(self.x.slot, dx);
    }
}
