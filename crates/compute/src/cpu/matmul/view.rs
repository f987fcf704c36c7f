//! A matrix seen through strides, so that a transpose is a view and a head is a view.

use crate::cpu::simd::vectorised;
use std::marker::PhantomData;
use std::ops::Range;

/// A read-only matrix over a slice: element `(r, c)` is `data[r * row_stride + c * col_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    /// The numbers.
    pub data: &'a [f32],
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance between columns.
    pub col_stride: usize,
}

impl<'a> Mat<'a> {
    /// A dense row-major matrix.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// A row-major matrix whose rows are `row_stride` apart.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(rows == 0 || cols == 0 || (rows - 1) * row_stride + cols <= data.len());
        Self { data, rows, cols, row_stride, col_stride: 1 }
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

/// A mutable row-major matrix; rows may be further apart than they are long.
///
/// It holds a pointer and not a slice, so that the heads of one tensor, whose columns interleave,
/// can be written by different threads.
#[derive(Debug)]
pub struct MatMut<'a> {
    start: *mut f32,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// Distance between rows.
    pub row_stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

impl<'a> MatMut<'a> {
    /// A dense row-major matrix.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// A row-major matrix whose rows are `row_stride` apart.
    pub fn strided(data: &'a mut [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(rows == 0 || cols == 0 || (rows - 1) * row_stride + cols <= data.len());
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
