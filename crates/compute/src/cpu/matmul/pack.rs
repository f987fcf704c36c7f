//! Copies of operands in the order the kernel reads them.
//!
//! The right operand becomes panels of [`WIDTH`] columns, `panel[k * WIDTH + c]`, padded with zeros;
//! the left operand becomes panels of up to [`HEIGHT`](super::kernel::HEIGHT) rows,
//! `panel[k * h + r]`. Packing costs one pass; in exchange the kernel reads both as two streams.

use super::kernel::WIDTH;
use super::transpose::{ROWS, transpose};
use super::view::Mat;
use crate::cpu::simd::vectorised;

/// Floats that `depth` x `cols` take when packed as a right operand.
pub fn right_len(depth: usize, cols: usize) -> usize {
    cols.div_ceil(WIDTH) * WIDTH * depth
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

vectorised! {
    /// `into[k * WIDTH + c] = from[k * stride + c]`, zero for `c >= width`.
    fn copy_rows(into: &mut [f32], from: &[f32], stride: usize, width: usize) {
        for (k, row) in into.chunks_exact_mut(WIDTH).enumerate() {
            let source = &from[k * stride..];
            if width == WIDTH {
                row.copy_from_slice(&source[..WIDTH]);
            } else {
                row[..width].copy_from_slice(&source[..width]);
                row[width..].fill(0.0);
            }
        }
    }
}

/// Packs `height` rows of `a` from `first`, columns `depth`, into `into[k * height + r]`.
///
/// When `sums` is given, adds to `sums[r]` the sum of row `r` over these columns: that is the bias
/// gradient, free while the row passes through.
pub fn left_panel(
    into: &mut [f32],
    a: Mat<'_>,
    rows: std::ops::Range<usize>,
    depth: std::ops::Range<usize>,
    sums: Option<&mut [f32]>,
) {
    let height = rows.len();
    debug_assert_eq!(into.len(), height * depth.len());
    if a.row_stride == 1 {
        let from = &a.data[depth.start * a.col_stride + rows.start..];
        copy_columns(into, from, a.col_stride, height);
    } else {
        let from = &a.data[rows.start * a.row_stride + depth.start..];
        transpose(into, height, from, a.row_stride, (height, depth.len()));
    }
    if let Some(sums) = sums {
        for column in into.chunks_exact(height) {
            for (sum, x) in sums.iter_mut().zip(column) {
                *sum += x;
            }
        }
    }
}

vectorised! {
    /// `into[k * height + r] = from[k * stride + r]`.
    fn copy_columns(into: &mut [f32], from: &[f32], stride: usize, height: usize) {
        for (k, column) in into.chunks_exact_mut(height).enumerate() {
            column.copy_from_slice(&from[k * stride..][..height]);
        }
    }
}
