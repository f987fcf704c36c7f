//! The mean row of each sequence: what a classifier reads where no single token stands for the text.
//! Saves nothing but where sequences begin.

use super::record::{Flow, Tape, wanted};
use crate::error::ComputeError;
use crate::kernels;
use crate::sequences::Sequences;
use crate::tensor::Tensor;
use crate::value::Value;

impl Tape {
    /// The mean row of each sequence of `x`, one row a sequence.
    pub fn sequence_means(&mut self, x: &Value) -> Result<Value, ComputeError> {
        let operation = "sequence means";
        ComputeError::not_empty(operation, "row", x.tensor.cols())?;
        let Some(sequences) = x.sequences() else {
            let what = "description of where sequences begin";
            return Err(ComputeError::Empty { operation, what });
        };
        let ranges: Vec<_> = sequences.ranges().collect();
        for range in &ranges {
            ComputeError::not_empty(operation, "sequence", range.len())?;
        }
        let mut means = kernels::example_sums(&self.device, &x.tensor, &ranges);
        kernels::scale_rows(&mut means, &shares(sequences));
        let means = self.finish(means, wanted(&[x], &[]), || {
            let (from, sequences) = (x.slot, sequences.clone());
            move |flow: &mut Flow, mut dy: Tensor| {
                kernels::scale_rows(&mut dy, &shares(&sequences));
                let runs = sequences.ranges().zip(0..);
                let index: Vec<u32> = runs
                    .flat_map(|(rows, number)| std::iter::repeat_n(number, rows.len()))
                    .collect();
                let mut dx = Tensor::scratch(&flow.device, index.len(), dy.cols());
                kernels::gather(&flow.device, &mut dx, &[(&dy, &index)]);
                flow.add(from, dx);
            }
        });
        means.in_sequences(&Sequences::of_lengths(&vec![1; ranges.len()]))
    }
}

/// What each row of a sequence counts in its mean.
fn shares(sequences: &Sequences) -> Vec<f32> {
    sequences.ranges().map(|rows| 1.0 / rows.len() as f32).collect()
}
