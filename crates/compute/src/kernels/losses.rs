//! Losses. Each turns logits into the gradient of the loss and returns the loss.

use super::squares::VocabularySquares;
use crate::cpu::bf16_products::Products;
use crate::cpu::losses::Factors;
use crate::cpu::vocabulary::VocabularyExamples;
use crate::cpu::{losses, vocabulary};
use crate::cuda::ops;
use crate::device::Device;
use crate::meta;
use crate::operands::Vocabulary;
use crate::tensor::Tensor;

/// Cross-entropy of each row with the column that it should have predicted.
pub(crate) fn cross_entropy(
    device: &Device,
    logits: &mut Tensor,
    labels: &[u32],
    factors: Factors<'_>,
) -> Tensor {
    let classes = logits.cols();
    match device {
        Device::Cpu(_) => {
            let logits = (logits.write(), classes);
            divided(device, factors, losses::cross_entropy_rows(logits, None, labels, factors))
        }
        Device::Meta(_) => without_numbers(device, logits),
        Device::Cuda(cuda) => {
            let mut loss = Tensor::scratch(device, 1, 1);
            ops::cross_entropy(cuda, logits, labels, factors, &mut loss);
            loss
        }
    }
}

/// Binary cross-entropy of every logit with its target.
pub(crate) fn binary_cross_entropy(
    device: &Device,
    logits: &mut Tensor,
    targets: &[f32],
    factors: Factors<'_>,
) -> Tensor {
    let classes = logits.cols();
    match device {
        Device::Cpu(_) => {
            let logits = logits.write();
            divided(
                device,
                factors,
                losses::binary_cross_entropy(logits, classes, targets, factors),
            )
        }
        Device::Meta(_) => without_numbers(device, logits),
        Device::Cuda(cuda) => {
            let mut loss = Tensor::scratch(device, 1, 1);
            ops::binary_cross_entropy(cuda, logits, targets, factors, &mut loss);
            loss
        }
    }
}

/// The loss where nothing is computed; its gradient takes the logits' place.
fn without_numbers(device: &Device, logits: &mut Tensor) -> Tensor {
    logits.own();
    Tensor::scalar(device, 0.0)
}

/// Cross-entropy of `x W^T + b`; only a few rows of logits exist at a time.
pub(crate) fn vocabulary_loss(device: &Device, given: Vocabulary<'_>) -> Tensor {
    match device {
        Device::Cpu(pool) => {
            let factors = given.factors;
            divided(device, factors, given.on_cpu(|loss| vocabulary::run(pool, loss)))
        }
        Device::Meta(counter) => {
            meta::vocabulary_loss(counter, &given);
            Tensor::scalar(device, 0.0)
        }
        Device::Cuda(cuda) => {
            let mut loss = Tensor::scratch(device, 1, 1);
            ops::vocabulary_loss(cuda, given, &mut loss);
            loss
        }
    }
}

/// [`vocabulary_loss`] without gradients of weights, and for each example the squared norms of its own of weight and
/// bias, where wanted. On the processor it is f32, as the sum of clipped gradients is that is made
/// later.
pub(crate) fn vocabulary_loss_by_example(
    device: &Device,
    given: Vocabulary<'_>,
    examples: VocabularyExamples<'_>,
) -> (Tensor, [Option<VocabularySquares>; 2]) {
    let wanted = [examples.weight, examples.bias];
    let known = |squares: [Vec<f64>; 2]| {
        let mut wanted = wanted.into_iter();
        squares.map(|squares| {
            wanted.next().filter(|wanted| *wanted).map(|_| VocabularySquares::Known(squares))
        })
    };
    match device {
        Device::Cpu(pool) => {
            let (factors, pool) = (given.factors, &pool.with_products(Products::F32));
            let (sum, squares) =
                given.on_cpu(|loss| vocabulary::run_by_example(pool, loss, examples));
            (divided(device, factors, sum), known(squares))
        }
        Device::Meta(counter) => {
            let counter = counter.with_products(Products::F32);
            meta::vocabulary_loss_by_example(&counter, &given, examples);
            let nothing = || vec![0.0; examples.rows.len()];
            (Tensor::scalar(device, 0.0), known([nothing(), nothing()]))
        }
        Device::Cuda(cuda) => {
            let mut loss = Tensor::scratch(device, 1, 1);
            let squares = ops::vocabulary_loss_by_example(cuda, given, examples, &mut loss);
            (loss, squares.map(|squares| squares.map(VocabularySquares::Cuda)))
        }
    }
}

/// A loss that the processor summed, as a tensor.
fn divided(device: &Device, factors: Factors<'_>, sum: f64) -> Tensor {
    Tensor::scalar(device, factors.divided(sum))
}
