//! Squared norms of each example's weight gradient, without making the gradient.
//!
//! An example's gradient of a weight is `L^T R` over its rows: `L` the gradient of the result, `R` the
//! input. For few rows its norm is cheaper than itself, because with `s`, `t` over the example's rows
//!
//! ```text
//! |L^T R|^2 = sum over s, t of (L_s . L_t) (R_s . R_t)
//! ```
//!
//! Both factors are symmetric, so only tiles on and below the diagonal are computed. For many rows
//! `L^T R` itself is cheaper and is made in scratch memory, one example at a time.
//!
//! A clip that trusts a norm must not trust one that is too small. Rounding errors of the sum grow with
//! `D = sum over t of |L_t|^2 |R_t|^2`, while the sum itself shrinks where rows cancel. So each result is
//! compared with its `D`, and with what f32 loses below its smallest number; where rounding could show
//! in the sixth digit, the example is computed again in f64. Inner products are cut into short runs for
//! the same reason. What is not finite stays so: the caller is to see it.

use super::bf16_products::Products;
use super::elementwise;
use super::matmul::{self, Mat, MatMut, Right, Start, multiply_serial};
use super::shared::Shared;
use super::simd::vectorised;
use crate::pool::{Buffer, Pool};
use crate::thread_pool::{self, ThreadPool};
use std::ops::Range;

/// Products are f32 on any device.
const PRODUCTS: Products = Products::F32;
/// Rows of a tile: two strips of the product's kernel.
const TILE: usize = 28;
/// Longest inner product that is summed in one chain.
const RUN: usize = 256;
/// `D / square` up to which a sum of inner products is trusted. Its relative error is estimated at
/// `4e-7 D / square`, errors of chains taken as independent; a clip's margin covers several times that.
/// It is an estimate, not a bound: tests with rows that cancel hold it.
const TRUSTED_PRODUCTS: f64 = 4.0;
/// The same for a gradient made in f32, whose error grows with the root of `D` only.
const TRUSTED_GRADIENT: f64 = 256.0;
/// What f32 loses per product below its smallest number must be this much smaller than the result.
const TRUSTED_UNDERFLOW: f64 = 1e-7;

/// Gradients `left^T right` of some weights that share their input, by rows of examples.
#[derive(Clone, Copy, Debug)]
pub struct Outer<'a> {
    /// Gradients of results; all weights count together.
    pub lefts: &'a [Mat<'a>],
    /// The input.
    pub right: Mat<'a>,
}

/// The squared norm of each example's gradients.
pub fn outer(pool: &Pool, given: Outer<'_>, examples: &[Range<usize>], into: &mut [f64]) {
    assert_eq!(examples.len(), into.len(), "a square for each example");
    // A norm that bounds something is not rounded to bf16.
    let pool = &pool.with_products(PRODUCTS);
    thread_pool::each_chunk(into, 1, |example, square| {
        let rows = examples[example].clone();
        let lefts: Vec<_> = given.lefts.iter().map(|left| left.rows_of(rows.clone())).collect();
        let here = Outer { lefts: &lefts, right: given.right.rows_of(rows) };
        square[0] = here.square(pool);
    });
}

/// The buffers that the tasks of [`outer`] work with at a time, if each has the longest example: weights of
/// so many outputs, and so many inputs.
pub fn workspace(outputs: &[usize], inputs: usize, examples: &[Range<usize>]) -> Vec<usize> {
    let rows = examples.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    let all = outputs.iter().sum();
    if rows == 0 || all == 0 {
        return Vec::new();
    }
    let one = if is_cheaper_by_products(rows, inputs, all) {
        let deepest = outputs.iter().chain([&inputs]).map(|depth| depth_of_runs(*depth)).max();
        let right = Right::beside_len(PRODUCTS, deepest.unwrap_or(0), [rows]);
        vec![rows * rows, rows * rows, right, TILE * rows, 0]
    } else {
        let widest = outputs.iter().copied().max().unwrap_or(0);
        let right = Right::rows_len(PRODUCTS, (rows, inputs), (inputs, 1));
        let packed = [right].into_iter().filter(|len| *len > 0);
        packed
            .chain([widest * inputs, matmul::serial_len(PRODUCTS, widest, rows, inputs)])
            .collect()
    };
    one.repeat(ThreadPool::current_threads().min(examples.len()))
}

