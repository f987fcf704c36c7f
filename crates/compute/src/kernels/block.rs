//! Norms, positions and gates of a block.

use crate::activation::Activation;
use crate::cpu::columns::Part;
use crate::cpu::norm::{Kind as NormKind, Saved, Wanted};
use crate::cpu::rotary::{Angles, Turn};
use crate::cpu::row_norms::{Correction, row_norms};
use crate::cpu::{activation as cpu_activation, columns, norm as cpu_norm, rotary};
use crate::cuda::ops;
use crate::device::Device;
use crate::fill::Fill;
use crate::meta;
use crate::operands::ColumnFactors;
use crate::tensor::Tensor;
use std::ops::Range;

/// Normalises each row; `stats` receives two numbers per row.
pub(crate) fn norm(
    device: &Device,
    (kind, epsilon): (NormKind, f32),
    (x, weight, bias): (&Tensor, &Tensor, Option<&Tensor>),
    (y, stats): (&mut Tensor, &mut Tensor),
) {
    match device {
        Device::Cpu(_) => {
            let bias = bias.map(Tensor::read);
            let scaling = (&*weight.read(), bias.as_deref());
            cpu_norm::forward(kind, epsilon, &x.read(), scaling, y.write(), stats.write());
        }
        Device::Meta(_) => {
            y.own();
            stats.own();
        }
        Device::Cuda(cuda) => ops::norm(cuda, (kind, epsilon), (x, weight, bias), (y, stats)),
    }
}

/// Gradients of a norm: of its input, of weight and bias (both or neither).
pub(crate) fn norm_backward(
    device: &Device,
    kind: NormKind,
    (x, stats, weight, dy): (&Tensor, &Tensor, &Tensor, &Tensor),
    dx: Option<(&mut Tensor, Fill)>,
    sums: Option<[&mut Tensor; 2]>,
) {
    match device {
        Device::Cpu(pool) => {
            let (x, stats, weight) = (x.read(), stats.read(), weight.read());
            let saved = Saved { x: &x, stats: &stats, weight: &weight };
            let wanted = Wanted {
                x: dx.map(|(dx, fill)| (dx.write(), fill == Fill::Add)),
                weights: sums.map(|sums| sums.map(Tensor::write)),
            };
            cpu_norm::backward(pool, kind, saved, &dy.read(), wanted);
        }
        Device::Meta(counter) => {
            if let Some((dx, _)) = dx {
                dx.own();
            }
            if let Some(sums) = sums {
                sums.into_iter().for_each(Tensor::own);
                meta::norm_backward(counter, dy);
            }
        }
        Device::Cuda(cuda) => ops::norm_backward(cuda, kind, (x, stats, weight, dy), dx, sums),
    }
}

/// Turns the first heads of each row by the angles of its position.
pub(crate) fn rotate(
    x: &mut Tensor,
    heads: usize,
    (positions, angles, turn): (&[u32], &Angles, Turn),
) {
    let cols = x.cols();
    match &x.device() {
        Device::Cuda(cuda) => ops::rotate(cuda, x, heads, (positions, angles, turn)),
        Device::Cpu(_) | Device::Meta(_) => {
            x.change(|x| rotary::rotate(x, cols, heads, positions, angles, turn));
        }
    }
}

/// Multiplies columns of each row by their weights.
pub(crate) fn scale_columns(x: &mut Tensor, by: &ColumnFactors<'_>) {
    let cols = x.cols();
    match &x.device() {
        Device::Cuda(cuda) => ops::scale_columns(cuda, x, by),
        Device::Cpu(_) | Device::Meta(_) => {
            x.change(|x| by.on_cpu(|parts| columns::forward(x, cols, parts, by.epsilon)));
        }
    }
}

/// Adds a row of numbers to some columns of each row.
pub(crate) fn shift_columns(x: &mut Tensor, parts: &[(Range<usize>, &Tensor)]) {
    let cols = x.cols();
    match &x.device() {
        Device::Cuda(cuda) => ops::shift_columns(cuda, x, parts),
        Device::Cpu(_) | Device::Meta(_) => x.change(|x| {
            let rows: Vec<_> = parts.iter().map(|(_, row)| row.read()).collect();
            let parts = parts.iter().zip(&rows);
            let parts: Vec<Part<'_>> = parts
                .map(|((columns, _), weight)| Part { columns: columns.clone(), weight })
                .collect();
            columns::shift(x, cols, &parts);
        }),
    }
}

