//! Gated activations: `activation(gate) * up`. Saves gate and up.

use super::projection::Projection;
use super::record::{Flow, Tape, wanted};
use crate::activation::Activation;
use crate::error::ComputeError;
use crate::kernels::{self, Linear};
use crate::tensor::Tensor;
use crate::value::Value;

impl Tape {
    /// `activation(gate(x)) * up(x)` of two projections.
    pub fn linear_gated(
        &mut self,
        x: Value,
        [gate, up]: [Projection; 2],
        activation: Activation,
    ) -> Result<Value, ComputeError> {
        let learns = |projection: &Projection| projection.trains() || projection.lora.is_some();
        if x.slot.is_none() && !learns(&gate) && !learns(&up) {
            for projection in [&gate, &up] {
                projection.check(x.tensor.cols())?;
            }
            ComputeError::expect("gate", "outputs beside the gate", up.outputs(), gate.outputs())?;
            let weights = [&gate, &up].map(|projection| {
                (&projection.weight.tensor, projection.bias.as_ref().map(|bias| &bias.tensor))
            });
            let given =
                Linear { x: &x.tensor, weights: &weights, residual: None, activation: None };
            if kernels::gates_at_once(&self.device, &given) {
                let mut y = Tensor::activation(&self.device, x.tensor.rows(), gate.outputs());
                kernels::linear_gated(&given, activation, &mut y);
                return Ok(self.constant(y).with_rows_of(&x));
            }
        }
        let both = self.linear(&x, &[gate, up])?;
        drop(x);
        self.gated(&both, activation)
    }

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
