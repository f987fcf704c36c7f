//! What kernels take beside their operands, counted for a device without numbers.
//!
//! The processor's kernels pack operands into panels and keep partial sums. Each function here takes
//! what its kernel takes, by the lengths that the kernel's own file gives, and gives it back at the
//! end. A test holds a step on paper to the same step on the processor. What a GPU's operations take is in
//! `gpu.rs`.

mod gpu;

use crate::cpu::attention;
use crate::cpu::bf16_products::Products;
use crate::cpu::matmul::{self, Right};
use crate::cpu::vocabulary::{self, VocabularyExamples};
use crate::cpu::{example_squares, norm};
use crate::fill::Fill;
use crate::operands::{Attended, Factor, Linear, LinearBackward, Outer, View, Vocabulary};
use crate::pool::{Counted, Counter};
use crate::tensor::Tensor;
use crate::weight_format::WeightFormat;

/// Rows, columns, and the distances from one row and one column to the next.
type Extent = ((usize, usize), (usize, usize));

fn extent(tensor: &Tensor) -> Extent {
    (tensor.shape(), (tensor.cols(), 1))
}

fn extent_of(view: &View<'_>) -> Extent {
    let (rows, stride) = view.tensor.shape();
    let cols = view.columns.len();
    if view.transposed { ((cols, rows), (1, stride)) } else { ((rows, cols), (stride, 1)) }
}

/// A tensor that is not f32 as f32, where a kernel reads it whole.
fn widened(counter: &Counter, tensor: &Tensor) -> Option<Counted> {
    (tensor.format() != WeightFormat::F32).then(|| counter.take(tensor.elements()))
}

/// What weights become as f32 while they are packed, panel by panel; nothing where all of them are f32.
fn unpacked(
    counter: &Counter,
    weights: &[&Tensor],
    (packed, panels): (usize, usize),
    depth: usize,
) {
    if weights.iter().any(|weight| weight.format() != WeightFormat::F32) {
        let (pieces, len) = Right::unpacked_len(packed, panels, depth);
        all(counter, vec![len; pieces]);
    }
}

/// A matrix as right operand; `None` where it is read in place.
fn rows(counter: &Counter, (shape, strides): Extent) -> Option<Counted> {
    let len = Right::rows_len(counter.products(), shape, strides);
    (len > 0).then(|| counter.take(len))
}

/// A product of two views.
pub(crate) fn matmul(counter: &Counter, (left, right): (&View<'_>, &View<'_>)) {
    if counter.is_gpu() {
        return gpu::matmul(counter, [left.tensor, right.tensor]);
    }
    let _read = [widened(counter, left.tensor), widened(counter, right.tensor)];
    let ((count, depth), (_, step)) = extent_of(left);
    let ((_, cols), _) = extent_of(right);
    if right.transposed && !left.transposed && matmul::has_few_rows(count) {
        return;
    }
    let _packed = if right.transposed {
        Some(counter.take(Right::beside_len(counter.products(), depth, [cols])))
    } else {
        rows(counter, extent_of(right))
    };
    let _left = if step == 1 {
        counter.take(along_len(counter, (count, depth, cols)))
    } else {
        counter.take(matmul::left_len(counter.products(), count, depth, cols))
    };
}

/// What the tasks of a product pack at a time of a left operand whose rows run along the depth.
fn along_len(counter: &Counter, (rows, depth, cols): (usize, usize, usize)) -> usize {
    match counter.products() {
        Products::F32 => 0,
        bf16 @ Products::Bf16(_) => matmul::left_len(bf16, rows, depth, cols),
    }
}

