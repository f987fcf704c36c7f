//! Attention of one new token per sequence over what its cache holds: a decoder's step.
//!
//! The cache is read once, where it is. All query heads that share a key head read it together; the
//! scores are cut into tasks by keys, the sums over values by columns, because each sum is a chain
//! over all keys. So three key heads keep any number of threads busy, and every number is made by the
//! same chain as in [`attention`](super::attention): the bits are the same.

use super::attention_inputs::{Inputs, group, softmax};
use super::bf16_products::Products;
use super::matmul::{Mat, MatMut, Right, Start, has_few_rows, multiply_keys, multiply_serial};
use super::shared::Shared;
use crate::geometry::{Attention, Span};
use crate::pool::Pool;
use crate::thread_pool;
use std::ops::Range;

/// Keys of a task.
const KEYS: usize = 512;
/// Columns of values of a task: a panel of the product.
const COLUMNS: usize = 32;
/// Multiplications with keys below which threads cost more than they save.
const WORTH_THREADS: usize = 1 << 16;

/// Whether spans are those of a decoder's step: one query each, and few enough heads a key head.
pub fn applies(geometry: Attention, spans: &[Span]) -> bool {
    has_few_rows(geometry.heads / geometry.kv_heads)
        && spans.iter().all(|span| span.queries.len() == 1)
}

/// Attention of each span's one query; `out` is queries by heads.
pub fn forward(
    pool: &Pool,
    (geometry, spans): (Attention, &[Span]),
    inputs: Inputs<'_>,
    out: &mut [f32],
) {
    // A cache is read once, so bf16 would save nothing.
    let pool = &pool.with_products(Products::F32);
    let heads = geometry.heads;
    let sequences = sequences(geometry, spans);
    let scores_len = sequences.last().map_or(0, |last| last.scores + heads * last.seen);
    let (mut scores, mut sums) = (pool.take(scores_len), pool.take(spans.len() * heads));
    let work = Work {
        geometry,
        inputs,
        pool,
        scores: Shared::new(&mut scores),
        sums: Shared::new(&mut sums),
        out: Shared::new(out),
    };
    if scores_len * geometry.width < WORTH_THREADS {
        for sequence in &sequences {
            work.score(sequence, 0..sequence.seen);
            (0..heads).for_each(|head| work.normalise(sequence, head));
            for kv_head in 0..geometry.kv_heads {
                work.gather(sequence, kv_head, 0..geometry.width);
            }
        }
        return;
    }
    let pieces = |sequence: &Sequence<'_>| sequence.seen.div_ceil(KEYS);
    let keys: Vec<(usize, usize)> = sequences
        .iter()
        .enumerate()
        .flat_map(|(number, sequence)| (0..pieces(sequence)).map(move |piece| (number, piece)))
        .collect();
    thread_pool::each(keys.len(), |task| {
        let (number, piece) = keys[task];
        let sequence = &sequences[number];
        work.score(sequence, piece * KEYS..sequence.seen.min((piece + 1) * KEYS));
    });
    thread_pool::each(sequences.len() * heads, |task| {
        work.normalise(&sequences[task / heads], task % heads);
    });
    let columns = geometry.width.div_ceil(COLUMNS);
    let parts = geometry.kv_heads * columns;
    thread_pool::each(sequences.len() * parts, |task| {
        let (kv_head, column) = (task % parts / columns, task % columns * COLUMNS);
        let columns = column..geometry.width.min(column + COLUMNS);
        work.gather(&sequences[task / parts], kv_head, columns);
    });
}

/// One sequence of a step.
struct Sequence<'a> {
    number: usize,
    span: &'a Span,
    /// Rows of the keys that its query sees, and how many.
    keys: Range<usize>,
    seen: usize,
    /// Where its scores begin: a row of `seen` for each head.
    scores: usize,
}

fn sequences(geometry: Attention, spans: &[Span]) -> Vec<Sequence<'_>> {
    let mut scores = 0;
    let sequence = |(number, span)| {
        let visible = geometry.visible(span, 0);
        let (begin, seen) = (scores, visible.len());
        scores += geometry.heads * seen;
        let keys = span.keys.start + visible.start..span.keys.start + visible.end;
        Sequence { number, span, keys, seen, scores: begin }
    };
    spans.iter().enumerate().map(sequence).collect()
}

/// What the tasks share.
struct Work<'a> {
    geometry: Attention,
    inputs: Inputs<'a>,
    pool: &'a Pool,
    scores: Shared<'a>,
    /// One number per sequence and head.
    sums: Shared<'a>,
    out: Shared<'a>,
}

