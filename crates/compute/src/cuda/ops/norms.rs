//! Norms of rows and of groups of columns.

use super::rows::{bounds, parts, sum_parts};
use crate::cpu::norm::Kind;
use crate::cuda::Cuda;
use crate::cuda::arguments::{Grid, arguments};
use crate::cuda::compiler::Source::Norm;
use crate::fill::Fill;
use crate::operands::ColumnFactors;
use crate::tensor::Tensor;
use std::ops::Range;

/// Columns from which on a row is the work of a whole block.
const WIDE: usize = 1024;

/// Rows up to which each gets as many threads as it can use.
const FEW: usize = 8;

/// A kernel for rows of this length, and its grid.
fn team(names: [&'static str; 2], rows: usize, cols: usize) -> (&'static str, Grid) {
    if cols < WIDE && rows > FEW {
        return (names[0], Grid::warps(rows as u64));
    }
    // With few rows nothing else hides how long a thread takes for its columns.
    let threads =
        if rows > FEW { 256 } else { cols.div_ceil(4).next_multiple_of(32).clamp(32, 1024) };
    (names[1], Grid::blocks((rows.max(1) as u32, 1), (threads as u32, 1)))
}

pub(crate) fn norm(
    cuda: &Cuda,
    (kind, epsilon): (Kind, f32),
    (x, weight, bias): (&Tensor, &Tensor, Option<&Tensor>),
    (y, stats): (&mut Tensor, &mut Tensor),
) {
    let (rows, cols) = x.shape();
    let (name, grid) = team(["norm_rows", "norm_rows_wide"], rows, cols);
    let (y, stats) = (y.numbers_mut(), stats.numbers_mut().address);
    let centred = u32::from(kind == Kind::Layer);
    let (weight, bias) = (weight.numbers(), bias.map(Tensor::numbers));
    let (x, rows, cols) = (x.numbers(), rows as u32, cols as u32);
    let given = arguments![centred, epsilon, x, weight, bias, y, stats, rows, cols];
    cuda.launch((Norm, name), grid.waiting(), given);
}

pub(crate) fn norm_backward(
    cuda: &Cuda,
    kind: Kind,
    (x, stats, weight, dy): (&Tensor, &Tensor, &Tensor, &Tensor),
    dx: Option<(&mut Tensor, Fill)>,
    sums: Option<[&mut Tensor; 2]>,
) {
    let (rows, cols) = x.shape();
    if let Some((dx, fill)) = dx {
        let (name, grid) = team(["norm_backward", "norm_backward_wide"], rows, cols);
        let (centred, adds) = (u32::from(kind == Kind::Layer), u32::from(fill == Fill::Add));
        let (dx, stats) = (dx.numbers_mut(), stats.numbers().address);
        let (x, weight, dy) = (x.numbers(), weight.numbers(), dy.numbers());
        let (rows, cols) = (rows as u32, cols as u32);
        let given = arguments![centred, x, stats, weight, dy, dx, adds, rows, cols];
        cuda.launch((Norm, name), grid, given);
    }
    if let Some([of_weight, of_bias]) = sums {
        let parts = parts(rows);
        let partial = cuda.take(2 * parts.len() * cols);
        let halves = [partial.address, partial.address + 4 * (parts.len() * cols) as u64];
        weight_sums(cuda, (x, stats, dy), &parts, halves);
        for (into, half) in [of_weight, of_bias].into_iter().zip(halves) {
            sum_parts(cuda, into.numbers_mut(), (half, parts.len(), cols), cols);
        }
    }
}

/// For each run of rows the gradients of weight and bias, as f32 at two addresses.
fn weight_sums(
    cuda: &Cuda,
    (x, stats, dy): (&Tensor, &Tensor, &Tensor),
    runs: &[Range<usize>],
    into: [u64; 2],
) {
    let cols = x.cols() as u32;
    let [starts, ends] = bounds(cuda, runs);
    let stats = stats.numbers().address;
    let given =
        arguments![x.numbers(), stats, dy.numbers(), &starts, &ends, into[0], into[1], cols];
    let grid = Grid::blocks((cols.div_ceil(128), runs.len() as u32), (32, 8));
    if !runs.is_empty() {
        cuda.launch((Norm, "norm_weight_sums"), grid, given);
    }
}

pub(crate) fn norm_example_sums(
    cuda: &Cuda,
    saved: (&Tensor, &Tensor, &Tensor),
    examples: &[Range<usize>],
    sums: &mut [Tensor; 2],
) {
    let into = sums.each_mut().map(|sums| sums.numbers_mut().address);
    weight_sums(cuda, saved, examples, into);
}

pub(crate) fn scale_columns(cuda: &Cuda, x: &mut Tensor, by: &ColumnFactors<'_>) {
    let (rows, cols) = x.shape();
    let numbers = x.numbers_mut();
    for (columns, weight) in by.parts {
        let (width, groups) = (weight.cols(), columns.len() / weight.cols());
        let epsilon = by.epsilon.unwrap_or(-1.0);
        let sizes = [rows, cols, columns.start, groups, width].map(|size| size as u32);
        let [rows, cols, start, groups, width] = sizes;
        let given =
            arguments![numbers, weight.numbers(), epsilon, rows, cols, start, groups, width];
        let grid = Grid::warps(u64::from(rows) * u64::from(groups));
        cuda.launch((Norm, "scale_groups"), grid, given);
    }
}

pub(crate) fn shift_columns(cuda: &Cuda, x: &mut Tensor, parts: &[(Range<usize>, &Tensor)]) {
    let (rows, cols) = x.shape();
    let numbers = x.numbers_mut();
    for (columns, row) in parts {
        let sizes = [rows, cols, columns.start, columns.len()].map(|size| size as u32);
        let [rows, cols, start, width] = sizes;
        let given = arguments![numbers, row.numbers(), rows, cols, start, width];
        let grid = Grid::over(u64::from(rows) * u64::from(width));
        cuda.launch((Norm, "shift_columns"), grid, given);
    }
}

pub(crate) fn magnitude_factors(
    cuda: &Cuda,
    (weight, (a, b, scale)): (&Tensor, (&Tensor, &Tensor, f32)),
    magnitude: &Tensor,
    [factors, inverses]: &mut [Tensor; 2],
) {
    let ((rows, cols), rank) = (weight.shape(), a.rows() as u32);
    if rows == 0 {
        return;
    }
    // A quantised weight is read as products read it.
    let half = cuda.is_bf16();
    let unpacked = super::quantised::unpacked(cuda, weight, half);
    let weight = unpacked.as_ref().map_or_else(|| weight.numbers(), |buffer| buffer.numbers(half));
    let (factors, inverses) = (factors.numbers_mut(), inverses.numbers_mut());
    let (a, b, magnitude) = (a.numbers(), b.numbers(), magnitude.numbers());
    let cols = cols as u32;
    let given = arguments![weight, a, b, scale, magnitude, factors, inverses, cols, rank];
    let grid = Grid::blocks((rows as u32, 1), (256, 1));
    cuda.launch((Norm, "magnitude_factors"), grid, given);
}

pub(crate) fn norm_columns_backward(
    cuda: &Cuda,
    (x, epsilon): (&Tensor, f32),
    by: &ColumnFactors<'_>,
    dy: &mut Tensor,
) {
    let (rows, cols) = x.shape();
    let numbers = dy.numbers_mut();
    for (columns, weight) in by.parts {
        let (width, groups) = (weight.cols(), columns.len() / weight.cols());
        let sizes = [rows, cols, columns.start, groups, width].map(|size| size as u32);
        let [rows, cols, start, groups, width] = sizes;
        let (x, weight) = (x.numbers(), weight.numbers());
        let given = arguments![x, weight, epsilon, numbers, rows, cols, start, groups, width];
        let grid = Grid::warps(u64::from(rows) * u64::from(groups));
        cuda.launch((Norm, "norm_groups_backward"), grid, given);
    }
}

pub(crate) fn column_weight_sums(
    cuda: &Cuda,
    (x, dy): (&Tensor, &Tensor),
    by: &ColumnFactors<'_>,
    runs: &[Range<usize>],
    sums: &mut Tensor,
) {
    let total = sums.cols();
    // A run over all rows is cut, so that more than one block works on it.
    let cut = match runs {
        [all] => Some(
            parts(all.len()).into_iter().map(|part| all.start + part.start..all.start + part.end),
        ),
        _ => None,
    };
    let cut: Option<Vec<Range<usize>>> = cut.map(Iterator::collect);
    let here = cut.as_deref().unwrap_or(runs);
    let partial = cuda.take((here.len() * total).max(1));
    let into = if cut.is_some() { partial.address } else { sums.numbers_mut().address };
    let [starts, ends] = bounds(cuda, here);
    let mut column = 0;
    for (columns, weight) in by.parts {
        let (width, groups) = (weight.cols(), columns.len() / weight.cols());
        let epsilon = by.epsilon.unwrap_or(-1.0);
        let sizes = [total, column, x.cols(), columns.start, groups, width].map(|size| size as u32);
        let [of, at, cols, start, groups, width] = sizes;
        let given = arguments![
            x.numbers(),
            dy.numbers(),
            epsilon,
            &starts,
            &ends,
            into,
            of,
            at,
            cols,
            start,
            groups,
            width
        ];
        let grid = Grid::blocks((here.len() as u32, 1), (256, 1));
        if !here.is_empty() {
            cuda.launch((Norm, "group_weight_sums"), grid, given);
        }
        column += weight.cols();
    }
    if cut.is_some() {
        sum_parts(cuda, sums.numbers_mut(), (partial.address, here.len(), total), total);
    }
}
