//! Rotary positions. Saves nothing but the positions: the backward pass turns the other way.

use super::record::{Flow, Tape, wanted};
use crate::cpu::rotary::{Angles, Turn};
use crate::error::ComputeError;
use crate::kernels;
use crate::value::Value;
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
        kernels::rotate(&mut tensor, heads, (positions, angles, Turn::With));
        let turned = self.finish(tensor, wanted, || {
            let (positions, angles) = (positions.to_vec(), Arc::clone(angles));
            move |flow: &mut Flow, mut dy| {
                let how = (&positions[..], &*angles, Turn::Against);
                kernels::rotate(&mut dy, heads, how);
                flow.add(slot, dy);
            }
        });
        Ok(Value { sequences, ..turned })
    }
}
