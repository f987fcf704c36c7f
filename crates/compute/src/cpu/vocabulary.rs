//! Cross-entropy over a vocabulary, a few rows of logits at a time.

use super::elementwise;
use super::example_squares::{self, Outer};
use super::losses::{self, Factors};
use super::matmul::{Extras, Mat, MatMut, Right, Start, multiply};
use crate::pool::Pool;
use std::ops::Range;

/// Logits held at once, in floats (16 MiB).
const HELD: usize = 1 << 22;

/// The loss of `x W^T + b`, and the gradients that are wanted, which are overwritten.
#[derive(Debug)]
pub struct Loss<'a> {
    /// Rows that have a target.
    pub x: Mat<'a>,
    /// Words by features.
    pub weight: Mat<'a>,
    /// One number per word.
    pub bias: Option<&'a [f32]>,
    /// Logits `l` become `cap * tanh(l / cap)`.
    pub soft_cap: Option<f32>,
    /// The word that each row should have predicted.
    pub labels: &'a [u32],
    /// What each row counts.
    pub factors: Factors<'a>,
    /// Of the input.
    pub dx: Option<&'a mut [f32]>,
    /// Of the weight.
    pub dw: Option<&'a mut [f32]>,
    /// Of the bias.
    pub db: Option<&'a mut [f32]>,
}

/// What the loss is to find out about each example.
#[derive(Clone, Copy, Debug)]
pub struct VocabularyExamples<'a> {
    /// The rows of each example.
    pub rows: &'a [Range<usize>],
    /// Whether the squares of the weight's gradient are wanted.
    pub weight: bool,
    /// Whether the squares of the bias's gradient are wanted.
    pub bias: bool,
}

/// Rows whose logits exist at once.
pub fn rows_at_once(words: usize) -> usize {
    (HELD / words).clamp(16, 1024)
}

/// The same where examples are told apart.
pub fn rows_of_examples_at_once(words: usize, width: usize) -> usize {
    (HELD.max(words * width) / words).max(16)
}

/// The weighted sum of the rows' losses.
pub fn run(pool: &Pool, loss: Loss<'_>) -> f64 {
    let step = rows_at_once(loss.weight.rows());
    let weight = PackedWeight::of(pool, &loss);
    run_watched(pool, loss, (&weight, step), |_, _| ())
}

/// The weight as right operand of both products.
struct PackedWeight {
    forward: Right<'static>,
    backward: Option<Right<'static>>,
}

impl PackedWeight {
    fn of(pool: &Pool, loss: &Loss<'_>) -> Self {
        let forward = Right::beside(pool, &[loss.weight.t()]);
        let backward = loss.dx.is_some().then(|| Right::stacked(pool, &[loss.weight]));
        Self { forward, backward }
    }
}

/// [`run`] with so many rows of logits at once; `watch` sees their gradient and their input.
fn run_watched(
    pool: &Pool,
    loss: Loss<'_>,
    (packed, step): (&PackedWeight, usize),
    mut watch: impl FnMut(Mat<'_>, Mat<'_>),
) -> f64 {
    let Loss { x, weight, bias, soft_cap, labels, factors, mut dx, mut dw, mut db } = loss;
    let (rows, width, words) = (x.rows(), x.cols(), weight.rows());
    let start = bias.map_or(Start::Zero, Start::Bias);
    let mut logits = pool.take(step.min(rows) * words);
    let mut sum = 0.0;
    if let Some(db) = db.as_deref_mut() {
        db.fill(0.0);
    }
    for first in (0..rows).step_by(step) {
        let now = first..rows.min(first + step);
        let input = x.rows_of(now.clone());
        let logits = &mut logits[..now.len() * words];
        let into = MatMut::new(logits, now.len(), words);
        multiply(into, input, &packed.forward, start, Extras::default());
        let counted = factors.of(now.clone());
        sum += losses::cross_entropy_rows((logits, words), soft_cap, &labels[now.clone()], counted);
        let slope = Mat::new(logits, now.len(), words);
        watch(slope, input);
        if let (Some(dx), Some(backward)) = (dx.as_deref_mut(), &packed.backward) {
            let into = &mut dx[now.start * width..now.end * width];
            let into = MatMut::new(into, now.len(), width);
            multiply(into, slope, backward, Start::Zero, Extras::default());
        }
        if let Some(dw) = dw.as_deref_mut() {
            let right = Right::rows(pool, input);
            let start = if first == 0 { Start::Zero } else { Start::Keep };
            let extras = Extras { finish: None, row_sums: db.as_deref_mut() };
            multiply(MatMut::new(dw, words, width), slope.t(), &right, start, extras);
        } else if let Some(db) = db.as_deref_mut() {
            for row in logits.chunks_exact(words) {
                elementwise::add_scaled(db, 1.0, row);
            }
        }
    }
    sum
}

