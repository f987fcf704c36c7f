//! Rows looked up, added back and summed.

use crate::cpu::rows::Occurrences;
use crate::cuda::arguments::{Grid, arguments};
use crate::cuda::compiler::Source::Rows;
use crate::cuda::{Cuda, Numbers};
use crate::operands::View;
use crate::patches::Patches;
use crate::tensor::Tensor;
use std::ops::Range;

pub(crate) fn gather(cuda: &Cuda, into: &mut Tensor, tables: &[(&Tensor, &[u32])]) {
    let (rows, width) = into.shape();
    let numbers = into.numbers_mut();
    for (number, (table, index)) in tables.iter().enumerate() {
        if super::quantised::gather(cuda, numbers, (table, index), number > 0) {
            continue;
        }
        let index = cuda.upload(index);
        let adds = u32::from(number > 0);
        let given = arguments![numbers, table.numbers(), &index, rows as u32, width as u32, adds];
        cuda.launch((Rows, "gather"), Grid::over((rows * width) as u64), given);
    }
}

pub(crate) fn patches(cuda: &Cuda, how: Patches, pixels: &Tensor, into: &mut Tensor) {
    let elements = into.elements();
    let Patches { channels, height, width, patch_height, patch_width } = how;
    let sizes = [channels, height, width, patch_height, patch_width].map(|size| size as u32);
    let [channels, height, width, patch_height, patch_width] = sizes;
    let (numbers, from, n) = (into.numbers_mut(), pixels.numbers(), elements as u64);
    let given = arguments![numbers, from, channels, height, width, patch_height, patch_width, n];
    cuda.launch((Rows, "patches"), Grid::over(elements as u64), given);
}

pub(crate) fn scatter_add(cuda: &Cuda, into: &mut Tensor, index: &[u32], from: &Tensor) {
    let width = from.cols();
    if index.is_sorted_by(|a, b| a < b) {
        let rows = cuda.upload(index);
        let numbers = into.numbers_mut();
        let given = arguments![numbers, from.numbers(), &rows, index.len() as u32, width as u32];
        return cuda.launch((Rows, "add_rows"), Grid::over((index.len() * width) as u64), given);
    }
    let occurrences = Occurrences::of(index);
    let numbers = into.numbers_mut();
    sum_places(cuda, numbers, from, &occurrences, true);
}

pub(crate) fn sum_by_row(cuda: &Cuda, sums: &mut Tensor, occurrences: &Occurrences, from: &Tensor) {
    let numbers = sums.numbers_mut();
    sum_places(cuda, numbers, from, occurrences, false);
}

/// Sums go to the row that they are of and are added there, or one after another.
fn sum_places(cuda: &Cuda, into: Numbers, from: &Tensor, of: &Occurrences, adds: bool) {
    let (count, width) = (of.rows.len(), from.cols());
    let (starts, places) = of.places();
    let starts: Vec<u32> = starts.iter().map(|start| *start as u32).collect();
    let (starts, places) = (cuda.upload(&starts), cuda.upload(places));
    let rows = adds.then(|| cuda.upload(&of.rows));
    let given = arguments![
        into,
        from.numbers(),
        rows.as_ref(),
        &starts,
        &places,
        count as u32,
        width as u32,
        u32::from(adds)
    ];
    cuda.launch((Rows, "sum_places"), Grid::over((count * width) as u64), given);
}

/// Rows of a partial sum, so that a sum over all rows keeps every processor busy.
pub(crate) const PART: usize = 128;

/// Cuts all rows into parts.
pub(super) fn parts(rows: usize) -> Vec<Range<usize>> {
    (0..rows).step_by(PART).map(|first| first..rows.min(first + PART)).collect()
}

/// Starts and ends of runs, on the device.
pub(super) fn bounds(cuda: &Cuda, runs: &[Range<usize>]) -> [crate::cuda::opened::Table; 2] {
    let starts: Vec<u32> = runs.iter().map(|run| run.start as u32).collect();
    let ends: Vec<u32> = runs.iter().map(|run| run.end as u32).collect();
    [cuda.upload(&starts), cuda.upload(&ends)]
}

/// One row for each run: the sum of its rows of a view, each with a factor if there are any.
fn run_sums(
    cuda: &Cuda,
    into: Numbers,
    x: &View<'_>,
    runs: &[Range<usize>],
    factors: Option<&[f32]>,
) {
    let (cols, stride) = (x.columns.len() as u32, x.tensor.cols() as u32);
    let [starts, ends] = bounds(cuda, runs);
    let factors = factors.map(|factors| cuda.upload(factors));
    let (numbers, first) = (x.tensor.numbers(), x.columns.start as u64);
    let given = arguments![into, numbers, first, stride, cols, &starts, &ends, factors.as_ref()];
    let grid = Grid::blocks((cols.div_ceil(128), runs.len() as u32), (32, 8));
    if cols > 0 && !runs.is_empty() {
        cuda.launch((Rows, "run_sums"), grid, given);
    }
}

/// `into = sum over parts of partial`, of f32 rows that are `stride` apart.
pub(super) fn sum_parts(
    cuda: &Cuda,
    into: Numbers,
    (partial, parts, stride): (u64, usize, usize),
    cols: usize,
) {
    let given = arguments![into, partial, parts as u32, cols as u32, stride as u32];
    let grid = Grid::blocks((cols.div_ceil(32).max(1) as u32, 1), (32, 8));
    cuda.launch((Rows, "sum_parts"), grid, given);
}

pub(crate) fn column_sums(cuda: &Cuda, into: &mut Tensor, x: &View<'_>) {
    let numbers = into.numbers_mut();
    summed(cuda, numbers, x, None);
}

pub(crate) fn weighted_rows(cuda: &Cuda, into: &mut Tensor, x: &View<'_>, factors: &[f32]) {
    let numbers = into.numbers_mut();
    summed(cuda, numbers, x, Some(factors));
}

pub(super) fn summed(cuda: &Cuda, into: Numbers, x: &View<'_>, factors: Option<&[f32]>) {
    let (rows, cols) = (x.tensor.rows(), x.columns.len());
    let parts = parts(rows);
    let partial = cuda.take((parts.len() * cols).max(1));
    run_sums(cuda, partial.numbers(false), x, &parts, factors);
    sum_parts(cuda, into, (partial.address, parts.len(), cols), cols);
}

pub(crate) fn example_sums(cuda: &Cuda, into: &mut Tensor, x: &Tensor, examples: &[Range<usize>]) {
    let numbers = into.numbers_mut();
    run_sums(cuda, numbers, &View::of(x), examples, None);
}
