//! A matrix seen through strides, so that a transpose is a view and a head is a view.

use crate::cpu::simd::vectorised;
use std::marker::PhantomData;
use std::ops::Range;

/// A read-only matrix over a slice: element `(r, c)` is `data[r * row_stride + c * col_stride]`.
///
/// Every element lies inside the slice: the constructors check it and nobody else makes one, so the
/// kernels may read without checking.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    pub(super) data: &'a [f32],
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

impl<'a> Mat<'a> {
    /// A dense row-major matrix.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// A row-major matrix whose rows are `row_stride` apart.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(fits((rows, cols), row_stride, data.len()), "a matrix lies inside its slice");
        Self { data, rows, cols, row_stride, col_stride: 1 }
    }

    /// Number of rows.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(self) -> usize {
        self.cols
    }

    /// One row of a row-major matrix.
    pub fn row(self, row: usize) -> &'a [f32] {
        assert_eq!(self.col_stride, 1, "only row-major matrices have rows in one piece");
        assert!(row < self.rows, "a row of a matrix is inside it");
        if self.cols == 0 { &[] } else { &self.data[row * self.row_stride..][..self.cols] }
    }

    /// Some rows of a row-major matrix.
    pub fn rows_of(self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.rows,
            "rows of a matrix are inside it"
        );
        assert_eq!(self.col_stride, 1, "only row-major matrices are cut by rows");
        let from = (range.start * self.row_stride).min(self.data.len());
        Self::strided(&self.data[from..], range.len(), self.cols, self.row_stride)
    }

    /// Some columns of a row-major matrix.
    pub fn columns(self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.cols,
            "columns of a matrix are inside it"
        );
        assert_eq!(self.col_stride, 1, "only row-major matrices are cut by columns");
        let from = range.start.min(self.data.len());
        Self::strided(&self.data[from..], self.rows, range.len(), self.row_stride)
    }

    /// Adds the sums of rows `first ..` over some columns to `sums`, column by column.
    pub fn add_row_sums(self, first: usize, columns: Range<usize>, sums: &mut [f32]) {
        if self.row_stride == 1 {
            let from = &self.data[columns.start * self.col_stride + first..];
            return add_rows(sums, from, self.col_stride, columns.len());
        }
        for (r, sum) in sums.iter_mut().enumerate() {
            let row = &self.data[(first + r) * self.row_stride + columns.start * self.col_stride..];
            for x in row.iter().step_by(self.col_stride).take(columns.len()) {
                *sum += x;
            }
        }
    }

    /// The transpose: the same numbers, rows and columns exchanged.
    pub fn t(self) -> Self {
        Self {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }
}

vectorised! {
    /// `sums[c] += from[k * stride + c]` for `count` runs `k`, in order.
    fn add_rows(sums: &mut [f32], from: &[f32], stride: usize, count: usize) {
        for k in 0..count {
            for (sum, x) in sums.iter_mut().zip(&from[k * stride..]) {
                *sum += x;
            }
        }
    }
}

/// Whether the last row, at this distance between rows, ends inside `len` numbers.
fn fits((rows, cols): (usize, usize), row_stride: usize, len: usize) -> bool {
    let Some(last) = rows.checked_sub(1).filter(|_| cols > 0) else { return true };
    last.checked_mul(row_stride).and_then(|start| start.checked_add(cols)).is_some_and(|n| n <= len)
}

/// A mutable row-major matrix; rows may be further apart than they are long.
///
/// It holds a pointer and not a slice, so that the heads of one tensor, whose columns interleave,
/// can be written by different threads.
#[derive(Debug)]
pub struct MatMut<'a> {
    start: *mut f32,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

impl<'a> MatMut<'a> {
    /// A dense row-major matrix.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// A row-major matrix whose rows are `row_stride` apart.
    pub fn strided(data: &'a mut [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(fits((rows, cols), row_stride, data.len()), "a matrix lies inside its slice");
        // SAFETY: the bounds were just checked and `data` is mutably borrowed for `'a`.
        unsafe { Self::from_raw(data.as_mut_ptr(), (rows, cols), row_stride) }
    }

    /// A matrix over elements that nobody else touches while it lives.
    ///
    /// # Safety
    /// Every element must be valid for reads and writes during `'a`, and no other reference to any
    /// of them may be used meanwhile.
    pub unsafe fn from_raw(
        start: *mut f32,
        (rows, cols): (usize, usize),
        row_stride: usize,
    ) -> Self {
        assert!(row_stride >= cols);
        Self { start, rows, cols, row_stride, owner: PhantomData }
    }

    /// The first element.
    pub fn as_mut_ptr(&mut self) -> *mut f32 {
        self.start
    }

    /// The first element, for tasks that write disjoint parts.
    pub(super) fn as_ptr(&self) -> *mut f32 {
        self.start
    }

    /// The first `rows` rows, for as long as this matrix is not used otherwise.
    pub fn first_rows(&mut self, rows: usize) -> MatMut<'_> {
        assert!(rows <= self.rows);
        MatMut { rows, owner: PhantomData, ..*self }
    }

    /// One row.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows);
        // SAFETY: the row lies inside the matrix, which is exclusively ours.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.row_stride), self.cols) }
    }
}