/// The weighted sum of the rows' losses, and for each example the squares of its gradients of weight and
/// bias, where wanted.
///
/// Logits of as many examples as fit are held at once: as much memory as the weight's gradient would
/// take, which this does not hold. An example that is longer than that has its gradient made.
pub fn run_by_example(
    pool: &Pool,
    loss: Loss<'_>,
    examples: VocabularyExamples<'_>,
) -> (f64, [Vec<f64>; 2]) {
    let packed = PackedWeight::of(pool, &loss);
    let Loss { x, weight, bias, soft_cap, labels, factors, mut dx, .. } = loss;
    let (width, words) = (x.cols(), weight.rows());
    let most = rows_of_examples_at_once(words, width);
    let squares_if = |wanted: bool| vec![0.0; if wanted { examples.rows.len() } else { 0 }];
    let mut squares = [examples.weight, examples.bias].map(squares_if);
    let mut sum = 0.0;
    for group in groups(examples.rows, most) {
        let all = &examples.rows[group.clone()];
        let rows = all.first().map_or(0, |rows| rows.start)..all.last().map_or(0, |rows| rows.end);
        let part = |dw, db| Loss {
            x: x.rows_of(rows.clone()),
            weight,
            bias,
            soft_cap,
            labels: &labels[rows.clone()],
            factors: factors.of(rows.clone()),
            dx: None,
            dw,
            db,
        };
        let dx = dx.as_deref_mut().map(|dx| &mut dx[rows.start * width..rows.end * width]);
        if rows.len() > most {
            let mut dw = pool.take(if examples.weight { words * width } else { 0 });
            let mut db = pool.take(if examples.bias { words } else { 0 });
            let dw_wanted = examples.weight.then_some(&mut dw[..]);
            let db_wanted = examples.bias.then_some(&mut db[..]);
            let whole = Loss { dx, ..part(dw_wanted, db_wanted) };
            sum += run_watched(pool, whole, (&packed, rows_at_once(words)), |_, _| ());
            for (squares, gradient) in squares.iter_mut().zip([&dw, &db]) {
                if let Some(square) = squares.get_mut(group.start) {
                    *square = elementwise::sum_of_squares(gradient);
                }
            }
            continue;
        }
        let here: Vec<Range<usize>> =
            all.iter().map(|range| range.start - rows.start..range.end - rows.start).collect();
        let watch = |slope: Mat<'_>, input: Mat<'_>| {
            let [weights, biases] = &mut squares;
            if examples.weight {
                let given = Outer { lefts: &[slope], right: input };
                example_squares::outer(pool, given, &here, &mut weights[group.clone()]);
            }
            if examples.bias {
                let mut sums = pool.take(here.len() * words);
                example_squares::column_sums(&mut sums, slope, &here);
                for (square, sums) in biases[group.clone()].iter_mut().zip(sums.chunks_exact(words))
                {
                    *square = elementwise::sum_of_squares(sums);
                }
            }
        };
        sum += run_watched(pool, Loss { dx, ..part(None, None) }, (&packed, most), watch);
    }
    (sum, squares)
}

/// Runs of neighbouring examples with at most so many rows, or of one example.
pub fn groups(rows: &[Range<usize>], most: usize) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (example, range) in rows.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if range.end - rows[group.start].start <= most => group.end = example + 1,
            Some(_) | None => groups.push(example..example + 1),
        }
    }
    groups
}
