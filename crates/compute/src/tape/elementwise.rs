//! One number in, one number out, in place where nobody else holds the value: sums, factors and soft caps.
//! Only a soft cap saves anything, its result.

use super::record::{Flow, Tape, wanted};
use crate::error::ComputeError;
use crate::kernels;
use crate::tensor::Tensor;
use crate::value::Value;

impl Tape {
    /// `x + y`: a residual that something else than a projection is added to.
    pub fn add(&mut self, x: Value, y: &Value) -> Result<Value, ComputeError> {
        let (found, expected) = (y.tensor.shape(), x.tensor.shape());
        ComputeError::expect("sum", "shape", found, expected)?;
        let wanted = wanted(&[&x, y], &[]);
        let Value { mut tensor, slot, sequences } = x;
        tensor.add_scaled(1.0, &y.tensor)?;
        let sum = self.finish(tensor, wanted, || {
            let other = y.slot;
            move |flow: &mut Flow, dy: Tensor| {
                flow.add(slot, dy.clone());
                flow.add(other, dy);
            }
        });
        Ok(Value { sequences, ..sum })
    }

    /// `factor * x`.
    pub fn scaled(&mut self, x: Value, factor: f32) -> Value {
        let wanted = wanted(&[&x], &[]);
        let Value { mut tensor, slot, sequences } = x;
        tensor.scale(factor);
        let scaled = self.finish(tensor, wanted, || {
            move |flow: &mut Flow, mut dy: Tensor| {
                dy.scale(factor);
                flow.add(slot, dy);
            }
        });
        Value { sequences, ..scaled }
    }

    /// `cap * tanh(x / cap)`.
    pub fn soft_capped(&mut self, x: Value, cap: f32) -> Result<Value, ComputeError> {
        ComputeError::positive("soft cap", cap)?;
        let wanted = wanted(&[&x], &[]);
        let Value { mut tensor, slot, sequences } = x;
        kernels::soft_cap(&mut tensor, cap);
        let y = tensor.clone();
        let capped = self.finish(tensor, wanted, || {
            move |flow: &mut Flow, mut dy: Tensor| {
                kernels::soft_cap_backward((&y, cap), &mut dy);
                flow.add(slot, dy);
            }
        });
        Ok(Value { sequences, ..capped })
    }
}