/// Whether half of two squares of inner products costs less than the gradient itself.
fn is_cheaper_by_products(rows: usize, inputs: usize, outputs: usize) -> bool {
    rows * (inputs + outputs) < 2 * inputs * outputs
}

/// The longest of the equal runs into which inner products of so many columns are cut.
fn depth_of_runs(columns: usize) -> usize {
    columns.div_ceil(columns.div_ceil(RUN).max(1))
}

/// `into[e] = sum over the rows of example e of x`, added in f64.
pub fn column_sums(into: &mut [f32], x: Mat<'_>, examples: &[Range<usize>]) {
    let width = x.cols();
    assert_eq!(into.len(), examples.len() * width, "a row of sums for each example");
    thread_pool::each_chunk(into, width.max(1), |example, into| {
        let mut sums = vec![0.0; width];
        for row in examples[example].clone() {
            add_row(&mut sums, x.row(row));
        }
        into.iter_mut().zip(&sums).for_each(|(into, sum)| *into = *sum as f32);
    });
}

/// For each example the squared norm of the sum of its rows that have the same index.
pub fn lookup(from: Mat<'_>, index: &[u32], examples: &[Range<usize>], into: &mut [f64]) {
    assert_eq!(examples.len(), into.len(), "a square for each example");
    thread_pool::each_chunk(into, 1, |example, square| {
        let mut places: Vec<usize> = examples[example].clone().collect();
        places.sort_by_key(|&place| index[place]);
        let mut sums = vec![0.0; from.cols()];
        let same_row = |a: &usize, b: &usize| index[*a] == index[*b];
        square[0] = places
            .chunk_by(same_row)
            .map(|places| {
                sums.fill(0.0);
                for &place in places {
                    add_row(&mut sums, from.row(place));
                }
                sums.iter().map(|sum| sum * sum).sum::<f64>()
            })
            .sum();
    });
}

/// `into = sum over e of factors[e] * x[e]`; a factor of zero leaves the row out, whatever it holds.
pub fn weighted_rows(into: &mut [f32], x: Mat<'_>, factors: &[f32]) {
    into.fill(0.0);
    for (example, &factor) in factors.iter().enumerate().filter(|(_, factor)| **factor != 0.0) {
        into.iter_mut().zip(x.row(example)).for_each(|(into, x)| *into += factor * x);
    }
}

/// `x[i] *= factors[i]` row by row; a factor of zero makes zeros, whatever was there.
pub fn scale_rows(x: &mut [f32], width: usize, factors: &[f32]) {
    let rows = (elementwise::RUN / width.max(1)).max(1);
    thread_pool::each_chunk(x, rows * width, |task, x| {
        for (row, &factor) in x.chunks_exact_mut(width).zip(&factors[task * rows..]) {
            if factor == 0.0 {
                row.fill(0.0);
            } else if factor != 1.0 {
                elementwise::scale_run(row, factor);
            }
        }
    });
}

