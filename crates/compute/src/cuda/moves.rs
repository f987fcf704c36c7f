//! Numbers filled in and copied, wherever they belong.

use super::arguments::{Grid, Numbers, arguments};
use super::compiler::Source;
use super::opened::Cuda;

/// All elements become one value.
pub(crate) fn fill(cuda: &Cuda, x: Numbers, elements: usize, value: f32) {
    if elements > 0 {
        let grid = Grid::over(elements.div_ceil(4) as u64);
        cuda.launch((Source::Elementwise, "fill"), grid, arguments![x, elements as u64, value]);
    }
}

/// Copies rows of columns, from one precision to another where they differ; each side has its own stride.
pub(crate) fn copy(
    cuda: &Cuda,
    (into, into_stride): (Numbers, usize),
    (from, from_stride): (Numbers, usize),
    (rows, cols): (usize, usize),
) {
    if rows * cols > 0 {
        let sizes = [into_stride, from_stride, rows, cols].map(|size| size as u32);
        let zero = 0_u64;
        let given = arguments![into, zero, sizes[0], from, zero, sizes[1], sizes[2], sizes[3]];
        cuda.launch((Source::Rows, "copy_rectangle"), Grid::over((rows * cols) as u64), given);
    }
}
