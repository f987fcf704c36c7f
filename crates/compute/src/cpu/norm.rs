//! Layer norm and root-mean-square norm: one kernel, with or without centring.
//!
//! ```text
//! forward   n = (x - m) r      y = n * weight + bias      r = 1 / sqrt(var + eps)
//! backward  h = dy * weight    dx = r (h - mean h - n mean(h n))     (RMS: m = 0, no mean h)
//! ```

use super::math;
use super::shared::Shared;
use super::simd::vectorised;
use crate::pool::Pool;
use crate::thread_pool;

/// Rows per task; partial sums of weight gradients are kept per task and added in order.
const ROWS: usize = 64;

/// Lanes of a row's sums.
const LANES: usize = 16;

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Subtracts the mean.
    Layer,
    /// Divides by the root mean square.
    Root,
}

/// Normalises each row; `stats` receives mean and reciprocal deviation per row.
pub fn forward(
    kind: Kind,
    epsilon: f32,
    x: &[f32],
    (weight, bias): (&[f32], Option<&[f32]>),
    y: &mut [f32],
    stats: &mut [f32],
) {
    let width = weight.len();
    let stats = Shared::new(stats);
    thread_pool::each_chunk(y, width * ROWS, |task, y| {
        let first = task * ROWS;
        // SAFETY: each task writes the two numbers of each of its own rows.
        let stats = unsafe { stats.segment(2 * first, 2 * y.len() / width) };
        forward_rows(kind, epsilon, &x[first * width..], weight, bias, y, stats);
    });
}

vectorised! {
    fn forward_rows(
        kind: Kind,
        epsilon: f32,
        x: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        y: &mut [f32],
        stats: &mut [f32],
    ) {
        let width = weight.len();
        let bias = bias.map(|bias| &bias[..width]);
        let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
        for ((x, y), stats) in rows.zip(stats.chunks_exact_mut(2)) {
            let (x, y) = (&x[..width], &mut y[..width]);
            let mean = match kind {
                Kind::Layer => math::sum(x) / width as f32,
                Kind::Root => 0.0,
            };
            for i in 0..width {
                y[i] = x[i] - mean;
            }
            let inverse = 1.0 / (math::dot(y, y) / width as f32 + epsilon).sqrt();
            match bias {
                Some(bias) => {
                    for i in 0..width {
                        y[i] = (y[i] * inverse).mul_add(weight[i], bias[i]);
                    }
                }
                None => {
                    for i in 0..width {
                        y[i] = y[i] * inverse * weight[i];
                    }
                }
            }
            stats.copy_from_slice(&[mean, inverse]);
        }
    }
}

/// What backward starts from.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    pub x: &'a [f32],
    /// Mean and reciprocal deviation per row.
    pub stats: &'a [f32],
    pub weight: &'a [f32],
}

/// The gradients that backward is to write.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The input's gradient, and whether to add to what is there.
    pub x: Option<(&'a mut [f32], bool)>,
    /// Gradients of weight and bias (overwritten), each one row.
    pub weights: Option<[&'a mut [f32]; 2]>,
}

/// Floats of partial sums in the gradients of a norm's weights.
pub fn partial_len(rows: usize, width: usize) -> usize {
    rows.div_ceil(ROWS) * 2 * width
}

/// Gradients of a norm.
pub fn backward(pool: &Pool, kind: Kind, saved: Saved<'_>, dy: &[f32], wanted: Wanted<'_>) {
    let width = saved.weight.len();
    let tasks = dy.len().div_ceil(width * ROWS);
    let partial_len = partial_len(dy.len() / width, width);
    let mut partial = pool.zeros(if wanted.weights.is_some() { partial_len } else { 0 });
    let sums_len = partial.len() / tasks.max(1);
    let sums = Shared::new(&mut partial);
    let (dx, keep) = match wanted.x {
        Some((dx, keep)) => (Some(Shared::new(dx)), keep),
        None => (None, false),
    };
    thread_pool::each(tasks, |task| {
        let first = task * ROWS * width;
        let len = (ROWS * width).min(dy.len() - first);
        // SAFETY: each task has rows and partial sums of its own.
        let (dx, sums) = unsafe {
            (dx.map(|dx| dx.segment(first, len)), sums.segment(task * sums_len, sums_len))
        };
        let rows = 2 * first / width..2 * (first + len) / width;
        let part = Saved { x: &saved.x[first..first + len], stats: &saved.stats[rows], ..saved };
        if let Some(dx) = dx {
            input_rows(kind, part, &dy[first..first + len], dx, keep);
        }
        if !sums.is_empty() {
            weight_rows(part, &dy[first..first + len], sums);
        }
    });
    for (half, into) in wanted.weights.into_iter().flatten().enumerate() {
        into.fill(0.0);
        for sums in partial.chunks_exact(width).skip(half).step_by(2) {
            for (into, sum) in into.iter_mut().zip(sums) {
                *into += sum;
            }
        }
    }
}

vectorised! {
    fn input_rows(kind: Kind, saved: Saved<'_>, dy: &[f32], dx: &mut [f32], keep: bool) {
        let width = saved.weight.len();
        let rows = saved.x.chunks_exact(width).zip(saved.stats.chunks_exact(2));
        let gradients = dy.chunks_exact(width).zip(dx.chunks_exact_mut(width));
        for ((x, stats), (dy, dx)) in rows.zip(gradients) {
            let (mean, inverse) = (stats[0], stats[1]);
            let (mut h_sum, mut hn_sum) = ([0f32; LANES], [0f32; LANES]);
            let (x, dy, weight) = (&x[..width], &dy[..width], &saved.weight[..width]);
            let mut first = 0;
            while first < width {
                for lane in 0..LANES.min(width - first) {
                    let i = first + lane;
                    let h = dy[i] * weight[i];
                    h_sum[lane] += h;
                    hn_sum[lane] = h.mul_add((x[i] - mean) * inverse, hn_sum[lane]);
                }
                first += LANES;
            }
            let h_mean = match kind {
                Kind::Layer => math::sum(&h_sum) / width as f32,
                Kind::Root => 0.0,
            };
            let hn_mean = math::sum(&hn_sum) / width as f32;
            let slope = |i: usize| {
                inverse * (dy[i] * weight[i] - h_mean - (x[i] - mean) * inverse * hn_mean)
            };
            let dx = &mut dx[..width];
            for (i, dx) in dx.iter_mut().enumerate() {
                *dx = if keep { *dx + slope(i) } else { slope(i) };
            }
        }
    }
}

vectorised! {
    fn weight_rows(saved: Saved<'_>, dy: &[f32], sums: &mut [f32]) {
        let width = saved.weight.len();
        let (weight_sums, bias_sums) = sums.split_at_mut(width);
        let rows = saved.x.chunks_exact(width).zip(saved.stats.chunks_exact(2));
        for ((x, stats), dy) in rows.zip(dy.chunks_exact(width)) {
            for i in 0..width {
                let n = (x[i] - stats[0]) * stats[1];
                weight_sums[i] = dy[i].mul_add(n, weight_sums[i]);
                bias_sums[i] += dy[i];
            }
        }
    }
}
