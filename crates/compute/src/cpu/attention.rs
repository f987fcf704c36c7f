//! Scaled dot-product attention over packed sequences, one task per sequence and key head.
//!
//! Scores exist for one tile of queries at a time. Forward keeps the logarithm of each row's sum;
//! backward recomputes the probabilities from it, so no length-squared matrix outlives its tile.
//! Query heads that share a key head are handled by the same task, so their gradients add in a
//! fixed order. A window cuts a sequence into pieces of one tile each, with the keys that the tile sees.
//!
//! ```text
//! P = exp(s Q K^T - L)    O = P V    L = log-sum-exp of the row
//! dP = dO V^T    dS = s P * (dP - rowsum(P * dP))    dQ = dS K    dK = dS^T Q    dV = P^T dO
//! ```
//!
//! With a cap `c`, `s Q K^T` becomes `c t` with `t = tanh(s Q K^T / c)`, and `dS` is multiplied by `1 - t^2`.

use super::attention_inputs::{Columns, Inputs, group, softmax};
use super::bf16_products::Products;
use super::cached_attention;
use super::math;
use super::matmul::{Mat, MatMut, Right, Start, multiply_serial, serial_len};
use super::shared::Shared;
use super::simd::vectorised;
use crate::geometry::{Attention, Mask, Span};
use crate::pool::{Buffer, Pool};
use crate::thread_pool::{self, ThreadPool};
use std::ops::Range;

/// Queries per tile.
const TILE: usize = 128;
/// Queries per tile with a mask or a window: smaller, because a tile computes all keys that one of its
/// queries sees.
const MASKED_TILE: usize = 56;

/// Weights of a probe: how much each query row and each key row counts.
#[derive(Debug)]
pub struct ProbeWeights<'a> {
    /// One per query row.
    pub queries: &'a [f32],
    /// One per key row.
    pub keys: &'a [f32],
    /// Receives by key head and key row `sum over its heads, i of q_i P_ij`, whatever the keys' weights.
    pub received: Option<&'a mut [f32]>,
}

/// Where the columns of a result start, for writing heads from many tasks.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub data: Shared<'a>,
    /// Row length of the tensor.
    pub stride: usize,
    pub column: usize,
}

impl<'a> Target<'a> {
    /// # Safety
    /// No other task may touch these rows of this head.
    unsafe fn head(&self, rows: Range<usize>, head: usize, width: usize) -> MatMut<'a> {
        let first = rows.start * self.stride + self.column + head * width;
        let len = (rows.len().max(1) - 1) * self.stride + width;
        // SAFETY: `pointer` checks the bounds; the caller keeps heads apart.
        unsafe { MatMut::from_raw(self.data.pointer(first, len), (rows.len(), width), self.stride) }
    }
}