/// Projections: biases side by side, weights widened and packed. A result may be bf16 on a GPU.
pub(crate) fn linear(counter: &Counter, given: &Linear<'_>, is_bf16: bool) {
    if counter.is_gpu() {
        return gpu::linear(counter, given, is_bf16);
    }
    let outputs = || given.weights.iter().map(|(weight, _)| weight.rows());
    let has_bias = given.weights.iter().any(|(_, bias)| bias.is_some());
    let _bias = has_bias.then(|| counter.take(outputs().sum()));
    if matmul::has_few_rows(given.x.rows()) {
        return;
    }
    let (rows, depth) = given.x.shape();
    let packed = Right::beside_len(counter.products(), depth, outputs());
    let _packed = counter.take(packed);
    let panels: usize = outputs().map(|cols| cols.div_ceil(matmul::WIDTH)).sum();
    let weights: Vec<_> = given.weights.iter().map(|(weight, _)| *weight).collect();
    unpacked(counter, &weights, (packed, panels), depth);
    drop(counter.take(along_len(counter, (rows, depth, panels * matmul::WIDTH))));
}

/// Gradients of projections: packed operands, and results that are transposed afterwards.
pub(crate) fn linear_backward(counter: &Counter, mut given: LinearBackward<'_>) {
    for job in &mut given.jobs {
        job.into.own();
        job.bias.iter_mut().for_each(|bias| bias.own());
    }
    if let Some((dx, _)) = &mut given.dx {
        dx.own();
    }
    if counter.is_gpu() {
        return gpu::linear_backward(counter, &given);
    }
    let weights = if given.dx.is_some() { given.weights } else { &[] };
    let mut taken: Vec<Counted> = Vec::new();
    let rows = |counter: &Counter, extent: Extent| match given.row_factors {
        None => rows(counter, extent),
        Some(_) => Some(counter.take(Right::beside_len(Products::F32, extent.0.0, [extent.0.1]))),
    };
    let products = match given.row_factors {
        None => counter.products(),
        Some(_) => Products::F32,
    };
    let (mut reads_input, mut turned, mut left) = (false, 0, 0);
    for job in &given.jobs {
        let ((count, outputs), _) = extent_of(&job.left);
        match job.right {
            Factor::InputOfLowRank => reads_input = true,
            Factor::Other(tensor) => taken.extend(rows(counter, extent(tensor))),
            Factor::Input => match given.x.filter(|x| x.cols() > outputs) {
                None => reads_input = true,
                Some(x) => {
                    taken.extend(rows(counter, extent_of(&job.left)));
                    taken.push(counter.take(x.cols() * outputs));
                    if job.fill == Fill::Add {
                        turned = turned.max(x.cols() * outputs);
                    }
                    left = left.max(matmul::left_len(products, x.cols(), count, outputs));
                    continue;
                }
            },
        }
        let inputs = match job.right {
            Factor::Other(tensor) => tensor.cols(),
            Factor::Input | Factor::InputOfLowRank => given.x.map_or(0, Tensor::cols),
        };
        left = left.max(matmul::left_len(products, outputs, count, inputs));
    }
    match weights {
        [] => {}
        [only] if only.format() == WeightFormat::F32 => taken.extend(rows(counter, extent(only))),
        [first, ..] => {
            let (depth, cols) = (weights.iter().map(|weight| weight.rows()).sum(), first.cols());
            let packed = Right::beside_len(counter.products(), depth, [cols]);
            taken.push(counter.take(packed));
            // In f32 they become that where the panels are.
            if counter.products() != Products::F32 {
                unpacked(counter, weights, (packed, cols.div_ceil(matmul::WIDTH)), depth);
            }
        }
    }
    if let Some((dx, _)) = &given.dx {
        let (rows, depth) = given.dy.shape();
        left = left.max(along_len(counter, (rows, depth, dx.cols())));
    }
    if let Some(x) = given.x.filter(|_| reads_input) {
        taken.extend(rows(counter, extent(x)));
    }
    if given.jobs.is_empty() && given.dx.is_none() {
        return;
    }
    // Tasks have given their packed rows back when results are transposed.
    drop(counter.take(left));
    drop(counter.take(turned));
}

/// Partial sums of a norm's weights.
pub(crate) fn norm_backward(counter: &Counter, dy: &Tensor) {
    if counter.is_gpu() {
        return gpu::norm_backward(counter, dy);
    }
    drop(counter.take(norm::partial_len(dy.rows(), dy.cols())));
}