impl Outer<'_> {
    fn square(&self, pool: &Pool) -> f64 {
        let (rows, inputs) = (self.right.rows(), self.right.cols());
        let outputs: usize = self.lefts.iter().map(|left| left.cols()).sum();
        if rows == 0 || outputs == 0 || self.is_zero() {
            return 0.0;
        }
        let by_products = is_cheaper_by_products(rows, inputs, outputs);
        let found = if by_products { self.products(pool) } else { self.gradient(pool) };
        if found.is_trusted() { found.square } else { self.exact() }
    }

    /// Whether no row of an example has a gradient: the loss does not read it.
    fn is_zero(&self) -> bool {
        let zero = |mat: &Mat<'_>| {
            (0..mat.rows()).all(|row| mat.row(row).iter().all(|x| x.to_bits() << 1 == 0))
        };
        let finite = |mat: Mat<'_>| (0..mat.rows()).all(|row| is_finite(mat.row(row)));
        self.lefts.iter().all(zero) && finite(self.right)
    }

    /// From inner products of rows.
    fn products(&self, pool: &Pool) -> Found {
        let rows = self.right.rows();
        let deepest = self.lefts.iter().chain([&self.right]).map(|part| depth_of_runs(part.cols()));
        let room = Right::beside_len(PRODUCTS, deepest.max().unwrap_or(0), [rows]);
        let mut work = Workspace {
            right: Right::empty(pool, room),
            tile: pool.take(TILE * rows),
            scratch: pool.take(0),
        };
        let mut by_right = pool.take(rows * rows);
        inner_products(&mut by_right, &[self.right], &mut work);
        let mut by_left = pool.take(rows * rows);
        inner_products(&mut by_left, self.lefts, &mut work);
        let (mut square, mut size, mut traces) = (0.0, 0.0, 0.0);
        for row in 0..rows {
            let (tile, end) = (row / TILE * TILE, rows.min(row / TILE * TILE + TILE));
            let (x, y) = (&by_right[row * rows..], &by_left[row * rows..]);
            square += 2.0 * product_sum(&x[..tile], &y[..tile]);
            square += product_sum(&x[tile..end], &y[tile..end]);
            let (x, y) = (f64::from(x[row]), f64::from(y[row]));
            size += x * y;
            traces += x + y;
        }
        let depth = self.right.cols() + self.lefts.iter().map(|left| left.cols()).sum::<usize>();
        // |(s, t)| is at most the mean of (s, s) and (t, t), so all of them at most rows * trace.
        let lost = f64::from(f32::MIN_POSITIVE) * (depth * rows) as f64 * traces;
        Found { square, size, lost, trusted: TRUSTED_PRODUCTS }
    }

    /// From the gradient itself.
    fn gradient(&self, pool: &Pool) -> Found {
        let (rows, inputs) = (self.right.rows(), self.right.cols());
        let right = Right::rows(pool, self.right);
        let mut scratch = pool.take(0);
        let mut square = 0.0;
        for left in self.lefts {
            let mut gradient = pool.take(left.cols() * inputs);
            let into = MatMut::new(&mut gradient, left.cols(), inputs);
            multiply_serial(into, left.t(), &right, Start::Zero, &mut scratch);
            square += elementwise::sum_of_squares(&gradient);
        }
        let squares = |mat: Mat<'_>, row| product_sum(mat.row(row), mat.row(row));
        let left = |row| self.lefts.iter().map(|left| squares(*left, row)).sum::<f64>();
        let size = (0..rows).map(|row| left(row) * squares(self.right, row)).sum();
        let elements = self.lefts.iter().map(|left| left.cols() * inputs).sum::<usize>();
        let lost = elements as f64 * f64::from(f32::MIN_POSITIVE);
        Found { square, size, lost, trusted: TRUSTED_GRADIENT }
    }

    /// From the gradient itself, in f64.
    fn exact(&self) -> f64 {
        let mut sums = vec![0.0; self.right.cols()];
        let mut square = 0.0;
        for left in self.lefts {
            for column in 0..left.cols() {
                sums.fill(0.0);
                for row in 0..left.rows() {
                    add_scaled_row(
                        &mut sums,
                        f64::from(left.row(row)[column]),
                        self.right.row(row),
                    );
                }
                square += sums.iter().map(|sum| sum * sum).sum::<f64>();
            }
        }
        square
    }
}

/// A square, and what says whether it can be believed.
struct Found {
    square: f64,
    /// `D`: the squares of the rows' own contributions.
    size: f64,
    /// At most so much was below the smallest number.
    lost: f64,
    trusted: f64,
}

impl Found {
    fn is_trusted(&self) -> bool {
        !self.square.is_finite()
            || (self.size <= self.trusted * self.square
                && self.lost <= TRUSTED_UNDERFLOW * self.square)
    }
}