/// Attention forward: `out` is queries by heads; `log_sums` likewise when backward will follow.
///
/// With a probe, returns per span and key head the weighted attention `sum over its heads, i, j of
/// q_i P_ij k_j`.
pub fn forward(
    pool: &Pool,
    (geometry, spans): (Attention, &[Span]),
    inputs: Inputs<'_>,
    (out, log_sums): (&mut [f32], Option<&mut [f32]>),
    probe: Option<ProbeWeights<'_>>,
) -> Vec<f64> {
    if log_sums.is_none() && probe.is_none() && cached_attention::applies(geometry, spans) {
        cached_attention::forward(pool, (geometry, spans), inputs, out);
        return Vec::new();
    }
    let (heads, width) = (geometry.heads, geometry.width);
    let out = Target { data: Shared::new(out), stride: heads * width, column: 0 };
    let log_sums = log_sums.map(Shared::new);
    let (probe, received) = match probe {
        None => (None, None),
        Some(ProbeWeights { queries, keys, received }) => {
            (Some((queries, keys)), received.map(Shared::new))
        }
    };
    let mut masses = vec![0.0; spans.len() * geometry.kv_heads];
    thread_pool::each_chunk(&mut masses, 1, |task, mass| {
        let (span, kv_head) = part(geometry, spans, task);
        let mut work = Workspace::new(pool, geometry, span, Pass::Forward);
        let [k, v] = inputs.of_span(task / geometry.kv_heads);
        for span in &pieces(geometry, span) {
            work.keys.repack(k.head(span.keys.clone(), kv_head, width).t());
            work.values.repack(v.head(span.keys.clone(), kv_head, width));
            for (head, tile) in tiles_by_head(geometry, span, kv_head) {
                let rows = span.queries.start + tile.start..span.queries.start + tile.end;
                let seen = geometry.visible(span, tile.end - 1).end;
                let scores = &mut work.scores[..tile.len() * seen];
                let q = inputs.q.head(rows.clone(), head, width);
                let scores_mut = MatMut::new(scores, tile.len(), seen);
                multiply_serial(scores_mut, q, &work.keys, Start::Zero, &mut work.scratch);
                let scores = &mut work.scores[..tile.len() * seen];
                // SAFETY: this task alone writes these rows of this head.
                let mut out = unsafe { out.head(rows.clone(), head, width) };
                for (i, row) in scores.chunks_exact_mut(seen).enumerate() {
                    let visible = geometry.visible(span, tile.start + i);
                    let (max, sum) = softmax(geometry, row, visible);
                    work.sums[i] = sum;
                    if let Some(log_sums) = log_sums {
                        let place = (rows.start + i) * heads + head;
                        // SAFETY: one number per query row and head, written here alone.
                        unsafe { log_sums.segment(place, 1)[0] = max + sum.ln() };
                    }
                    if let Some((queries, keys)) = probe {
                        let weight = f64::from(queries[rows.start + i] / sum);
                        let counted = &keys[span.keys.start..][..seen];
                        mass[0] += weight * f64::from(inner_product(row, counted));
                        if let Some(received) = received {
                            let first = kv_head * keys.len() + span.keys.start;
                            // SAFETY: this task alone writes these keys of this key head.
                            let into = unsafe { received.segment(first, seen) };
                            into.iter_mut()
                                .zip(&*row)
                                .for_each(|(sum, p)| *sum += weight as f32 * p);
                        }
                    }
                }
                let p = Mat::new(scores, tile.len(), seen);
                multiply_serial(
                    out.first_rows(tile.len()),
                    p,
                    &work.values,
                    Start::Zero,
                    &mut work.scratch,
                );
                for i in 0..tile.len() {
                    let inverse = 1.0 / work.sums[i];
                    for x in out.row_mut(i) {
                        *x *= inverse;
                    }
                }
            }
        }
    });
    if probe.is_some() { masses } else { Vec::new() }
}

/// Attention backward: writes the gradients of queries, keys and values.
pub fn backward(
    pool: &Pool,
    (geometry, spans): (Attention, &[Span]),
    inputs: Inputs<'_>,
    (log_sums, dout): (&[f32], &[f32]),
    into: [Target<'_>; 3],
) {
    let (heads, width) = (geometry.heads, geometry.width);
    let dout = Columns { data: dout, stride: heads * width, column: 0 };
    let [dq, dk, dv] = into;
    thread_pool::each(spans.len() * geometry.kv_heads, |task| {
        let (span, kv_head) = part(geometry, spans, task);
        let mut work = Workspace::new(pool, geometry, span, Pass::Backward);
        let [k, v] = inputs.of_span(task / geometry.kv_heads);
        // Sums over tiles and heads start in the first tile if it sees every key.
        let mut sums = Start::Zero;
        if geometry.mask == Mask::Causal || geometry.narrow_window(span).is_some() {
            sums = Start::Keep;
            for target in [dk, dv] {
                // SAFETY: this task alone writes this key head's rows.
                let mut rows = unsafe { target.head(span.keys.clone(), kv_head, width) };
                (0..span.keys.len()).for_each(|row| rows.row_mut(row).fill(0.0));
            }
        }
        for span in &pieces(geometry, span) {
            let keys = k.head(span.keys.clone(), kv_head, width);
            work.keys.repack(keys.t());
            work.values.repack(v.head(span.keys.clone(), kv_head, width).t());
            let key_rows = Right::rows(pool, keys);
            // SAFETY: as above.
            let [mut dk, mut dv] =
                [dk, dv].map(|to| unsafe { to.head(span.keys.clone(), kv_head, width) });
            for (head, tile) in tiles_by_head(geometry, span, kv_head) {
                let rows = span.queries.start + tile.start..span.queries.start + tile.end;
                let seen = geometry.visible(span, tile.end - 1).end;
                let q = inputs.q.head(rows.clone(), head, width);
                let dout = dout.head(rows.clone(), head, width);
                let scores = &mut work.scores[..tile.len() * seen];
                let into = MatMut::new(scores, tile.len(), seen);
                multiply_serial(into, q, &work.keys, Start::Zero, &mut work.scratch);
                let slopes = &mut work.slopes[..tile.len() * seen];
                let into = MatMut::new(slopes, tile.len(), seen);
                multiply_serial(into, dout, &work.values, Start::Zero, &mut work.scratch);
                let p = &mut work.scores[..tile.len() * seen];
                let ds = &mut work.slopes[..tile.len() * seen];
                let both = p.chunks_exact_mut(seen).zip(ds.chunks_exact_mut(seen));
                for (i, (p, ds)) in both.enumerate() {
                    let visible = geometry.visible(span, tile.start + i);
                    let log_sum = log_sums[(rows.start + i) * heads + head];
                    softmax_backward(geometry, p, ds, visible, log_sum);
                }
                let (p, ds) = (Mat::new(p, tile.len(), seen), Mat::new(ds, tile.len(), seen));
                let (query_rows, dout_rows) = (Right::rows(pool, q), Right::rows(pool, dout));
                let scratch = &mut work.scratch;
                // SAFETY: this task alone writes these rows of this head.
                let dq = unsafe { dq.head(rows.clone(), head, width) };
                multiply_serial(dq, ds, &key_rows, Start::Zero, scratch);
                multiply_serial(dk.first_rows(seen), ds.t(), &query_rows, sums, scratch);
                multiply_serial(dv.first_rows(seen), p.t(), &dout_rows, sums, scratch);
                sums = Start::Keep;
            }
        }
    });
}

/// Which way attention is gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    Forward,
    Backward,
}

