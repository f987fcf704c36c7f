//! The gated activation of LLaMA's MLP: `silu(gate) * up`, both halves of one row.

use super::math;
use super::simd::vectorised;
use crate::thread_pool;

const ROWS: usize = 16;

/// `y = silu(gate) * up`, where a row of `x` is gate then up.
pub fn forward(x: &[f32], y: &mut [f32], width: usize) {
    thread_pool::each_chunk(y, ROWS * width, |task, y| {
        let x = &x[task * ROWS * 2 * width..];
        for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
            forward_row(&x[..width], &x[width..], y);
        }
    });
}

/// Gradients of gate and up into the two halves of `dx`.
pub fn backward(x: &[f32], dy: &[f32], dx: &mut [f32], width: usize) {
    thread_pool::each_chunk(dx, ROWS * 2 * width, |task, dx| {
        let first = task * ROWS * width;
        let rows = x[2 * first..].chunks_exact(2 * width).zip(dy[first..].chunks_exact(width));
        for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(2 * width)) {
            let (dgate, dup) = dx.split_at_mut(width);
            backward_row(&x[..width], &x[width..], dy, dgate, dup);
        }
    });
}

vectorised! {
    fn forward_row(gate: &[f32], up: &[f32], y: &mut [f32]) {
        for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
            *y = gate * math::sigmoid(*gate) * up;
        }
    }
}

vectorised! {
    fn backward_row(gate: &[f32], up: &[f32], dy: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
        for i in 0..dy.len() {
            let s = math::sigmoid(gate[i]);
            let silu = gate[i] * s;
            dup[i] = dy[i] * silu;
            // silu' = s + x s (1 - s)
            dgate[i] = dy[i] * up[i] * silu.mul_add(1.0 - s, s);
        }
    }
}
