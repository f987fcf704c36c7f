//! Quantised matrices on their way into products and sums. Nothing multiplies them as they are: a copy in the
//! precision of products is made in front of each product and is gone behind it.

use crate::cuda::arguments::{Grid, Words, arguments};
use crate::cuda::compiler::Source::Quantised;
use crate::cuda::{Buffer, Cuda, Numbers};
use crate::quantisation::Quantisation;
use crate::tensor::Tensor;

/// The matrix as the kernels take it.
fn words(tensor: &Tensor) -> Option<Words> {
    let shape = tensor.quantisation()?;
    let bits: u64 = match shape.kind {
        Quantisation::Int8 => 8,
        Quantisation::Int4 => 4,
    };
    let last = shape.row_blocks() as u64 | bits << 32;
    Some(Words(vec![tensor.quantised_address(), shape.quant_bytes() as u64, last]))
}

/// Threads for so many rows: four a block.
fn grid(tensor: &Tensor, rows: usize) -> Grid {
    let blocks = tensor.quantisation().map_or(0, crate::quantisation::Shape::row_blocks);
    Grid::over((4 * rows * blocks) as u64)
}

/// A quantised matrix as bf16 or f32; `None` where it is not quantised.
pub(super) fn unpacked(cuda: &Cuda, tensor: &Tensor, half: bool) -> Option<Buffer> {
    let matrix = words(tensor)?;
    let ((rows, cols), elements) = (tensor.shape(), tensor.elements());
    let buffer = cuda.take(if half { elements.div_ceil(2) } else { elements });
    let given = arguments![buffer.numbers(half), matrix, rows as u32, cols as u32];
    cuda.launch((Quantised, "unpack"), grid(tensor, rows), given);
    Some(buffer)
}

/// Adds rows of a table, or writes them; returns whether the table is quantised and so was done here.
pub(super) fn gather(
    cuda: &Cuda,
    into: Numbers,
    (table, index): (&Tensor, &[u32]),
    adds: bool,
) -> bool {
    let Some(matrix) = words(table) else { return false };
    let (rows, cols) = (index.len(), table.cols());
    let places = cuda.upload(index);
    let given = arguments![into, matrix, &places, rows as u32, cols as u32, u32::from(adds)];
    cuda.launch((Quantised, "gather_quantised"), grid(table, rows), given);
    true
}
