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

/// Copies a run of elements from one place to another, from one precision to another where they differ.
pub(crate) fn copy(cuda: &Cuda, into: Numbers, from: Numbers, elements: usize) {
    if elements > 0 {
        // As one row: places need not be multiples of four.
        let (zero, count) = (0_u64, elements as u32);
        let given = arguments![into, zero, count, from, zero, count, 1_u32, count];
        cuda.launch((Source::Rows, "copy_rectangle"), Grid::over(elements as u64), given);
    }
}
