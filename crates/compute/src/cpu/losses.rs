//! Losses and their gradients in one pass over the logits.

use super::math;
use super::shared::Shared;
use super::simd::vectorised;
use crate::crew;

/// Turns each row of logits into `factor * (softmax - one hot)` and returns the sum of losses.
///
/// `target` names the column that should have been predicted.
pub fn cross_entropy_rows(logits: &mut [f32], cols: usize, targets: &[u32], factor: f32) -> f64 {
    let mut losses = vec![0.0; targets.len()];
    let into = Shared::new(&mut losses);
    crew::each_chunk(logits, cols, |row, logits| {
        let loss = cross_entropy_row(logits, targets[row] as usize, factor);
        // SAFETY: each task writes the loss of its own row.
        unsafe { into.segment(row, 1)[0] = loss };
    });
    losses.into_iter().map(f64::from).sum()
}

vectorised! {
    fn cross_entropy_row(row: &mut [f32], target: usize, factor: f32) -> f32 {
        let max = math::max(row);
        let chosen = row[target] - max;
        for x in row.iter_mut() {
            *x = math::exp(*x - max);
        }
        let sum = math::sum(row);
        let scale = factor / sum;
        for x in row.iter_mut() {
            *x *= scale;
        }
        row[target] -= factor;
        sum.ln() - chosen
    }
}

/// Binary cross-entropy of logits `x` with targets in [0, 1]; `x` becomes `factor * (sigmoid - target)`.
pub fn binary_cross_entropy(x: &mut [f32], targets: &[f32], factor: f32) -> f64 {
    let mut sum = 0.0;
    for (x, &target) in x.iter_mut().zip(targets) {
        let (logit, wanted) = (f64::from(*x), f64::from(target));
        // log(1 + e^-|x|) + max(x, 0) - x t, which overflows nowhere
        sum += (-logit.abs()).exp().ln_1p() + logit.max(0.0) - logit * wanted;
        *x = factor * (1.0 / (1.0 + (-*x).exp()) - target);
    }
    sum
}
