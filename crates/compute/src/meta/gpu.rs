//! What a GPU's operations take beside their operands, as [`ops`](crate::cuda::ops) take it: copies of factors in
//! the precision of products, partial sums, rows of logits.

use crate::cpu::attention::Pass;
use crate::cuda::ops::{HELD, PART};
use crate::operands::{Attended, Factor, Linear, LinearBackward, Vocabulary};
use crate::pool::{Counted, Counter};
use crate::tensor::Tensor;

/// A factor of a product. A bf16 copy of f32 numbers stays with them; an f32 copy of bf16 numbers, and what a
/// quantised matrix stands for, is there until the product is.
fn factor(counter: &Counter, tensor: &Tensor) -> Option<Counted> {
    if tensor.quantisation().is_some() {
        return Some(activation(counter, tensor.elements()));
    }
    match (counter.is_bf16(), tensor.is_bf16()) {
        (true, false) => {
            tensor.round_on_paper();
            None
        }
        (false, true) => Some(counter.take(tensor.elements())),
        (true, true) | (false, false) => None,
    }
}

/// An activation.
fn activation(counter: &Counter, numbers: usize) -> Counted {
    counter.take(if counter.is_bf16() { numbers.div_ceil(2) } else { numbers })
}

/// Partial sums over rows.
fn partial(counter: &Counter, rows: usize, cols: usize) -> Counted {
    counter.take((rows.div_ceil(PART) * cols).max(1))
}

pub(super) fn matmul(counter: &Counter, factors: [&Tensor; 2]) {
    let _held = factors.map(|tensor| factor(counter, tensor));
}

/// The residual is read in the result's precision, and so are biases.
pub(super) fn linear(counter: &Counter, given: &Linear<'_>, is_bf16: bool) {
    let mut held = vec![factor(counter, given.x)];
    let other = |tensor: &&Tensor| tensor.is_bf16() != is_bf16;
    held.extend(given.residual.filter(other).map(|tensor| Some(counter.take(tensor.elements()))));
    for (weight, bias) in given.weights {
        held.push(factor(counter, weight));
        bias.filter(|bias| is_bf16 && !bias.is_bf16()).into_iter().for_each(Tensor::round_on_paper);
    }
}

pub(super) fn linear_backward(counter: &Counter, given: &LinearBackward<'_>) {
    let mut held = Vec::new();
    if given.dx.is_some() {
        held.push(factor(counter, given.dy));
        held.extend(given.weights.iter().map(|weight| factor(counter, weight)));
    }
    let _weighted = given.row_factors.map(|_| activation(counter, given.dy.elements()));
    for job in &given.jobs {
        if given.row_factors.is_none() {
            held.push(factor(counter, job.left.tensor));
        }
        let right = match job.right {
            Factor::Input | Factor::InputOfLowRank => given.x,
            Factor::Other(tensor) => Some(tensor),
        };
        held.extend(right.map(|right| factor(counter, right)));
        if job.bias.is_some() {
            drop(partial(counter, given.dy.rows(), job.left.columns.len()));
        }
    }
}

/// Of the weight and of the bias.
pub(super) fn norm_backward(counter: &Counter, dy: &Tensor) {
    drop(partial(counter, dy.rows(), 2 * dy.cols()));
}

/// The inner products of results and their gradients.
pub(super) fn attention(counter: &Counter, given: &Attended<'_>, pass: Pass) {
    match pass {
        Pass::Forward => {}
        Pass::Backward => drop(counter.take(given.queries.rows() * given.geometry.heads)),
    }
}

/// Some rows of logits at a time, which become their gradient.
pub(super) fn vocabulary_loss(counter: &Counter, given: &Vocabulary<'_>) {
    let ((rows, width), words) = (given.x.shape(), given.weight.rows());
    let now = (HELD / words).clamp(16, rows.max(16)).min(rows);
    let mut held = vec![(now < rows).then(|| activation(counter, now * width))];
    held.push(Some(activation(counter, now * words)));
    held.extend([factor(counter, given.x), factor(counter, given.weight)]);
    if let Some(bias) = given.bias
        && counter.is_bf16()
    {
        bias.round_on_paper();
    }
    drop(given.dx.as_ref().map(|_| activation(counter, now * width)));
    drop(given.db.as_ref().map(|_| partial(counter, now, words)));
}
