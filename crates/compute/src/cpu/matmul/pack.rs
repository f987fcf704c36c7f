//! Copies of operands in the order the kernel reads them.
//!
//! The right operand becomes panels of [`WIDTH`] columns, `panel[k * WIDTH + c]`, padded with zeros;
//! a left operand whose rows do not run along the depth becomes strips of up to
//! [`HEIGHT`](super::kernel::HEIGHT) rows, `strip[k * h + r]`. Packing costs one pass; in exchange the
//! kernel reads both as two streams.

use super::kernel::WIDTH;
use super::moves::{ROWS, cut_strips, transpose};
use super::view::Mat;
use super::{tile, tile_pack};
use crate::cpu::bf16_products::Products;
use crate::cpu::simd::vectorised;
use crate::thread_pool;
use std::ops::Range;

/// Floats that `depth` x `cols` take when packed as a right operand.
pub fn right_len(products: Products, depth: usize, cols: usize) -> usize {
    cols.div_ceil(WIDTH) * panel_len(products, depth)
}

/// Floats of one panel.
pub fn panel_len(products: Products, depth: usize) -> usize {
    match products {
        Products::F32 => WIDTH * depth,
        Products::Bf16(_) => tile_pack::blocks(depth) * tile::WORDS,
    }
}

/// Packs one panel of matrices that are on top of each other.
pub fn stacked_panel(products: Products, into: &mut [f32], parts: &[Mat<'_>], panel: usize) {
    if let Products::Bf16(_) = products {
        return tile_pack::right_panel(into.as_chunks_mut().0, parts, panel);
    }
    let mut rest = into;
    for part in parts {
        let (now, later) = rest.split_at_mut(part.rows * WIDTH);
        right_panel(now, *part, panel);
        rest = later;
    }
}

/// Packs columns `panel * WIDTH ..` of `b`, rows `0 .. b.rows`, into one panel.
pub fn right_panel(into: &mut [f32], b: Mat<'_>, panel: usize) {
    let first = panel * WIDTH;
    let width = WIDTH.min(b.cols - first);
    debug_assert_eq!(into.len(), b.rows * WIDTH);
    if b.col_stride == 1 {
        copy_rows(into, &b.data[first..], b.row_stride, width);
    } else {
        if width < WIDTH {
            into.fill(0.0);
        }
        for half in (0..width).step_by(ROWS) {
            let from = &b.data[(first + half) * b.col_stride..];
            let rows = ROWS.min(width - half);
            transpose(&mut into[half..], WIDTH, from, b.col_stride, (rows, b.rows));
        }
    }
}

/// `into`, which has rows of `cols`, becomes the transpose of `from`.
pub fn transpose_into(into: &mut [f32], cols: usize, from: &[f32]) {
    const TALL: usize = 4 * ROWS;
    assert_eq!(into.len(), from.len(), "a transpose has as many numbers");
    let rows = into.len() / cols.max(1);
    thread_pool::each_chunk(into, TALL * cols, |task, into| {
        for first in (0..cols).step_by(ROWS) {
            let from = &from[first * rows + task * TALL..];
            let shape = (ROWS.min(cols - first), into.len() / cols);
            transpose(&mut into[first..], cols, from, rows, shape);
        }
    });
}

vectorised! {
    /// `into[k * WIDTH + c] = from[k * stride + c]`, zero for `c >= width`.
    fn copy_rows(into: &mut [f32], from: &[f32], stride: usize, width: usize) {
        for (k, row) in into.chunks_exact_mut(WIDTH).enumerate() {
            let source = &from[k * stride..][..width];
            if let Ok(source) = <&[f32; WIDTH]>::try_from(source) {
                // A copy of known size is four instructions instead of a call.
                row.copy_from_slice(source);
            } else {
                row[..width].copy_from_slice(source);
                row[width..].fill(0.0);
            }
        }
    }
}

/// Packs rows of `a`, which do not run along the depth, into strips; see [`cut_strips`].
pub fn left_strips(
    into: &mut [f32],
    a: Mat<'_>,
    first: usize,
    (strips, depth): (&[usize], Range<usize>),
    sums: Option<&mut [f32]>,
) {
    debug_assert_eq!(a.row_stride, 1, "other operands are read in place");
    let from = &a.data[depth.start * a.col_stride + first..];
    cut_strips(into, from, a.col_stride, (strips, depth.len()), sums);
}
