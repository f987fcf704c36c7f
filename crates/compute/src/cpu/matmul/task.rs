//! What a task of a product starts from, where it writes, and what finishes it.

use super::view::{Mat, MatMut};
use std::ops::Range;

/// Panels after which a block is finished: still in the cache, and long enough rows to be worth a call.
pub(super) const FINISH_PANELS: usize = 8;

/// What the sums of a product start from.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// Zero: the destination is overwritten.
    Zero,
    /// What the destination holds: the product is added to it.
    Keep,
    /// One row, the same for all.
    Bias(&'a [f32]),
    /// A matrix of the destination's shape.
    Residual(Mat<'a>),
    /// Both.
    BiasAndResidual(&'a [f32], Mat<'a>),
}

/// What happens to a finished block while it is still in the cache: called with the first row, the
/// first column, and one row's segment at a time.
pub type Finish<'a> = &'a (dyn Fn(usize, usize, &mut [f32]) + Sync);

/// The destination's first element and row distance, shared between tasks that write disjoint parts.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    pub start: *mut f32,
    pub stride: usize,
    pub cols: usize,
}

// SAFETY: tasks write disjoint elements; see `multiply`.
unsafe impl Send for Destination {}
// SAFETY: as above.
unsafe impl Sync for Destination {}

/// Finishes some columns of some rows.
///
/// # Safety
/// They must be inside the destination and used by nobody else.
pub(super) unsafe fn finish_rows(
    finish: Finish<'_>,
    c: Destination,
    rows: Range<usize>,
    columns: Range<usize>,
) {
    for row in rows {
        // SAFETY: the caller vouches for these columns of this row.
        let segment = unsafe {
            let start = c.start.add(row * c.stride + columns.start);
            std::slice::from_raw_parts_mut(start, columns.len())
        };
        finish(row, columns.start, segment);
    }
}

/// The kernel reads what sums start from without checking bounds, so they are checked here.
pub(super) fn check_start(c: &MatMut<'_>, start: &Start<'_>) {
    let (bias, residual) = match *start {
        Start::Zero | Start::Keep => (None, None),
        Start::Bias(bias) => (Some(bias), None),
        Start::Residual(residual) => (None, Some(residual)),
        Start::BiasAndResidual(bias, residual) => (Some(bias), Some(residual)),
    };
    assert!(bias.is_none_or(|bias| bias.len() >= c.cols), "a bias has one number per column");
    let covers = |from: Mat<'_>| {
        from.rows >= c.rows && from.cols >= c.cols && (from.col_stride == 1 || c.cols <= 1)
    };
    assert!(residual.is_none_or(covers), "a residual covers the destination");
}

pub(super) const NOTHING: (*const f32, usize) = (std::ptr::null(), 0);

pub(super) fn starts(
    start: &Start<'_>,
    row: usize,
    column: usize,
    destination: (*mut f32, usize),
) -> [(*const f32, usize); 2] {
    let bias = |bias: &[f32]| (bias[column..].as_ptr(), 0);
    let residual =
        |from: &Mat<'_>| (from.data[row * from.row_stride + column..].as_ptr(), from.row_stride);
    match start {
        Start::Zero => [NOTHING, NOTHING],
        Start::Keep => [(destination.0.cast_const(), destination.1), NOTHING],
        Start::Bias(row) => [bias(row), NOTHING],
        Start::Residual(from) => [residual(from), NOTHING],
        Start::BiasAndResidual(row, from) => [bias(row), residual(from)],
    }
}

/// Part `index` of `total` items cut into `parts` nearly equal runs.
pub(super) fn share(total: usize, parts: usize, index: usize) -> Range<usize> {
    let (base, extra) = (total / parts, total % parts);
    let start = index * base + index.min(extra);
    start..start + base + usize::from(index < extra)
}
