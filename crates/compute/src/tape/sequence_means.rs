//! Mean rows of each sequence: what a classifier reads where no single token stands for the whole, or not alone.
//! Saves nothing but where sequences begin.

use super::record::{Flow, Tape, wanted};
use crate::error::ComputeError;
use crate::kernels;
use crate::sequences::Sequences;
use crate::tensor::Tensor;
use crate::value::Value;
use std::ops::Range;

impl Tape {
    /// The mean row of each sequence of `x`, one row a sequence.
    pub fn sequence_means(&mut self, x: &Value) -> Result<Value, ComputeError> {
        self.means(x, |rows| vec![rows])
    }

    /// The first row of each sequence of `x`, and beside it the mean of those behind the first `skipped`.
    pub fn first_and_mean(&mut self, x: &Value, skipped: usize) -> Result<Value, ComputeError> {
        self.means(x, |Range { start, end }| {
            vec![start..end.min(start + 1), end.min(start + skipped)..end]
        })
    }

    /// The means of some rows of each sequence side by side, one row a sequence.
    fn means(
        &mut self,
        x: &Value,
        parts: impl Fn(Range<usize>) -> Vec<Range<usize>>,
    ) -> Result<Value, ComputeError> {
        let operation = "sequence means";
        let (rows, width) = x.tensor.shape();
        ComputeError::not_empty(operation, "row", width)?;
        let Some(sequences) = x.sequences() else {
            let what = "description of where sequences begin";
            return Err(ComputeError::Empty { operation, what });
        };
        let count = sequences.len();
        let ranges: Vec<_> = sequences.ranges().flat_map(parts).collect();
        for range in &ranges {
            ComputeError::not_empty(operation, "sequence", range.len())?;
        }
        let mut means = kernels::example_sums(&self.device, &x.tensor, &ranges);
        kernels::scale_rows(&mut means, &shares(&ranges));
        // Means of one sequence lie one after the other: its row is as wide as they are together.
        let means = means.reshaped(count);
        let means = self.finish(means, wanted(&[x], &[]), || {
            let from = x.slot;
            move |flow: &mut Flow, dy: Tensor| {
                let mut dy = dy.reshaped(ranges.len());
                kernels::scale_rows(&mut dy, &shares(&ranges));
                let number = |(range, number): (&Range<usize>, u32)| {
                    std::iter::repeat_n(number, range.len())
                };
                let index: Vec<u32> = ranges.iter().zip(0..).flat_map(number).collect();
                let mut dx = Tensor::activation(&flow.device, index.len(), width);
                kernels::gather(&flow.device, &mut dx, &[(&dy, &index)]);
                if index.len() == rows {
                    return flow.add(from, dx);
                }
                let at: Vec<u32> = ranges.into_iter().flatten().map(|row| row as u32).collect();
                flow.add_rows(from, (rows, width), &at, &dx);
            }
        });
        means.in_sequences(&Sequences::of_lengths(&vec![1; count]))
    }
}

/// What each row of a range counts in its mean.
fn shares(ranges: &[Range<usize>]) -> Vec<f32> {
    ranges.iter().map(|rows| 1.0 / rows.len() as f32).collect()
}