impl Work<'_> {
    /// Scores of all heads over some keys.
    fn score(&self, of: &Sequence<'_>, keys: Range<usize>) {
        let width = self.geometry.width;
        let [k, _] = self.inputs.of_span(of.number);
        for kv_head in 0..self.geometry.kv_heads {
            let heads = group(self.geometry, kv_head);
            let all = k.head(of.keys.clone(), kv_head, width);
            let q = self.inputs.q.heads(of.span.queries.start, heads.clone(), width);
            let first = of.scores + heads.start * of.seen;
            let into = self.scores.pointer(first, heads.len() * of.seen);
            // SAFETY: the pointer is that of a row of `seen` scores for each of these heads, and no
            // other task writes these keys' columns.
            unsafe { multiply_keys((into, of.seen), q, all, keys.clone()) };
        }
    }

    /// Turns the scores of a head into unnormalised probabilities.
    fn normalise(&self, of: &Sequence<'_>, head: usize) {
        // SAFETY: a task has the scores and the sum of this head to itself.
        let (row, sum) = unsafe {
            let row = self.scores.segment(of.scores + head * of.seen, of.seen);
            (row, self.sums.segment(of.number * self.geometry.heads + head, 1))
        };
        sum[0] = softmax(self.geometry, row, 0..of.seen).1;
    }

    /// Some columns of the attended values of the heads that share a key head.
    fn gather(&self, of: &Sequence<'_>, kv_head: usize, columns: Range<usize>) {
        let (heads, width) = (group(self.geometry, kv_head), self.geometry.width);
        let [_, v] = self.inputs.of_span(of.number);
        let values = v.head(of.keys.clone(), kv_head, width);
        let values = Right::streamed(self.pool, values.columns(columns.clone()));
        let first = of.span.queries.start * self.geometry.heads * width
            + heads.start * width
            + columns.start;
        let into = self.out.pointer(first, (heads.len() - 1) * width + columns.len());
        // SAFETY: the probabilities are written by now, and these columns of these heads are this
        // task's alone.
        let (p, sums, mut into) = unsafe {
            let first = of.scores + heads.start * of.seen;
            let p = self.scores.read(first, heads.len() * of.seen);
            let sums = self.sums.read(of.number * self.geometry.heads + heads.start, heads.len());
            (p, sums, MatMut::from_raw(into, (heads.len(), columns.len()), width))
        };
        let p = Mat::new(p, heads.len(), of.seen);
        let mut scratch = self.pool.take(0);
        multiply_serial(into.first_rows(heads.len()), p, &values, Start::Zero, &mut scratch);
        for (row, sum) in sums.iter().enumerate() {
            let inverse = 1.0 / sum;
            for x in into.row_mut(row) {
                *x *= inverse;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::attention;
    use crate::cpu::attention_inputs::Columns;
    use crate::geometry::Mask;
    use crate::{Seed, ThreadPool};

    #[test]
    fn a_step_has_the_bits_of_ordinary_attention_for_any_number_of_threads() {
        let long = if cfg!(miri) { 40 } else { 1100 };
        for (heads, kv_heads, width) in [(9, 3, 64), (4, 4, 8), (6, 1, 40), (8, 2, 33)] {
            for lengths in [&[1][..], &[long], &[17, 3, long / 2]] {
                let usual = Attention::new(heads, kv_heads, width, Mask::Causal);
                let geometry = match kv_heads {
                    1 => Attention { window: Some(100), soft_cap: Some(2.0), ..usual },
                    2 => Attention { window: Some(0), scale: 2.0, ..usual },
                    _ => usual,
                };
                let stride = 2 * kv_heads * width;
                let mut draw = Seed(5).generator();
                let mut numbers =
                    |len| -> Vec<f32> { (0..len).map(|_| draw.normal() as f32).collect() };
                let queries = numbers(lengths.len() * heads * width);
                let caches: Vec<_> =
                    lengths.iter().map(|length| numbers(length * stride)).collect();
                let columns = |data, column| Columns { data, stride, column };
                let keys_values: Vec<_> = caches
                    .iter()
                    .map(|data| [columns(data, 0), columns(data, kv_heads * width)])
                    .collect();
                let q = Columns { data: &queries, stride: heads * width, column: 0 };
                let inputs = Inputs { q, keys_values: &keys_values };
                let span = |(row, &length): (usize, &usize)| Span {
                    queries: row..row + 1,
                    keys: 0..length,
                    offset: length - 1,
                };
                let spans: Vec<_> = lengths.iter().enumerate().map(span).collect();
                let pool = Pool::new();
                let mut expected = vec![0.0; queries.len()];
                // Whoever wants the sums for a backward pass goes the ordinary way.
                let mut log_sums = vec![0.0; lengths.len() * heads];
                let into = (&mut expected[..], Some(&mut log_sums[..]));
                attention::forward(&pool, (geometry, &spans), inputs, into, None);
                for threads in [1, 2, 3] {
                    let mut found = vec![f32::NAN; queries.len()];
                    ThreadPool::new(threads).unwrap().install(|| {
                        let into = (&mut found[..], None);
                        attention::forward(&pool, (geometry, &spans), inputs, into, None);
                    });
                    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&found), bits(&expected), "{geometry:?} over {lengths:?}");
                }
            }
        }
    }
}