/// One task's memory for inner products.
struct Workspace {
    right: Right<'static>,
    tile: Buffer,
    scratch: Buffer,
}

/// Inner products of all pairs of rows, over all parts: tiles on and below the diagonal.
fn inner_products(into: &mut [f32], parts: &[Mat<'_>], work: &mut Workspace) {
    let rows = parts.first().map_or(0, |part| part.rows());
    let mut first = true;
    for part in parts {
        let runs = part.cols().div_ceil(RUN);
        for run in 0..runs {
            let depth = part.cols() * run / runs..part.cols() * (run + 1) / runs;
            let part = part.columns(depth);
            work.right.repack(part.t());
            for start in (0..rows).step_by(TILE) {
                let end = rows.min(start + TILE);
                let left = part.rows_of(start..end);
                if first {
                    let tile = MatMut::strided(&mut into[start * rows..], end - start, end, rows);
                    multiply_serial(tile, left, &work.right, Start::Zero, &mut work.scratch);
                    continue;
                }
                let tile = &mut work.tile[..(end - start) * end];
                let product = MatMut::new(tile, end - start, end);
                multiply_serial(product, left, &work.right, Start::Zero, &mut work.scratch);
                for (row, more) in tile.chunks_exact(end).enumerate() {
                    elementwise::add_run(&mut into[(start + row) * rows..][..end], 1.0, more);
                }
            }
            first = false;
        }
    }
}

/// The weight and bias gradients of a norm for each example, in f64; see [`super::norm`].
pub fn norm_weights(
    saved: &super::norm::Saved<'_>,
    dy: Mat<'_>,
    examples: &[Range<usize>],
    [weights, biases]: [&mut [f32]; 2],
) {
    let width = dy.cols();
    let biases = Shared::new(biases);
    thread_pool::each_chunk(weights, width, |example, weights| {
        let (mut weight_sums, mut bias_sums) = (vec![0.0; width], vec![0.0; width]);
        for row in examples[example].clone() {
            let x = &saved.x[row * width..][..width];
            let stats = (saved.stats[2 * row], saved.stats[2 * row + 1]);
            add_norm_row(&mut weight_sums, &mut bias_sums, x, stats, dy.row(row));
        }
        // SAFETY: each task writes its own example's row.
        let biases = unsafe { biases.segment(example * width, width) };
        weights.iter_mut().zip(&weight_sums).for_each(|(into, sum)| *into = *sum as f32);
        biases.iter_mut().zip(&bias_sums).for_each(|(into, sum)| *into = *sum as f32);
    });
}

vectorised! {
    fn add_norm_row(
        weights: &mut [f64],
        biases: &mut [f64],
        x: &[f32],
        stats: (f32, f32),
        dy: &[f32],
    ) {
        for (((weight, bias), x), dy) in weights.iter_mut().zip(biases).zip(x).zip(dy) {
            *weight += f64::from(*dy) * f64::from((x - stats.0) * stats.1);
            *bias += f64::from(*dy);
        }
    }
}

vectorised! {
    fn add_row(sums: &mut [f64], row: &[f32]) {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += f64::from(*x);
        }
    }
}

vectorised! {
    fn add_scaled_row(sums: &mut [f64], factor: f64, row: &[f32]) {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += factor * f64::from(*x);
        }
    }
}

vectorised! {
    fn is_finite(x: &[f32]) -> bool {
        x.iter().fold(true, |so_far, x| so_far & x.is_finite())
    }
}

vectorised! {
    /// The inner product in f64, in eight lanes.
    fn product_sum(x: &[f32], y: &[f32]) -> f64 {
        const LANES: usize = 8;
        let mut lanes = [0.0; LANES];
        for (x, y) in x.chunks(LANES).zip(y.chunks(LANES)) {
            for ((lane, x), y) in lanes.iter_mut().zip(x).zip(y) {
                *lane += f64::from(*x) * f64::from(*y);
            }
        }
        lanes.iter().sum()
    }
}
