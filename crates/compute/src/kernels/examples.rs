//! Gradients by example, and noise.

use crate::cpu::norm::Saved;
use crate::cpu::{elementwise, example_squares};
use crate::cuda::ops;
use crate::device::Device;
use crate::operands::{Outer, View};
use crate::tensor::Tensor;
use crate::{meta, thread_pool};
use fedra_seed::{NOISE_GROUP, SecretKey};
use std::ops::Range;

/// For each example the squared norm of its gradients of some weights that share their input.
pub(crate) fn outer_squares(device: &Device, given: &Outer<'_>) -> Vec<f64> {
    let mut squares = vec![0.0; given.examples.len()];
    match device {
        Device::Cpu(pool) => {
            let (right, numbers) = (
                given.right.read(),
                given.lefts.iter().map(|left| left.tensor.read()).collect::<Vec<_>>(),
            );
            let lefts: Vec<_> =
                given.lefts.iter().zip(&numbers).map(|(view, numbers)| view.mat(numbers)).collect();
            let outer = example_squares::Outer { lefts: &lefts, right: right.mat(given.right) };
            example_squares::outer(pool, outer, given.examples, &mut squares);
        }
        Device::Meta(counter) => meta::outer_squares(counter, given),
        Device::Cuda(_) => {
            let host = Device::cpu();
            let lefts: Vec<Tensor> = given.lefts.iter().map(|left| left.tensor.to(&host)).collect();
            let views = given.lefts.iter().zip(&lefts);
            let lefts: Vec<_> =
                views.map(|(view, tensor)| View { tensor, ..view.clone() }).collect();
            let right = given.right.to(&host);
            let given = Outer { lefts: &lefts, right: &right, examples: given.examples };
            return outer_squares(&host, &given);
        }
    }
    squares
}

/// For each example the squared norm of the sums of its rows with the same index.
pub(crate) fn lookup_squares(
    device: &Device,
    (from, index): (&Tensor, &[u32]),
    examples: &[Range<usize>],
) -> Vec<f64> {
    let mut squares = vec![0.0; examples.len()];
    match device {
        Device::Cpu(_) | Device::Cuda(_) => {
            example_squares::lookup(from.read().mat(from), index, examples, &mut squares);
        }
        Device::Meta(_) => {}
    }
    squares
}

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

/// The sum of squares of each row, in some columns.
pub(crate) fn row_squares(device: &Device, x: &View<'_>) -> Vec<f64> {
    match device {
        Device::Cpu(_) | Device::Cuda(_) => {
            let numbers = x.tensor.read();
            let mat = x.mat(&numbers);
            (0..mat.rows()).map(|row| elementwise::sum_of_squares(mat.row(row))).collect()
        }
        Device::Meta(_) => vec![0.0; x.tensor.rows()],
    }
}

/// `into = sum over rows of factor * row`, in some columns; a factor of zero leaves a row out.
pub(crate) fn weighted_rows(into: &mut Tensor, x: &View<'_>, factors: &[f32]) {
    let run = |into: &mut [f32]| {
        example_squares::weighted_rows(into, x.mat(&x.tensor.read()), factors);
    };
    match into.cuda() {
        Some(cuda) => ops::weighted_rows(&cuda, into, x, factors),
        None => into.change(run),
    }
}

/// `x[i] *= factors[i]`, row by row; a factor of zero makes zeros of anything.
pub(crate) fn scale_rows(x: &mut Tensor, factors: &[f32]) {
    let width = x.cols();
    match x.cuda() {
        Some(cuda) => {
            let from = x.clone();
            ops::scale_rows(&cuda, x, (&from, 0), factors);
        }
        None => x.change(|x| example_squares::scale_rows(x, width, factors)),
    }
}

/// `x += deviation * normal`, by a key.
pub(crate) fn add_noise(x: &mut Tensor, deviation: f32, key: &SecretKey) {
    const RUN: usize = 32 * NOISE_GROUP;
    let add = |task: usize, run: &mut [f32]| key.add_normal(run, task * RUN, deviation);
    x.change(|x| thread_pool::each_chunk(x, RUN, add));
}
