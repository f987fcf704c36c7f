//! Matrix products.

use crate::activation::Activation;
use crate::cpu::matmul::{Extras, MatMut, Right, Stored};
use crate::cpu::{linear as cpu_linear, matmul as cpu_matmul};
use crate::cuda::ops;
use crate::device::Device;
use crate::fill::Fill;
use crate::meta;
use crate::operands::{Factor, Linear, LinearBackward, View, WeightGradient};
use crate::tensor::Tensor;
use std::ops::Range;

/// `into[:, columns] = left * right`, or added to what is there.
pub(crate) fn matmul(
    device: &Device,
    (into, columns): (&mut Tensor, Range<usize>),
    fill: Fill,
    (left, right): (&View<'_>, &View<'_>),
) {
    let (rows, stride) = into.shape();
    match device {
        Device::Cpu(pool) => {
            let numbers = (left.tensor.read(), right.tensor.read());
            let (left_mat, right_mat) = (left.mat(&numbers.0), right.mat(&numbers.1));
            let all = into.write();
            let first = columns.start.min(all.len());
            let into = &mut all[first..];
            let into = MatMut::strided(into, rows, columns.len(), stride);
            let start = cpu_linear::start(fill);
            if right.transposed && !left.transposed && cpu_matmul::has_few_rows(rows) {
                let stored = Stored::f32(right_mat.t());
                return cpu_matmul::multiply_stored(into, left_mat, &[stored], start, None);
            }
            let packed = if right.transposed {
                Right::beside(pool, &[right_mat])
            } else {
                Right::rows(pool, right_mat)
            };
            cpu_matmul::multiply(into, left_mat, &packed, start, Extras::default());
        }
        Device::Meta(counter) => {
            into.own();
            meta::matmul(counter, (left, right));
        }
        Device::Cuda(cuda) => ops::matmul(cuda, (into, columns), fill, (left, right)),
    }
}

/// Whether the device gates two projections in one pass; see [`linear_gated`].
pub(crate) fn gates_at_once(device: &Device, given: &Linear<'_>) -> bool {
    match device {
        Device::Cpu(_) | Device::Meta(_) => false,
        Device::Cuda(cuda) => ops::gates(cuda, given),
    }
}

/// `y = activation(x G^T + g) * (x U^T + u)`.
pub(crate) fn linear_gated(given: &Linear<'_>, activation: Activation, y: &mut Tensor) {
    match &y.device() {
        Device::Cuda(cuda) => ops::linear_gated(cuda, given, activation, y),
        Device::Cpu(_) | Device::Meta(_) => unreachable!("only a GPU gates at once"),
    }
}

/// `y = activation(x W^T + b + residual)`; an activation's derivative is written where wanted.
pub(crate) fn linear(
    device: &Device,
    given: &Linear<'_>,
    y: &mut Tensor,
    derivative: Option<&mut Tensor>,
) {
    match device {
        Device::Cpu(pool) => {
            let biases: Vec<_> = given.weights.iter().map(|(_, b)| b.map(Tensor::read)).collect();
            let biases: Vec<_> = biases.iter().map(|bias| bias.as_deref()).collect();
            let weights: Vec<_> = given.weights.iter().map(|(w, _)| w.stored()).collect();
            let (x, residual) = (given.x.read(), given.residual.map(|r| (r.read(), r)));
            let forward = cpu_linear::Forward {
                x: x.mat(given.x),
                weights: &weights,
                biases: &biases,
                residual: residual.as_ref().map(|(numbers, tensor)| numbers.mat(tensor)),
                activation: given.activation,
            };
            cpu_linear::forward(pool, &forward, y.write(), derivative.map(Tensor::write));
        }
        Device::Meta(counter) => {
            y.own();
            derivative.into_iter().for_each(Tensor::own);
            meta::linear(counter, given, y.is_bf16());
        }
        Device::Cuda(cuda) => ops::linear(cuda, given, y, derivative),
    }
}

/// Applies an activation in place; its derivative is written where wanted.
pub(crate) fn activate(
    device: &Device,
    activation: Activation,
    y: &mut Tensor,
    derivative: Option<&mut Tensor>,
) {
    match device {
        Device::Cpu(_) => {
            cpu_linear::activate(activation, y.write(), derivative.map(Tensor::write));
        }
        Device::Meta(_) => {
            y.own();
            derivative.into_iter().for_each(Tensor::own);
        }
        Device::Cuda(cuda) => ops::activate(cuda, activation, y, derivative),
    }
}

/// Gradients of the input and the weights of projections.
pub(crate) fn linear_backward(device: &Device, given: LinearBackward<'_>) {
    match device {
        Device::Cpu(pool) => {
            let dy = given.dy.read();
            let x = given.x.map(|x| (x.read(), x));
            let weights = if given.dx.is_some() { given.weights } else { &[] };
            let weights: Vec<_> = weights.iter().map(|weight| weight.stored()).collect();
            let numbers: Vec<_> = given.jobs.iter().map(WeightGradient::read).collect();
            let jobs = given.jobs.into_iter().zip(&numbers).map(|(job, (left, other))| {
                let right = match job.right {
                    Factor::Input => cpu_linear::Factor::Input,
                    Factor::InputOfLowRank => cpu_linear::Factor::InputOfLowRank,
                    Factor::Other(tensor) => {
                        let numbers = other.as_ref().expect("read above");
                        cpu_linear::Factor::Other(numbers.mat(tensor))
                    }
                };
                let (left, bias) = (job.left.mat(left), job.bias.map(Tensor::write));
                cpu_linear::Job { into: job.into.write(), fill: job.fill, left, right, bias }
            });
            let mut jobs: Vec<_> = jobs.collect();
            let dx = given.dx.map(|(dx, fill)| {
                let (rows, cols) = dx.shape();
                (MatMut::new(dx.write(), rows, cols), fill)
            });
            let x = x.as_ref().map(|(numbers, x)| numbers.mat(x));
            let dy = dy.mat(given.dy);
            let row_factors = given.row_factors;
            let given = cpu_linear::Backward { dy, x, weights: &weights, row_factors };
            cpu_linear::backward(pool, given, dx, &mut jobs);
        }
        Device::Meta(counter) => meta::linear_backward(counter, given),
        Device::Cuda(cuda) => ops::linear_backward(cuda, given),
    }
}
