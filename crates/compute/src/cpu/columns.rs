//! Columns of each row multiplied by a weight, in groups as long as the weight; with an epsilon each group
//! is divided by its root mean square first.
//!
//! ```text
//! forward   n = x r            y = n * weight       r = 1 / sqrt(mean x^2 + eps), or 1
//! backward  h = dy * weight    dx = r (h - n mean(h n))
//! ```

use super::elementwise;
use super::math;
use super::simd::vectorised;
use crate::thread_pool;
use std::ops::Range;

/// Rows per task.
const ROWS: usize = 16;

/// Some columns, and the weight of each of their groups.
#[derive(Debug)]
pub struct Part<'a> {
    pub columns: Range<usize>,
    pub weight: &'a [f32],
}

/// Scales the parts of each row of `cols` in place; other columns stay as they are.
pub fn forward(x: &mut [f32], cols: usize, parts: &[Part<'_>], epsilon: Option<f32>) {
    thread_pool::each_chunk(x, ROWS * cols, |_, rows| {
        for row in rows.chunks_exact_mut(cols) {
            for part in parts {
                scale_groups(&mut row[part.columns.clone()], part.weight, epsilon);
            }
        }
    });
}

/// Adds a row of numbers to the parts of each row of `cols`, in place.
pub fn shift(x: &mut [f32], cols: usize, parts: &[Part<'_>]) {
    thread_pool::each_chunk(x, ROWS * cols, |_, rows| {
        for row in rows.chunks_exact_mut(cols) {
            for Part { columns, weight } in parts {
                elementwise::add_run(&mut row[columns.clone()], 1.0, weight);
            }
        }
    });
}

/// Turns the gradient of a norm's result into that of its input.
pub fn backward(x: &[f32], cols: usize, parts: &[Part<'_>], epsilon: f32, dy: &mut [f32]) {
    thread_pool::each_chunk(dy, ROWS * cols, |task, dy| {
        let x = &x[task * ROWS * cols..];
        for (x, dy) in x.chunks_exact(cols).zip(dy.chunks_exact_mut(cols)) {
            for Part { columns, weight } in parts {
                input_groups(&x[columns.clone()], weight, epsilon, &mut dy[columns.clone()]);
            }
        }
    });
}

/// For each run of rows the gradients of all weights side by side, in f64.
pub fn weight_sums(
    (x, dy): (&[f32], &[f32]),
    cols: usize,
    (parts, epsilon): (&[Part<'_>], Option<f32>),
    runs: &[Range<usize>],
    into: &mut [f32],
) {
    let total: usize = parts.iter().map(|part| part.weight.len()).sum();
    thread_pool::each_chunk(into, total.max(1), |run, into| {
        let mut sums = vec![0.0; total];
        for row in runs[run].clone() {
            let (x, dy) = (&x[row * cols..][..cols], &dy[row * cols..][..cols]);
            let mut rest = &mut sums[..];
            for Part { columns, weight } in parts {
                let (now, later) = rest.split_at_mut(weight.len());
                add_groups(now, &x[columns.clone()], &dy[columns.clone()], epsilon);
                rest = later;
            }
        }
        into.iter_mut().zip(&sums).for_each(|(into, sum)| *into = *sum as f32);
    });
}

vectorised! {
    fn scale_groups(x: &mut [f32], weight: &[f32], epsilon: Option<f32>) {
        let width = weight.len();
        for group in x.chunks_exact_mut(width) {
            let inverse = epsilon.map_or(1.0, |epsilon| math::inverse_root(group, epsilon));
            for i in 0..width {
                group[i] = group[i] * inverse * weight[i];
            }
        }
    }
}

vectorised! {
    fn input_groups(x: &[f32], weight: &[f32], epsilon: f32, dy: &mut [f32]) {
        let width = weight.len();
        for (x, dy) in x.chunks_exact(width).zip(dy.chunks_exact_mut(width)) {
            let inverse = math::inverse_root(x, epsilon);
            for i in 0..width {
                dy[i] *= weight[i];
            }
            let mean = math::dot(x, dy) * inverse / width as f32;
            for i in 0..width {
                dy[i] = inverse * (dy[i] - x[i] * inverse * mean);
            }
        }
    }
}

vectorised! {
    fn add_groups(sums: &mut [f64], x: &[f32], dy: &[f32], epsilon: Option<f32>) {
        let width = sums.len();
        for (x, dy) in x.chunks_exact(width).zip(dy.chunks_exact(width)) {
            let inverse = epsilon.map_or(1.0, |epsilon| math::inverse_root(x, epsilon));
            for i in 0..width {
                sums[i] += f64::from(dy[i]) * f64::from(x[i] * inverse);
            }
        }
    }
}
