//! Rotary positions. Saves nothing but the positions: the backward pass turns the other way.

use super::record::{Flow, Recorded, Tape, wanted};
use crate::cpu::rotary::{Angles, Turn};
use crate::error::ComputeError;
use crate::kernels;
use crate::value::{Slot, Value};
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
        if heads.saturating_mul(angles.width()) > cols {
            let found = format!("{heads} x {}", angles.width());
            let expected = format!("at most {cols}");
            return Err(ComputeError::shape("rotary", "width", found, expected));
        }
        ComputeError::not_empty("rotary", "row", cols)?;
        let wanted = wanted(&[&x], &[]);
        let Value { mut tensor, slot, sequences } = x;
        kernels::rotate(&self.device, &mut tensor, heads, (positions, angles, Turn::With));
        let turned = self.finish(tensor, wanted, |result| Rotary {
            result,
            from: slot,
            heads,
            positions: positions.to_vec(),
            angles: angles.clone(),
        });
        Ok(Value { sequences, ..turned })
    }
}

#[derive(Debug)]
struct Rotary {
    result: Slot,
    from: Option<Slot>,
    heads: usize,
    positions: Vec<u32>,
    angles: Arc<Angles>,
}

impl Recorded for Rotary {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(mut dy) = flow.take(self.result) else { return };
        let how = (&self.positions[..], &*self.angles, Turn::Against);
        kernels::rotate(&flow.device, &mut dy, self.heads, how);
        flow.add(self.from, dy);
    }
}
