//! One pass over whole tensors.

use crate::activation::Activation;
use crate::cpu::rotary::{Angles, Turn};
use crate::cuda::arguments::{Grid, arguments};
use crate::cuda::compiler::Source::Elementwise;
use crate::cuda::{Cuda, Numbers};
use crate::tensor::Tensor;

/// Threads do four elements each.
fn fours(elements: usize) -> Grid {
    Grid::over(elements.div_ceil(4) as u64)
}

pub(crate) fn multiply(cuda: &Cuda, x: &mut Tensor, y: &Tensor) {
    let n = x.elements();
    let given = arguments![x.numbers_mut(), y.numbers(), n as u64];
    cuda.launch((Elementwise, "multiply"), fours(n), given);
}

pub(crate) fn scale(cuda: &Cuda, x: &mut Tensor, factor: f32) {
    let n = x.elements();
    cuda.launch((Elementwise, "scale"), fours(n), arguments![x.numbers_mut(), factor, n as u64]);
}

pub(crate) fn divide(cuda: &Cuda, x: &mut Tensor, divisor: f32) {
    let n = x.elements();
    cuda.launch((Elementwise, "divide"), fours(n), arguments![x.numbers_mut(), divisor, n as u64]);
}

pub(crate) fn scale_by(cuda: &Cuda, x: &mut Tensor, factor: &Tensor) {
    let n = x.elements();
    let given = arguments![x.numbers_mut(), factor.numbers(), n as u64];
    cuda.launch((Elementwise, "scale_by"), fours(n), given);
}

pub(crate) fn shifted(cuda: &Cuda, into: &mut Tensor, x: &Tensor, offset: f32) {
    let n = x.elements();
    let given = arguments![into.numbers_mut(), x.numbers(), offset, n as u64];
    cuda.launch((Elementwise, "shift"), fours(n), given);
}

pub(crate) fn add_scaled(cuda: &Cuda, x: &mut Tensor, factor: f32, y: &Tensor) {
    let n = x.elements();
    let given = arguments![x.numbers_mut(), y.numbers(), factor, n as u64];
    cuda.launch((Elementwise, "add_scaled"), fours(n), given);
}

pub(crate) fn add_scaled_difference(
    cuda: &Cuda,
    x: &mut Tensor,
    factor: f32,
    (to, from): (&Tensor, &Tensor),
) {
    let n = x.elements();
    let given = arguments![x.numbers_mut(), to.numbers(), from.numbers(), factor, n as u64];
    cuda.launch((Elementwise, "add_scaled_difference"), fours(n), given);
}

pub(crate) fn subtract(cuda: &Cuda, into: &mut Tensor, (x, y): (&Tensor, &Tensor)) {
    let n = x.elements();
    let given = arguments![into.numbers_mut(), x.numbers(), y.numbers(), n as u64];
    cuda.launch((Elementwise, "subtract"), fours(n), given);
}

pub(crate) fn soft_cap(cuda: &Cuda, x: &mut Tensor, cap: f32) {
    let n = x.elements();
    cuda.launch((Elementwise, "soft_cap"), fours(n), arguments![x.numbers_mut(), cap, n as u64]);
}

pub(crate) fn soft_cap_backward(cuda: &Cuda, (y, cap): (&Tensor, f32), dy: &mut Tensor) {
    let n = y.elements();
    let given = arguments![dy.numbers_mut(), y.numbers(), cap, n as u64];
    cuda.launch((Elementwise, "soft_cap_backward"), fours(n), given);
}

/// The number by which kernels know an activation.
pub(super) const fn kind(activation: Activation) -> u32 {
    match activation {
        Activation::Gelu => 0,
        Activation::GeluTanh => 1,
        Activation::Relu => 2,
        Activation::Silu => 3,
        Activation::Tanh => 4,
    }
}

pub(crate) fn activate(
    cuda: &Cuda,
    activation: Activation,
    y: &mut Tensor,
    derivative: Option<&mut Tensor>,
) {
    let n = y.elements();
    let derivative = derivative.map(Tensor::numbers_mut);
    let given = arguments![y.numbers_mut(), derivative, kind(activation), n as u64];
    cuda.launch((Elementwise, "activate"), fours(n), given);
}

