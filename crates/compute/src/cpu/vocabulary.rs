//! Cross-entropy over a vocabulary, a few rows of logits at a time.

use super::elementwise;
use super::losses::{self, Factors};
use super::matmul::{Extras, Mat, MatMut, Right, Start, multiply};
use crate::pool::Pool;

/// Logits held at once, in floats (16 MiB).
const HELD: usize = 1 << 22;

/// The loss of `x W^T + b`, and the gradients that are wanted, which are overwritten.
#[derive(Debug)]
pub struct Loss<'a> {
    /// Rows that have a target.
    pub x: Mat<'a>,
    /// Words by features.
    pub weight: Mat<'a>,
    /// One number per word.
    pub bias: Option<&'a [f32]>,
    /// The word that each row should have predicted.
    pub labels: &'a [u32],
    /// What each row counts.
    pub factors: Factors<'a>,
    /// Of the input.
    pub dx: Option<&'a mut [f32]>,
    /// Of the weight.
    pub dw: Option<&'a mut [f32]>,
    /// Of the bias.
    pub db: Option<&'a mut [f32]>,
}

/// Rows whose logits exist at once.
pub fn rows_at_once(words: usize) -> usize {
    (HELD / words).clamp(16, 1024)
}

/// The weighted sum of the rows' losses.
pub fn run(pool: &Pool, loss: Loss<'_>) -> f64 {
    let Loss { x, weight, bias, labels, factors, mut dx, mut dw, mut db } = loss;
    let (rows, width, words) = (x.rows(), x.cols(), weight.rows());
    let forward = Right::beside(pool, &[weight.t()]);
    let backward = dx.is_some().then(|| Right::stacked(pool, &[weight]));
    let start = bias.map_or(Start::Zero, Start::Bias);
    let step = rows_at_once(words);
    let mut logits = pool.take(step.min(rows) * words);
    let mut sum = 0.0;
    if let Some(db) = db.as_deref_mut() {
        db.fill(0.0);
    }
    for first in (0..rows).step_by(step) {
        let now = first..rows.min(first + step);
        let input = x.rows_of(now.clone());
        let logits = &mut logits[..now.len() * words];
        let into = MatMut::new(logits, now.len(), words);
        multiply(into, input, &forward, start, Extras::default());
        let counted = factors.of(now.clone());
        sum += losses::cross_entropy_rows(logits, words, &labels[now.clone()], counted);
        let slope = Mat::new(logits, now.len(), words);
        if let (Some(dx), Some(backward)) = (dx.as_deref_mut(), &backward) {
            let into = &mut dx[now.start * width..now.end * width];
            let into = MatMut::new(into, now.len(), width);
            multiply(into, slope, backward, Start::Zero, Extras::default());
        }
        if let Some(dw) = dw.as_deref_mut() {
            let right = Right::rows(pool, input);
            let start = if first == 0 { Start::Zero } else { Start::Keep };
            let extras = Extras { finish: None, row_sums: db.as_deref_mut() };
            multiply(MatMut::new(dw, words, width), slope.t(), &right, start, extras);
        } else if let Some(db) = db.as_deref_mut() {
            for row in logits.chunks_exact(words) {
                elementwise::add_scaled(db, 1.0, row);
            }
        }
    }
    sum
}
