//! SwiGLU: `silu(gate) * up`. Saves gate and up.

use super::{Flow, Recorded, Slot, Tape, Value, wanted};
use crate::cpu::swiglu;
use crate::device::Device;
use crate::error::ComputeError;
use crate::tensor::Tensor;

impl Tape {
    /// `silu(gate) * up`, where each row of `x` is gate then up.
    pub fn swiglu(&mut self, x: &Value) -> Result<Value, ComputeError> {
        let (rows, cols) = x.tensor.shape();
        ComputeError::expect("swiglu", "odd column", cols % 2, 0)?;
        let mut y = Tensor::scratch(&self.device, rows, cols / 2);
        match &self.device {
            Device::Cpu(_) => swiglu::forward(x.tensor.data(), y.data_mut(), cols / 2),
        }
        Ok(self.finish(y, wanted(&[x], &[]), |result| Swiglu { result, x: x.clone() }))
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
        match &flow.device {
            Device::Cpu(_) => {
                swiglu::backward(self.x.tensor.data(), dy.data(), dx.data_mut(), cols / 2);
            }
        }
        flow.add(self.x.slot, dx);
    }
}
