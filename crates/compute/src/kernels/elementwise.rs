//! One pass over whole tensors.

use crate::cpu::{elementwise, linear as cpu_linear, solver};
use crate::cuda::ops;
use crate::device::Device;
use crate::operands::{Change, View};
use crate::tensor::Tensor;
use fedra_seed::Seed;
use std::ops::Range;

/// `x *= y`.
pub(crate) fn multiply(x: &mut Tensor, y: &Tensor) {
    match &x.device() {
        Device::Cuda(cuda) => ops::multiply(cuda, x, y),
        Device::Cpu(_) | Device::Meta(_) => x.change(|x| elementwise::multiply_into(x, &y.read())),
    }
}

/// `x *= factor`, where the factor is a tensor of one element.
pub(crate) fn scale_by(device: &Device, x: &mut Tensor, factor: &Tensor) {
    match device {
        Device::Cpu(_) => {
            let factor = factor.item();
            if factor != 1.0 {
                elementwise::scale(x.write(), factor);
            }
        }
        Device::Meta(_) => {}
        Device::Cuda(cuda) => ops::scale_by(cuda, x, factor),
    }
}

/// `x = cap * tanh(x / cap)`.
pub(crate) fn soft_cap(x: &mut Tensor, cap: f32) {
    match &x.device() {
        Device::Cuda(cuda) => ops::soft_cap(cuda, x, cap),
        Device::Cpu(_) | Device::Meta(_) => x.change(|x| elementwise::soft_cap(x, cap)),
    }
}

/// Turns the gradient of a soft cap's result `y` into that of its input.
pub(crate) fn soft_cap_backward((y, cap): (&Tensor, f32), dy: &mut Tensor) {
    match &dy.device() {
        Device::Cuda(cuda) => ops::soft_cap_backward(cuda, (y, cap), dy),
        Device::Cpu(_) | Device::Meta(_) => {
            dy.change(|dy| elementwise::soft_cap_backward(&y.read(), cap, dy));
        }
    }
}

/// Makes zeros of a share of `x` and divides the rest by theirs, as a seed decides.
pub(crate) fn drop_out(x: &mut Tensor, rate: f32, rows: &[(Range<usize>, Seed)]) {
    let cols = x.cols();
    match &x.device() {
        Device::Cuda(cuda) => ops::drop_out(cuda, x, rate, rows),
        Device::Cpu(_) | Device::Meta(_) => x.change(|x| {
            for (rows, seed) in rows {
                elementwise::drop_out(&mut x[rows.start * cols..rows.end * cols], rate, *seed);
            }
        }),
    }
}

/// `x + offset`; the tensor itself where that is zero.
pub(crate) fn shifted(device: &Device, x: &Tensor, offset: f32) -> Tensor {
    if offset == 0.0 {
        return x.clone();
    }
    let (rows, cols) = x.shape();
    let mut sum = Tensor::scratch(device, rows, cols);
    match device {
        Device::Cuda(cuda) => ops::shifted(cuda, &mut sum, x, offset),
        Device::Cpu(_) | Device::Meta(_) => {
            sum.change(|sum| sum.iter_mut().zip(&*x.read()).for_each(|(sum, x)| *sum = x + offset));
        }
    }
    sum
}

/// `into = sum over the rows of x`, in some columns of it.
pub(crate) fn column_sums(into: &mut Tensor, x: &View<'_>) {
    match &into.device() {
        Device::Cuda(cuda) => ops::column_sums(cuda, into, x),
        Device::Cpu(_) | Device::Meta(_) => {
            into.change(|into| cpu_linear::column_sums(into, x.mat(&x.tensor.read())));
        }
    }
}

/// Takes a step for every parameter that changes.
pub(crate) fn optimise(device: &Device, changes: &mut [Change<'_>]) {
    match device {
        Device::Cpu(_) => solver::run(changes),
        Device::Meta(_) => {
            for Change { weight, moments: [first, second], .. } in changes {
                weight.own_learning();
                first.own();
                second.own();
            }
        }
        Device::Cuda(cuda) => ops::optimise(cuda, changes),
    }
}
