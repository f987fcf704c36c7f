//! Losses: logits become the gradient, and the loss stays on the device.

use super::examples::{PendingSquares, add_square, zeros};
use crate::cpu::losses::Factors;
use crate::cpu::vocabulary::{self, VocabularyExamples};
use crate::cuda::arguments::{Grid, arguments};
use crate::cuda::compiler::Source::Losses;
use crate::cuda::moves::copy;
use crate::cuda::{Buffer, Cuda};
use crate::fill::Fill;
use crate::operands::{Outer, View, Vocabulary};
use crate::tensor::Tensor;
use std::ops::Range;

/// Logits held at once, in numbers.
pub(crate) const HELD: usize = 1 << 27;

pub(crate) fn cross_entropy(
    cuda: &Cuda,
    logits: &mut Tensor,
    labels: &[u32],
    factors: Factors<'_>,
    loss: &mut Tensor,
) {
    let losses = rows_losses(cuda, logits, (labels, None), factors);
    total(cuda, &losses, labels.len(), factors.divisor, (loss, Fill::Overwrite));
}

/// Turns rows of logits into their gradient; the losses of all rows.
fn rows_losses(
    cuda: &Cuda,
    logits: &mut Tensor,
    (labels, soft_cap): (&[u32], Option<f32>),
    factors: Factors<'_>,
) -> Buffer {
    let (rows, cols) = logits.shape();
    let losses = cuda.take(rows.max(1));
    let labels = cuda.upload(labels);
    let weights = factors.weights.map(|weights| cuda.upload(weights));
    let (share, class_weights) = match factors.smoothing {
        None => (0.0, None),
        Some(smoothing) => (smoothing.share, smoothing.class_weights),
    };
    let all = match class_weights {
        None => cols as f64,
        Some(weights) => weights.iter().map(|&weight| f64::from(weight)).sum(),
    };
    let class_weights = class_weights.map(|weights| cuda.upload(weights));
    let threads = if cols > 4096 { 1024 } else { 128 };
    let given = arguments![
        logits.numbers_mut(),
        &labels,
        weights.as_ref(),
        class_weights.as_ref(),
        soft_cap.unwrap_or(0.0),
        factors.divisor as f32,
        share,
        all as f32,
        losses.address,
        cols as u32
    ];
    if rows > 0 {
        cuda.launch((Losses, "cross_entropy"), Grid::blocks((rows as u32, 1), (threads, 1)), given);
    }
    losses
}

fn total(
    cuda: &Cuda,
    losses: &Buffer,
    rows: usize,
    divisor: f64,
    (loss, fill): (&mut Tensor, Fill),
) {
    let adds = u32::from(fill == Fill::Add);
    let given = arguments![loss.numbers_mut(), losses.address, rows as u32, divisor as f32, adds];
    cuda.launch((Losses, "total"), Grid::blocks((1, 1), (256, 1)), given);
}

pub(crate) fn binary_cross_entropy(
    cuda: &Cuda,
    logits: &mut Tensor,
    targets: &[f32],
    factors: Factors<'_>,
    loss: &mut Tensor,
) {
    let (rows, cols) = logits.shape();
    let losses = cuda.take(rows.max(1));
    let targets = cuda.upload(targets);
    let weights = factors.weights.map(|weights| cuda.upload(weights));
    let divisor = factors.divisor as f32;
    let numbers = logits.numbers_mut();
    let given =
        arguments![numbers, &targets, weights.as_ref(), divisor, losses.address, cols as u32];
    let grid = Grid::blocks((rows as u32, 1), (128, 1));
    cuda.launch((Losses, "binary_cross_entropy"), grid, given);
    total(cuda, &losses, rows, factors.divisor, (loss, Fill::Overwrite));
}

/// Cross-entropy over a vocabulary, as many rows of logits at a time as are worth their memory.
pub(crate) fn vocabulary_loss(cuda: &Cuda, mut given: Vocabulary<'_>, loss: &mut Tensor) {
    let rows = given.x.rows();
    let step = rows_at_once(&given);
    let mut fill = Fill::Overwrite;
    for first in (0..rows).step_by(step) {
        run_rows(cuda, &mut given, first..rows.min(first + step), (loss, fill));
        fill = Fill::Add;
    }
}

/// Rows whose logits exist at once.
fn rows_at_once(given: &Vocabulary<'_>) -> usize {
    (HELD / given.weight.rows()).clamp(16, given.x.rows().max(16))
}

