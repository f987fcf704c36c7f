//! One number in, one number out, in place where nobody else holds the value: sums, factors, soft caps and
//! dropout. Only a soft cap saves anything, its result.

use super::record::{Flow, Recorded, Tape, wanted};
use crate::error::ComputeError;
use crate::kernels;
use crate::tensor::Tensor;
use crate::value::{Slot, Value};
use fedra_seed::Seed;

impl Tape {
    /// `x + y`: a residual that something else than a projection is added to.
    pub fn add(&mut self, x: Value, y: &Value) -> Result<Value, ComputeError> {
        let (found, expected) = (y.tensor.shape(), x.tensor.shape());
        ComputeError::expect("sum", "shape", found, expected)?;
        let wanted = wanted(&[&x, y], &[]);
        let Value { mut tensor, slot, sequences } = x;
        kernels::add_scaled(&self.device, &mut tensor, 1.0, &y.tensor);
        let from = [slot, y.slot];
        let sum = self.finish(tensor, wanted, |result| Sum { result, from });
        Ok(Value { sequences, ..sum })
    }

    /// `factor * x`.
    pub fn scaled(&mut self, x: Value, factor: f32) -> Value {
        let wanted = wanted(&[&x], &[]);
        let Value { mut tensor, slot: from, sequences } = x;
        kernels::scale(&self.device, &mut tensor, factor);
        let scaled = self.finish(tensor, wanted, |result| Scaled { result, from, factor });
        Value { sequences, ..scaled }
    }

    /// `cap * tanh(x / cap)`.
    pub fn soft_capped(&mut self, x: Value, cap: f32) -> Result<Value, ComputeError> {
        ComputeError::positive("soft cap", cap)?;
        let wanted = wanted(&[&x], &[]);
        let Value { mut tensor, slot: from, sequences } = x;
        kernels::soft_cap(&self.device, &mut tensor, cap);
        let y = tensor.clone();
        let capped = self.finish(tensor, wanted, |result| SoftCapped { result, from, y, cap });
        Ok(Value { sequences, ..capped })
    }

    /// Keeps each element of `x` with probability `1 - rate`, divided by that probability, and makes zeros
    /// of the others; the seed decides which.
    pub fn dropout(&mut self, x: Value, rate: f32, seed: Seed) -> Result<Value, ComputeError> {
        if !(0.0..1.0).contains(&rate) {
            let (what, expected) = ("dropout rate", "at least 0 and less than 1");
            return Err(ComputeError::Setting { what, found: rate, expected });
        }
        if rate == 0.0 {
            return Ok(x);
        }
        let wanted = wanted(&[&x], &[]);
        let Value { mut tensor, slot: from, sequences } = x;
        kernels::drop_out(&self.device, &mut tensor, rate, seed);
        let kept = self.finish(tensor, wanted, |result| Dropout { result, from, rate, seed });
        Ok(Value { sequences, ..kept })
    }
}

#[derive(Debug)]
struct Sum {
    result: Slot,
    from: [Option<Slot>; 2],
}

impl Recorded for Sum {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(dy) = flow.take(self.result) else { return };
        flow.add(self.from[0], dy.clone());
        flow.add(self.from[1], dy);
    }
}

#[derive(Debug)]
struct Scaled {
    result: Slot,
    from: Option<Slot>,
    factor: f32,
}

impl Recorded for Scaled {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(mut dy) = flow.take(self.result) else { return };
        kernels::scale(&flow.device, &mut dy, self.factor);
        flow.add(self.from, dy);
    }
}

#[derive(Debug)]
struct SoftCapped {
    result: Slot,
    from: Option<Slot>,
    y: Tensor,
    cap: f32,
}

impl Recorded for SoftCapped {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(mut dy) = flow.take(self.result) else { return };
        kernels::soft_cap_backward(&flow.device, (&self.y, self.cap), &mut dy);
        flow.add(self.from, dy);
    }
}

#[derive(Debug)]
struct Dropout {
    result: Slot,
    from: Option<Slot>,
    rate: f32,
    seed: Seed,
}

impl Recorded for Dropout {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(mut dy) = flow.take(self.result) else { return };
        kernels::drop_out(&flow.device, &mut dy, self.rate, self.seed);
        flow.add(self.from, dy);
    }
}
