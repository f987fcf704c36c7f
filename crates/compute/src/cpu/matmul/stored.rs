//! A weight as it is stored, and its numbers as f32 where an operand is packed.

use super::view::Mat;
use crate::cpu::bf16;
use crate::cpu::quantised::View;
use std::ops::Range;

/// A weight `[outputs, inputs]` as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    pub(super) numbers: Numbers<'a>,
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Distance between rows, where numbers are in rows.
    pub(super) stride: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers<'a> {
    F32(&'a [f32]),
    Bf16(&'a [u16]),
    Quantised(View<'a>),
}

impl<'a> Stored<'a> {
    /// A row-major matrix of f32, of which rows may be further apart than they are long.
    pub fn f32(mat: Mat<'a>) -> Self {
        assert_eq!(mat.col_stride, 1, "a weight is row-major");
        let Mat { data, rows, cols, row_stride, .. } = mat;
        Self { numbers: Numbers::F32(data), rows, cols, stride: row_stride }
    }

    /// A dense row-major matrix of bf16.
    pub fn bf16(halves: &'a [u16], rows: usize, cols: usize) -> Self {
        assert_eq!(Some(halves.len()), rows.checked_mul(cols), "a matrix fills its slice");
        Self { numbers: Numbers::Bf16(halves), rows, cols, stride: cols }
    }

    /// Small integers in blocks.
    pub fn quantised(view: View<'a>) -> Self {
        let (rows, cols) = (view.rows(), view.cols());
        Self { numbers: Numbers::Quantised(view), rows, cols, stride: cols }
    }

    /// Outputs of the product.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of the product.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The matrix, if its numbers are f32.
    pub fn mat(&self) -> Option<Mat<'a>> {
        match self.numbers {
            Numbers::F32(numbers) => Some(Mat::strided(numbers, self.rows, self.cols, self.stride)),
            Numbers::Bf16(_) | Numbers::Quantised(_) => None,
        }
    }

    /// Some columns of a row as f32; the first is a multiple of a panel's width.
    pub fn read_row(&self, row: usize, columns: Range<usize>, into: &mut [f32]) {
        let into = &mut into[..columns.len()];
        let all = row * self.stride + columns.start..row * self.stride + columns.end;
        match self.numbers {
            Numbers::F32(numbers) => into.copy_from_slice(&numbers[all]),
            Numbers::Bf16(halves) => bf16::widen(into, &halves[all]),
            Numbers::Quantised(view) => view.read_row(row, columns, into),
        }
    }
}