/// The buffers that the tasks of a pass work with at a time, if each has the longest span.
pub fn workspace(
    products: Products,
    (geometry, spans): (Attention, &[Span]),
    pass: Pass,
) -> Vec<usize> {
    let width = geometry.width;
    let longest = spans.iter().max_by_key(|span| span.keys.len());
    let Some(longest) = longest else { return Vec::new() };
    let mut one = Workspace::lengths(products, geometry, longest, pass).to_vec();
    if pass == Pass::Backward {
        let (keys, tile) = (most_keys(geometry, longest), tile_len(geometry, longest));
        let rows = |count| Right::rows_len(products, (count, width), (width + 1, 1));
        one.extend([keys, tile, tile].map(rows).into_iter().filter(|len| *len > 0));
    }
    one.repeat(ThreadPool::current_threads().min(spans.len() * geometry.kv_heads))
}

/// One task's memory.
struct Workspace {
    keys: Right<'static>,
    values: Right<'static>,
    scores: Buffer,
    slopes: Buffer,
    scratch: Buffer,
    sums: [f32; TILE],
}

impl Workspace {
    fn new(pool: &Pool, geometry: Attention, span: &Span, pass: Pass) -> Self {
        let [keys, values, scores, slopes, scratch] =
            Self::lengths(pool.products(), geometry, span, pass);
        Self {
            keys: Right::empty(pool, keys),
            values: Right::empty(pool, values),
            scores: pool.take(scores),
            slopes: pool.take(slopes),
            scratch: pool.take(scratch),
            sums: [0.0; TILE],
        }
    }

    /// Floats of each buffer.
    fn lengths(products: Products, geometry: Attention, span: &Span, pass: Pass) -> [usize; 5] {
        let (width, keys, tile) =
            (geometry.width, most_keys(geometry, span), tile_len(geometry, span));
        let turned = Right::beside_len(products, width, [keys]);
        // In f32, rows that run along the depth are not packed.
        let along = |depth, cols| match products {
            Products::F32 => 0,
            Products::Bf16(_) => serial_len(products, tile, depth, cols),
        };
        let packed = along(width, keys).max(along(keys, width));
        match pass {
            Pass::Forward => {
                let values = Right::beside_len(products, keys, [width]);
                [turned, values, tile * keys, 0, packed]
            }
            Pass::Backward => {
                let packed = packed.max(serial_len(products, keys, tile, width));
                [turned, turned, tile * keys, tile * keys, packed]
            }
        }
    }
}

/// The sequence and the key head of a task.
fn part(geometry: Attention, spans: &[Span], task: usize) -> (&Span, usize) {
    (&spans[task / geometry.kv_heads], task % geometry.kv_heads)
}