/// What the tasks of attention work with at a time.
pub(crate) fn attention(counter: &Counter, given: &Attended<'_>, pass: attention::Pass) {
    if counter.is_gpu() {
        return gpu::attention(counter, given, pass);
    }
    all(counter, attention::workspace(counter.products(), (given.geometry, given.spans), pass));
}

/// What the tasks that find an example's squares work with at a time.
pub(crate) fn outer_squares(counter: &Counter, given: &Outer<'_>) {
    // The processor finds them.
    if counter.is_gpu() {
        return;
    }
    let outputs: Vec<usize> = given.lefts.iter().map(|left| left.columns.len()).collect();
    all(counter, example_squares::workspace(&outputs, given.right.cols(), given.examples));
}

/// A task that packs nothing: the smallest buffer there is.
fn nothing(counter: &Counter) {
    drop(counter.take(0));
}

/// Buffers that are there at once.
fn all(counter: &Counter, buffers: Vec<usize>) {
    drop(buffers.into_iter().map(|len| counter.take(len)).collect::<Vec<_>>());
}

/// Packed weights and a few rows of logits.
pub(crate) fn vocabulary_loss(counter: &Counter, given: &Vocabulary<'_>) {
    if counter.is_gpu() {
        return gpu::vocabulary_loss(counter, given);
    }
    let _packed = packed_vocabulary(counter, given);
    let rows = vocabulary::rows_at_once(given.weight.rows()).min(given.x.rows());
    logits(counter, given, (rows, given.dw.is_some()));
}

/// The same where examples are told apart: as many rows of logits as their squares are found of at once.
pub(crate) fn vocabulary_loss_by_example(
    counter: &Counter,
    given: &Vocabulary<'_>,
    examples: VocabularyExamples<'_>,
) {
    // The processor computes it.
    if counter.is_gpu() {
        return;
    }
    let _packed = packed_vocabulary(counter, given);
    let (words, width) = given.weight.shape();
    let most = vocabulary::rows_of_examples_at_once(words, width);
    for group in vocabulary::groups(examples.rows, most) {
        let here = &examples.rows[group];
        let rows = here.iter().map(ExactSizeIterator::len).sum::<usize>();
        let wanted = |is_wanted: bool, len: usize| counter.take(if is_wanted { len } else { 0 });
        if rows > most {
            let _dw = wanted(examples.weight, words * width);
            let _db = wanted(examples.bias, words);
            let rows = vocabulary::rows_at_once(words).min(rows);
            logits(counter, given, (rows, examples.weight));
            continue;
        }
        let _logits = counter.take(rows * words);
        nothing(counter);
        if examples.weight {
            all(counter, example_squares::workspace(&[words], width, here));
        }
        if examples.bias {
            drop(counter.take(here.len() * words));
        }
    }
}

/// The weight as right operand of both products.
fn packed_vocabulary(counter: &Counter, given: &Vocabulary<'_>) -> [Option<Counted>; 4] {
    let (words, width) = given.weight.shape();
    let right = |depth, cols| counter.take(Right::beside_len(counter.products(), depth, [cols]));
    [
        widened(counter, given.x),
        widened(counter, given.weight),
        Some(right(width, words)),
        given.dx.as_ref().map(|_| right(words, width)),
    ]
}

/// Some rows of logits, and what the gradient of the weight takes beside them.
fn logits(counter: &Counter, given: &Vocabulary<'_>, (count, has_gradient): (usize, bool)) {
    let (words, width) = given.weight.shape();
    let _logits = counter.take(count * words);
    drop(counter.take(along_len(counter, (count, width, words))));
    if given.dx.is_some() {
        drop(counter.take(along_len(counter, (count, words, width))));
    }
    if has_gradient {
        let _input = rows(counter, ((count, width), (width, 1)));
        drop(counter.take(matmul::left_len(counter.products(), words, count, width)));
    }
}
