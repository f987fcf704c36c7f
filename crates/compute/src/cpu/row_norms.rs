//! The norms of a weight's rows with its low-rank correction: `|W_j + s B_j A|`, without making the sum.

use super::elementwise::{add_run, sum_of_squares};
use super::matmul::Stored;
use crate::thread_pool;

/// Rows per task.
const ROWS: usize = 16;

/// A low-rank correction `scale * B A`: rows of A as long as the weight's, rows of B as long as the rank.
#[derive(Clone, Copy, Debug)]
pub struct Correction<'a> {
    pub a: &'a [f32],
    pub b: &'a [f32],
    pub scale: f32,
}

/// One norm for each row.
pub fn row_norms(weight: Stored<'_>, correction: Option<Correction<'_>>, into: &mut [f32]) {
    let inputs = weight.cols();
    thread_pool::each_chunk(into, ROWS, |task, norms| {
        let mut row = vec![0.0; inputs];
        for (i, norm) in norms.iter_mut().enumerate() {
            let output = task * ROWS + i;
            weight.read_row(output, 0..inputs, &mut row);
            if let Some(Correction { a, b, scale }) = correction {
                let rank = a.len().checked_div(inputs).unwrap_or(0);
                for (b, a) in b[output * rank..][..rank].iter().zip(a.chunks_exact(inputs.max(1))) {
                    add_run(&mut row, scale * b, a);
                }
            }
            *norm = sum_of_squares(&row).sqrt() as f32;
        }
    });
}