/// A span's parts that are attended to one after another: itself, or with a window each tile of queries
/// with the keys that it sees.
fn pieces(geometry: Attention, span: &Span) -> Vec<Span> {
    if geometry.narrow_window(span).is_none() {
        return vec![span.clone()];
    }
    let piece = |tile: Range<usize>| {
        let first = geometry.visible(span, tile.start).start;
        let end = geometry.visible(span, tile.end - 1).end;
        Span {
            queries: span.queries.start + tile.start..span.queries.start + tile.end,
            keys: span.keys.start + first..span.keys.start + end,
            offset: span.offset + tile.start - first,
        }
    };
    tiles(geometry, span).map(piece).collect()
}

/// Keys of a span's longest piece, at most.
fn most_keys(geometry: Attention, span: &Span) -> usize {
    let all = span.keys.len();
    let Some(distance) = geometry.narrow_window(span) else { return all };
    let sides = match geometry.mask {
        Mask::Bidirectional => 2,
        Mask::Causal => 1,
    };
    all.min(sides * distance + tile_len(geometry, span))
}

/// The tiles of each query head that reads a key head.
fn tiles_by_head(
    geometry: Attention,
    span: &Span,
    kv_head: usize,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let heads = group(geometry, kv_head);
    heads.flat_map(move |head| tiles(geometry, span).map(move |tile| (head, tile)))
}

fn tiles(geometry: Attention, span: &Span) -> impl Iterator<Item = Range<usize>> + use<> {
    let (count, size) = (span.queries.len(), tile_len(geometry, span));
    (0..count).step_by(size.max(1)).map(move |first| first..count.min(first + size))
}

/// Queries of a span's longest tile.
fn tile_len(geometry: Attention, span: &Span) -> usize {
    let most = match (geometry.mask, geometry.narrow_window(span)) {
        (Mask::Bidirectional, None) => TILE,
        (Mask::Bidirectional, Some(_)) | (Mask::Causal, _) => MASKED_TILE,
    };
    most.min(span.queries.len())
}

/// Turns scores into probabilities and the gradient of probabilities into that of scores.
fn softmax_backward(
    geometry: Attention,
    p: &mut [f32],
    ds: &mut [f32],
    visible: Range<usize>,
    log_sum: f32,
) {
    let (p, p_hidden) = p.split_at_mut(visible.end);
    let (ds, ds_hidden) = ds.split_at_mut(visible.end);
    let (p_before, p) = p.split_at_mut(visible.start);
    let (ds_before, ds) = ds.split_at_mut(visible.start);
    for hidden in [p_before, p_hidden, ds_before, ds_hidden] {
        if !hidden.is_empty() {
            hidden.fill(0.0);
        }
    }
    match geometry.soft_cap {
        None => scaled_softmax_backward(p, ds, geometry.scale, log_sum),
        Some(cap) => capped_softmax_backward(p, ds, geometry.scale, cap, log_sum),
    }
}

vectorised! {
    fn scaled_softmax_backward(p: &mut [f32], ds: &mut [f32], scale: f32, log_sum: f32) {
        for x in p.iter_mut() {
            *x = math::exp(x.mul_add(scale, -log_sum));
        }
        let mean = math::dot(p, ds);
        let visible = p.len();
        let ds = &mut ds[..visible];
        for i in 0..visible {
            ds[i] = (ds[i] - mean) * (p[i] * scale);
        }
    }
}

vectorised! {
    /// The same with a cap. Only the hyperbolic tangents fit in the scores' place until the mean is
    /// known, so that exponentials are computed twice.
    fn capped_softmax_backward(p: &mut [f32], ds: &mut [f32], scale: f32, cap: f32, log_sum: f32) {
        for x in p.iter_mut() {
            *x = math::tanh(*x * (scale / cap));
        }
        let mean = math::dot_of(p, ds, |t| math::exp(t.mul_add(cap, -log_sum)));
        let visible = p.len();
        let ds = &mut ds[..visible];
        for i in 0..visible {
            let t = p[i];
            p[i] = math::exp(t.mul_add(cap, -log_sum));
            ds[i] = (ds[i] - mean) * (p[i] * scale) * t.mul_add(-t, 1.0);
        }
    }
}

vectorised! {
    fn inner_product(x: &[f32], y: &[f32]) -> f32 {
        math::dot(x, y)
    }
}
