//! What both kinds of attention read, and what they share.

use super::math;
use super::matmul::Mat;
use super::simd::vectorised;
use crate::geometry::Attention;
use std::ops::Range;

/// Queries, keys or values: columns of a row-major tensor.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    pub data: &'a [f32],
    /// Row length of the tensor.
    pub stride: usize,
    pub column: usize,
}

impl<'a> Columns<'a> {
    /// One head of some rows.
    pub fn head(&self, rows: Range<usize>, head: usize, width: usize) -> Mat<'a> {
        let first = rows.start * self.stride + self.column + head * width;
        Mat::strided(&self.data[first..], rows.len(), width, self.stride)
    }

    /// Some heads of one row, each a row of the result.
    pub fn heads(&self, row: usize, heads: Range<usize>, width: usize) -> Mat<'a> {
        let first = row * self.stride + self.column + heads.start * width;
        Mat::new(&self.data[first..], heads.len(), width)
    }
}

/// What attention reads.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub q: Columns<'a>,
    /// Keys and values: one pair for all spans, or one for each (a cache per sequence).
    pub keys_values: &'a [[Columns<'a>; 2]],
}

impl<'a> Inputs<'a> {
    /// Keys and values of a span.
    pub fn of_span(&self, span: usize) -> [Columns<'a>; 2] {
        match self.keys_values {
            [all] => *all,
            each => each[span],
        }
    }
}

/// Query heads that share a key head.
#[inline]
pub fn group(geometry: Attention, kv_head: usize) -> Range<usize> {
    let size = geometry.heads / geometry.kv_heads;
    kv_head * size..(kv_head + 1) * size
}

/// Turns the visible scores into unnormalised probabilities and the others into zeros; returns the
/// scaled maximum and the sum.
pub fn softmax(geometry: Attention, row: &mut [f32], visible: Range<usize>) -> (f32, f32) {
    let scale = match geometry.soft_cap {
        None => geometry.scale,
        Some(cap) => {
            math::soft_cap(&mut row[visible.clone()], geometry.scale, cap);
            1.0
        }
    };
    scaled_softmax(row, visible, scale)
}

vectorised! {
    fn scaled_softmax(row: &mut [f32], visible: Range<usize>, scale: f32) -> (f32, f32) {
        let (row, hidden) = row.split_at_mut(visible.end);
        let (before, seen) = row.split_at_mut(visible.start);
        if !before.is_empty() {
            before.fill(0.0);
        }
        let max = math::max(seen) * scale;
        for x in seen.iter_mut() {
            *x = math::exp(x.mul_add(scale, -max));
        }
        hidden.fill(0.0);
        (max, math::sum(seen))
    }
}