/// The loss and the gradients of some rows, which are added to those of others where `fill` says so; the gradient
/// of the logits, and these rows of the input.
fn run_rows(
    cuda: &Cuda,
    given: &mut Vocabulary<'_>,
    now: Range<usize>,
    (loss, fill): (&mut Tensor, Fill),
) -> (Tensor, Tensor) {
    let Vocabulary { x, weight, bias, soft_cap, labels, factors, dx, dw, db } = given;
    let device = x.device();
    let ((rows, width), words) = (x.shape(), weight.rows());
    let input = if now.len() == rows {
        x.clone()
    } else {
        let mut part = Tensor::activation(&device, now.len(), width);
        let from = x.numbers().from(now.start * width);
        let count = part.elements();
        copy(cuda, (part.numbers_mut(), count), (from, count), (1, count));
        part
    };
    let mut logits = Tensor::activation(&device, now.len(), words);
    let projection = crate::operands::Linear {
        x: &input,
        weights: &[(weight, *bias)],
        residual: None,
        activation: None,
    };
    super::linear(cuda, &projection, &mut logits, None);
    let counted = factors.of(now.clone());
    let losses = rows_losses(cuda, &mut logits, (&labels[now.clone()], *soft_cap), counted);
    total(cuda, &losses, now.len(), factors.divisor, (loss, fill));
    if let Some(dx) = dx.as_deref_mut() {
        let mut part = Tensor::activation(&device, now.len(), width);
        let both = (&View::of(&logits), &View::of(weight));
        super::matmul(cuda, (&mut part, 0..width), Fill::Overwrite, both);
        let into = dx.numbers_mut().from(now.start * width);
        let count = part.elements();
        copy(cuda, (into, count), (part.numbers(), count), (1, count));
    }
    if let Some(dw) = dw.as_deref_mut() {
        let both = (&View::of(&logits).t(), &View::of(&input));
        super::matmul(cuda, (dw, 0..width), fill, both);
    }
    if let Some(db) = db.as_deref_mut() {
        if fill == Fill::Overwrite {
            super::column_sums(cuda, db, &View::of(&logits));
        } else {
            let mut part = Tensor::scratch(&device, 1, words);
            super::column_sums(cuda, &mut part, &View::of(&logits));
            super::add_scaled(cuda, db, 1.0, &part);
        }
    }
    (logits, input)
}

/// The same without gradients of weights, and for each example the squared norms of its own of weight and bias,
/// where wanted, as f64. An example with more rows of logits than are held at once has its gradients made.
pub(crate) fn vocabulary_loss_by_example(
    cuda: &Cuda,
    mut given: Vocabulary<'_>,
    examples: VocabularyExamples<'_>,
    loss: &mut Tensor,
) -> [Option<Buffer>; 2] {
    let device = given.x.device();
    let (words, width) = given.weight.shape();
    let most = rows_at_once(&given);
    let wanted = [examples.weight, examples.bias];
    let squares = wanted.map(|wanted| wanted.then(|| zeros(cuda, examples.rows.len())));
    loss.clear();
    for group in vocabulary::groups(examples.rows, most) {
        let all = &examples.rows[group.clone()];
        let rows = all.first().map_or(0, |rows| rows.start)..all.last().map_or(0, |rows| rows.end);
        let into = |squares: &Option<Buffer>| {
            squares.as_ref().map(|squares| squares.address + 8 * group.start as u64)
        };
        if rows.len() > most {
            let sums = |wanted: bool, rows| wanted.then(|| Tensor::scratch(&device, rows, width));
            let mut dw = sums(examples.weight, words);
            let mut db = examples.bias.then(|| Tensor::scratch(&device, 1, words));
            let (mut of_example, mut fill) = (Tensor::scratch(&device, 1, 1), Fill::Overwrite);
            for first in rows.clone().step_by(most) {
                let mut part = Vocabulary {
                    dx: given.dx.as_deref_mut(),
                    dw: dw.as_mut(),
                    db: db.as_mut(),
                    ..given
                };
                let now = first..rows.end.min(first + most);
                run_rows(cuda, &mut part, now, (&mut of_example, fill));
                fill = Fill::Add;
            }
            super::add_scaled(cuda, loss, 1.0, &of_example);
            for (into, gradient) in squares.each_ref().map(into).into_iter().zip([dw, db]) {
                if let (Some(into), Some(gradient)) = (into, gradient) {
                    add_square(cuda, into, &gradient);
                }
            }
            continue;
        }
        let here: Vec<Range<usize>> =
            all.iter().map(|range| range.start - rows.start..range.end - rows.start).collect();
        let (slopes, input) = run_rows(cuda, &mut given, rows, (loss, Fill::Add));
        let [weight, bias] = squares.each_ref().map(into);
        if let Some(into) = weight {
            let lefts = [View::of(&slopes)];
            let outer = Outer { lefts: &lefts, right: &input, examples: &here };
            let mut squares = PendingSquares::new(cuda, here.len());
            // Logits are computed and rounded again when the factors are known.
            squares.add_outer(&outer, 2);
            squares.launch(into);
        }
        if let Some(into) = bias {
            // A bias is a table of one row that every row looks up.
            let mut squares = PendingSquares::new(cuda, here.len());
            squares.add_lookup((&slopes, &vec![0; slopes.rows()]), &here);
            squares.launch(into);
        }
    }
    squares
}
