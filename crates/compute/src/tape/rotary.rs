//! Rotary positions. Saves nothing but the positions: the backward pass turns the other way.

use super::{Flow, Recorded, Slot, Tape, Value, wanted};
use crate::cpu::rotary::{Angles, Turn, rotate};
use crate::device::Device;
use crate::error::ComputeError;
use std::sync::Arc;

impl Tape {
    /// Turns the first `heads` heads of each row by the angles of its position, in place when
    /// nobody else holds `x`.
    pub fn rotary(
        &mut self,
        x: Value,
        heads: usize,
        positions: &[u32],
        angles: &Arc<Angles>,
    ) -> Result<Value, ComputeError> {
        let (rows, cols) = x.tensor.shape();
        ComputeError::expect("rotary", "number of positions", positions.len(), rows)?;
        ComputeError::within("rotary", "position", positions, angles.positions())?;
        if heads * angles.width() > cols {
            let (found, expected) =
                (format!("{heads} x {}", angles.width()), format!("at most {cols}"));
            return Err(ComputeError::Shape {
                operation: "rotary",
                what: "width",
                found,
                expected,
            });
        }
        let wanted = wanted(&[&x], &[]);
        let Value { mut tensor, slot } = x;
        match &self.device {
            Device::Cpu(_) => rotate(tensor.data_mut(), cols, heads, positions, angles, Turn::With),
        }
        Ok(self.finish(tensor, wanted, |result| Rotary {
            result,
            from: slot,
            cols,
            heads,
            positions: positions.to_vec(),
            angles: angles.clone(),
        }))
    }
}

#[derive(Debug)]
struct Rotary {
    result: Slot,
    from: Option<Slot>,
    cols: usize,
    heads: usize,
    positions: Vec<u32>,
    angles: Arc<Angles>,
}

impl Recorded for Rotary {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(mut dy) = flow.take(self.result) else { return };
        match &flow.device {
            Device::Cpu(_) => {
                let (cols, heads) = (self.cols, self.heads);
                rotate(dy.data_mut(), cols, heads, &self.positions, &self.angles, Turn::Against);
            }
        }
        flow.add(self.from, dy);
    }
}
