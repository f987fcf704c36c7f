//! Gradients by example, and noise.

use crate::cpu::example_squares;
use crate::cpu::norm::Saved;
use crate::cuda::ops;
use crate::device::Device;
use crate::operands::View;
use crate::tensor::Tensor;
use crate::thread_pool;
use fedra_seed::{NOISE_GROUP, SecretKey};
use std::ops::Range;

/// One row for each example: the sum of its rows.
pub(crate) fn example_sums(device: &Device, x: &Tensor, examples: &[Range<usize>]) -> Tensor {
    let mut sums = Tensor::scratch(device, examples.len(), x.cols());
    let run = |sums: &mut [f32]| example_squares::column_sums(sums, x.read().mat(x), examples);
    match device {
        Device::Cuda(cuda) => ops::example_sums(cuda, &mut sums, x, examples),
        Device::Cpu(_) | Device::Meta(_) => sums.change(run),
    }
    sums
}

/// One row for each example: its gradient of a norm's weight, and that of its bias.
pub(crate) fn norm_example_sums(
    device: &Device,
    (x, stats, weight, dy): (&Tensor, &Tensor, &Tensor, &Tensor),
    examples: &[Range<usize>],
) -> [Tensor; 2] {
    let sums = || Tensor::scratch(device, examples.len(), x.cols());
    let mut sums = [sums(), sums()];
    match device {
        Device::Cpu(_) => {
            let (x, stats, weight) = (x.read(), stats.read(), weight.read());
            let saved = Saved { x: &x, stats: &stats, weight: &weight };
            let into = sums.each_mut().map(Tensor::write);
            example_squares::norm_weights(&saved, dy.read().mat(dy), examples, into);
        }
        Device::Cuda(cuda) => ops::norm_example_sums(cuda, (x, stats, dy), examples, &mut sums),
        Device::Meta(_) => {}
    }
    sums
}

/// `into = sum over rows of factor * row`, in some columns; a factor of zero leaves a row out.
pub(crate) fn weighted_rows(into: &mut Tensor, x: &View<'_>, factors: &[f32]) {
    let run = |into: &mut [f32]| {
        example_squares::weighted_rows(into, x.mat(&x.tensor.read()), factors);
    };
    match &into.device() {
        Device::Cuda(cuda) => ops::weighted_rows(cuda, into, x, factors),
        Device::Cpu(_) | Device::Meta(_) => into.change(run),
    }
}

/// [`weighted_rows`] of several views, each into a row of its own; all have as many rows.
pub(crate) fn weighted_rows_together(device: &Device, given: &[(View<'_>, &[f32])]) -> Vec<Tensor> {
    let one = |(x, factors): &(View<'_>, &[f32])| {
        let mut sum = Tensor::scratch(device, 1, x.columns.len());
        weighted_rows(&mut sum, x, factors);
        sum
    };
    match device {
        Device::Cuda(cuda) => ops::weighted_rows_together(cuda, given),
        Device::Cpu(_) | Device::Meta(_) => given.iter().map(one).collect(),
    }
}

/// `x[i] *= factors[i]`, row by row; a factor of zero makes zeros of anything.
pub(crate) fn scale_rows(x: &mut Tensor, factors: &[f32]) {
    let width = x.cols();
    match &x.device() {
        Device::Cuda(cuda) => ops::scale_own_rows(cuda, x, factors),
        Device::Cpu(_) | Device::Meta(_) => {
            x.change(|x| example_squares::scale_rows(x, width, factors));
        }
    }
}

/// `x += deviation * normal` for each of some tensors of one device, by its key.
pub(crate) fn add_noise(deviation: f32, tensors: &mut [(&mut Tensor, SecretKey)]) {
    const RUN: usize = 32 * NOISE_GROUP;
    let Some((first, _)) = tensors.first() else { return };
    match &first.device() {
        Device::Cuda(cuda) => ops::add_noise(cuda, deviation, tensors),
        Device::Cpu(_) | Device::Meta(_) => {
            for (x, key) in tensors {
                let add = |task: usize, run: &mut [f32]| key.add_normal(run, task * RUN, deviation);
                x.change(|x| thread_pool::each_chunk(x, RUN, add));
            }
        }
    }
}