pub(crate) fn gated(cuda: &Cuda, activation: Activation, x: &Tensor, y: &mut Tensor) {
    let (rows, width) = y.shape();
    let (numbers, kind) = (y.numbers_mut(), kind(activation));
    let given = arguments![x.numbers(), numbers, kind, rows as u32, width as u32];
    cuda.launch((Elementwise, "gated"), Grid::over((rows * width / 4) as u64), given);
}

pub(crate) fn gated_backward(
    cuda: &Cuda,
    activation: Activation,
    (x, dy): (&Tensor, &Tensor),
    dx: &mut Tensor,
) {
    let (rows, width) = dy.shape();
    let (numbers, kind) = (dx.numbers_mut(), kind(activation));
    let given = arguments![x.numbers(), dy.numbers(), numbers, kind, rows as u32, width as u32];
    cuda.launch((Elementwise, "gated_backward"), Grid::over((rows * width / 4) as u64), given);
}

pub(crate) fn rotate(
    cuda: &Cuda,
    x: &mut Tensor,
    heads: usize,
    (positions, angles, turn): (&[u32], &Angles, Turn),
) {
    let (rows, cols) = x.shape();
    let half = angles.width() / 2;
    // Only the positions that occur are sent, each once where many rows share them: a model's tables may be long.
    let longest = positions.iter().max().map_or(0, |longest| *longest as usize + 1);
    let [positions, cosines, sines] = if rows < longest {
        let [cosines, sines] = angles.of_positions(positions);
        let in_order: Vec<u32> = (0..rows as u32).collect();
        [cuda.upload(&in_order), cuda.upload(&cosines), cuda.upload(&sines)]
    } else {
        let (cosines, sines) = angles.up_to(longest);
        [cuda.upload(positions), cuda.upload(cosines), cuda.upload(sines)]
    };
    let sign = match turn {
        Turn::With => 1_f32,
        Turn::Against => -1.0,
    };
    let numbers = x.numbers_mut();
    let sizes = [rows, cols, heads, half].map(|size| size as u32);
    let given = arguments![
        numbers, &positions, &cosines, &sines, sign, sizes[0], sizes[1], sizes[2], sizes[3]
    ];
    cuda.launch((Elementwise, "rotate"), Grid::over((rows * heads * half / 4) as u64), given);
}

/// `into[i] = factors[i] * x[i]`, row by row, of some columns of `x`.
pub(crate) fn scale_rows(
    cuda: &Cuda,
    into: &mut Tensor,
    (x, first): (&Tensor, usize),
    factors: &[f32],
) {
    let (shape, from) = (into.shape(), (x.numbers(), first, x.cols()));
    scaled_rows(cuda, (into.numbers_mut(), shape), from, factors);
}

/// `x[i] *= factors[i]`, row by row.
pub(crate) fn scale_own_rows(cuda: &Cuda, x: &mut Tensor, factors: &[f32]) {
    let (numbers, shape) = (x.numbers_mut(), x.shape());
    scaled_rows(cuda, (numbers, shape), (numbers, 0, shape.1), factors);
}

fn scaled_rows(
    cuda: &Cuda,
    (into, (rows, cols)): (Numbers, (usize, usize)),
    (from, first, stride): (Numbers, usize, usize),
    factors: &[f32],
) {
    let factors = cuda.upload(factors);
    let sizes = [rows, cols, first, stride].map(|size| size as u32);
    let given = arguments![into, from, &factors, sizes[0], sizes[1], sizes[2], sizes[3]];
    cuda.launch((Elementwise, "scale_rows"), fours(rows * cols), given);
}

pub(crate) fn sum_of_squares(cuda: &Cuda, x: &Tensor) -> f64 {
    let n = x.elements();
    let grid = fours(n);
    let parts = cuda.take(2 * grid.blocks.0 as usize);
    cuda.launch((Elementwise, "squares"), grid, arguments![x.numbers(), n as u64, parts.address]);
    cuda.read::<f64>(parts.address, grid.blocks.0 as usize).into_iter().sum()
}
