//! Columns of a tensor normalised or scaled by a vector: RMS norm of each head's query and key or of all
//! heads together, and layer scale. Saves the input where a gradient reads it.

use super::record::{Flow, Tape, wanted};
use crate::error::ComputeError;
use crate::kernels::{self, ColumnFactors};
use crate::params::Weight;
use crate::tensor::Tensor;
use crate::value::Value;
use std::ops::Range;

impl Tape {
    /// RMS norm inside a projected tensor, in place when nobody else holds `x`; columns outside the parts
    /// stay as they are.
    ///
    /// Each part's columns are cut into groups as long as its weight. A group is divided by
    /// `sqrt(mean square + epsilon)` and multiplied by `weight + offset`.
    pub fn norm_columns(
        &mut self,
        x: Value,
        parts: &[(Range<usize>, &Weight)],
        epsilon: f32,
        offset: f32,
    ) -> Result<Value, ComputeError> {
        check("column norm", x.tensor.cols(), parts)?;
        self.columns("column norm", x, parts, (Some(epsilon), offset))
    }

    /// Each row of `x` times a weight, in place when nobody else holds `x`.
    pub fn scale_columns(&mut self, x: Value, weight: &Weight) -> Result<Value, ComputeError> {
        let cols = x.tensor.cols();
        ComputeError::expect("column scale", "weight shape", weight.tensor.shape(), (1, cols))?;
        let parts = [(0..cols, weight)];
        check("column scale", cols, &parts)?;
        self.columns("column scale", x, &parts, (None, 0.0))
    }

    fn columns(
        &mut self,
        operation: &'static str,
        x: Value,
        parts: &[(Range<usize>, &Weight)],
        (epsilon, offset): (Option<f32>, f32),
    ) -> Result<Value, ComputeError> {
        let weights: Vec<&Weight> = parts.iter().map(|(_, weight)| *weight).collect();
        let examples = self.example_rows(operation, x.sequences(), weights.iter().copied())?;
        let factor = |(columns, weight): &(Range<usize>, &Weight)| {
            (columns.clone(), kernels::shifted(&self.device, &weight.tensor, offset))
        };
        let factors: Vec<_> = parts.iter().map(factor).collect();
        let wanted = wanted(&[&x], &weights);
        let reads_input = epsilon.is_some() || weights.iter().any(|weight| weight.trains);
        let saved = (wanted && reads_input).then(|| x.tensor.clone());
        let Value { mut tensor, slot, sequences } = x;
        let by = ColumnFactors { parts: &factors, epsilon };
        kernels::scale_columns(&mut tensor, &by);
        let scaled = self.finish(tensor, wanted, || {
            let weights: Vec<Weight> = weights.into_iter().cloned().collect();
            move |flow: &mut Flow, mut dy: Tensor| {
                let device = flow.device.clone();
                let by = ColumnFactors { parts: &factors, epsilon };
                if let Some(x) = &saved {
                    let mut end = 0;
                    let column = |weight: &Weight| {
                        end += weight.tensor.cols();
                        weight.trains.then(|| (weight.id, end - weight.tensor.cols()..end))
                    };
                    let trained: Vec<_> = weights.iter().filter_map(column).collect();
                    flow.add_vectors(examples.as_ref(), dy.rows(), trained, |runs| {
                        kernels::column_weight_sums(&device, (x, &dy), &by, runs)
                    });
                }
                if slot.is_none() {
                    return;
                }
                match (epsilon, &saved) {
                    (Some(epsilon), Some(x)) => {
                        kernels::norm_columns_backward((x, epsilon), &by, &mut dy);
                    }
                    (Some(_), None) | (None, _) => kernels::scale_columns(&mut dy, &by),
                }
                flow.add(slot, dy);
            }
        });
        Ok(Value { sequences, ..scaled })
    }
}

/// Parts lie inside the row, one behind another, and consist of whole groups.
fn check(
    operation: &'static str,
    cols: usize,
    parts: &[(Range<usize>, &Weight)],
) -> Result<(), ComputeError> {
    ComputeError::not_empty(operation, "row", cols)?;
    let mut end = 0;
    for (columns, weight) in parts {
        let width = weight.tensor.cols();
        ComputeError::expect(operation, "number of weight rows", weight.tensor.rows(), 1)?;
        ComputeError::not_empty(operation, "weight", width)?;
        if columns.start < end || columns.start > columns.end || columns.end > cols {
            let (found, expected) = (format!("{columns:?}"), format!("inside {end}..{cols}"));
            return Err(ComputeError::shape(operation, "columns of a part", found, expected));
        }
        ComputeError::expect(operation, "rest of a part's columns", columns.len() % width, 0)?;
        end = columns.end;
    }
    Ok(())
}