/// What the columns of a projection are multiplied by where its rows have norms of their own: each of these over the
/// norm of the weight's row with its correction, and one over that norm; zero where a row has none.
pub(crate) fn magnitude_factors(
    device: &Device,
    (weight, (a, b, scale)): (&Tensor, (&Tensor, &Tensor, f32)),
    magnitude: &Tensor,
) -> [Tensor; 2] {
    let row = || Tensor::scratch(device, 1, weight.rows());
    let mut both = [row(), row()];
    match device {
        Device::Cpu(_) => {
            let [factors, inverses] = both.each_mut().map(Tensor::write);
            let correction = Correction { a: &a.read(), b: &b.read(), scale };
            row_norms(weight.stored(), Some(correction), inverses);
            let magnitudes = magnitude.read();
            for ((factor, inverse), magnitude) in
                factors.iter_mut().zip(inverses).zip(&magnitudes[..])
            {
                let norm = *inverse;
                (*factor, *inverse) =
                    if norm > 0.0 { (magnitude / norm, 1.0 / norm) } else { (0.0, 0.0) };
            }
        }
        Device::Meta(_) => both.iter_mut().for_each(Tensor::own),
        Device::Cuda(cuda) => {
            ops::magnitude_factors(cuda, (weight, (a, b, scale)), magnitude, &mut both);
        }
    }
    both
}

/// Turns the gradient of normalised columns into that of the input `x`.
pub(crate) fn norm_columns_backward(
    (x, epsilon): (&Tensor, f32),
    by: &ColumnFactors<'_>,
    dy: &mut Tensor,
) {
    match &dy.device() {
        Device::Cuda(cuda) => ops::norm_columns_backward(cuda, (x, epsilon), by, dy),
        Device::Cpu(_) | Device::Meta(_) => dy.change(|dy| {
            by.on_cpu(|parts| columns::backward(&x.read(), x.cols(), parts, epsilon, dy));
        }),
    }
}

/// One row for each run of rows: the gradients of the weights of [`scale_columns`] side by side.
pub(crate) fn column_weight_sums(
    device: &Device,
    (x, dy): (&Tensor, &Tensor),
    by: &ColumnFactors<'_>,
    runs: &[Range<usize>],
) -> Tensor {
    let total = by.parts.iter().map(|(_, weight)| weight.cols()).sum();
    let mut sums = Tensor::scratch(device, runs.len(), total);
    match device {
        Device::Cuda(cuda) => ops::column_weight_sums(cuda, (x, dy), by, runs, &mut sums),
        Device::Cpu(_) | Device::Meta(_) => sums.change(|sums| {
            let both = (&*x.read(), &*dy.read());
            by.on_cpu(|parts| {
                columns::weight_sums(both, x.cols(), (parts, by.epsilon), runs, sums);
            });
        }),
    }
    sums
}

/// `y = activation(gate) * up`, where a row of `x` is gate then up.
pub(crate) fn gated(activation: Activation, x: &Tensor, y: &mut Tensor) {
    let width = y.cols();
    match &y.device() {
        Device::Cuda(cuda) => ops::gated(cuda, activation, x, y),
        Device::Cpu(_) | Device::Meta(_) => {
            y.change(|y| cpu_activation::gated(activation, &x.read(), y, width));
        }
    }
}

/// The gradient of [`gated`]'s input.
pub(crate) fn gated_backward(activation: Activation, (x, dy): (&Tensor, &Tensor), dx: &mut Tensor) {
    let width = dy.cols();
    match &dx.device() {
        Device::Cuda(cuda) => ops::gated_backward(cuda, activation, (x, dy), dx),
        Device::Cpu(_) | Device::Meta(_) => dx.change(|dx| {
            cpu_activation::gated_backward(activation, &x.read(), &dy.read(), dx, width);
        }),
    }
}
