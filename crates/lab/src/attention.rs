//! One attention layer, forwards and backwards, over packed samples of equal length.
//!
//! Attention is applied to the *projected* tokens `T = H V`, because `(A H) V = A (H V)` and the second
//! form is as narrow as the output. With `T = H` the same function gives the features `Z = A H` that the
//! closed forms are written in.
//!
//! ```text
//! linear    A = phi(HQ) phi(HK)^T / n               never formed: phi(HQ) [phi(HK)^T T / n]
//! softmax   A = softmax(HQ (HK)^T / sqrt(k))        row by row
//! ```

#![expect(clippy::inline_always, reason = "so that a width known to the compiler is known inside")]

use serde::{Deserialize, Serialize};

use crate::matrix::Matrix;
use crate::phi::Phi;

/// How tokens look at each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attention {
    /// Without a normalisation, through a feature map.
    Linear(Phi),
    /// As in a Transformer.
    Softmax,
}

/// What attention gave, and what its backward needs.
pub struct Attended {
    /// `A T`.
    pub output: Matrix,
    queries: Matrix,
    keys: Matrix,
    /// Linear: `phi(HK)^T T / n` of each sample. Softmax: the weights `A` of each sample.
    inner: Matrix,
}

/// Gradients of the inputs of attention.
pub struct Pulled {
    /// Of `H Q`.
    pub queries: Matrix,
    /// Of `H K`.
    pub keys: Matrix,
    /// Of `T`.
    pub projected: Matrix,
}

impl Attention {
    /// `A T` for queries `H Q`, keys `H K` and projected tokens `T`, in samples of `length` rows.
    pub fn forward(
        self,
        queries: Matrix,
        keys: Matrix,
        projected: &Matrix,
        length: usize,
    ) -> Attended {
        match self {
            Self::Linear(phi) => linear(phi, queries, keys, projected, length),
            Self::Softmax => softmax(queries, keys, projected, length),
        }
    }

    /// Gradients from the gradient of the output.
    pub fn backward(
        self,
        at: &Attended,
        projected: &Matrix,
        pull: &Matrix,
        length: usize,
    ) -> Pulled {
        match self {
            Self::Linear(phi) => linear_backward(phi, at, projected, pull, length),
            Self::Softmax => softmax_backward(at, projected, pull, length),
        }
    }
}

fn linear(phi: Phi, queries: Matrix, keys: Matrix, projected: &Matrix, length: usize) -> Attended {
    let (queries, keys) = (queries.map(|x| phi.value(x)), keys.map(|x| phi.value(x)));
    let (key_width, width) = (keys.columns(), projected.columns());
    let samples = projected.rows() / length;
    let mut inner = Matrix::zeros(samples * key_width, width);
    let mut output = Matrix::zeros(projected.rows(), width);
    let share = 1.0 / length as f64;
    for sample in 0..samples {
        let span = sample * length;
        let meet = &mut inner.values_mut()[sample * key_width * width..][..key_width * width];
        add_outer(keys.row_span(span, length), projected.row_span(span, length), width, meet);
        for value in meet.iter_mut() {
            *value *= share;
        }
        let out = &mut output.values_mut()[span * width..][..length * width];
        add_product(queries.row_span(span, length), meet, width, out);
    }
    Attended { output, queries, keys, inner }
}

fn linear_backward(
    phi: Phi,
    at: &Attended,
    projected: &Matrix,
    pull: &Matrix,
    length: usize,
) -> Pulled {
    let (key_width, width) = (at.keys.columns(), projected.columns());
    let share = 1.0 / length as f64;
    let mut queries = Matrix::zeros(at.queries.rows(), key_width);
    let mut keys = queries.clone();
    let mut pulled = Matrix::zeros(projected.rows(), width);
    let mut meet_pull = vec![0.0; key_width * width];
    for sample in 0..projected.rows() / length {
        let span = sample * length;
        let meet = at.inner.row_span(sample * key_width, key_width);
        let pull = pull.row_span(span, length);
        meet_pull.fill(0.0);
        add_outer(at.queries.row_span(span, length), pull, width, &mut meet_pull);
        for value in &mut meet_pull {
            *value *= share;
        }
        let place = span * key_width..(span + length) * key_width;
        add_transposed_product(pull, meet, width, &mut queries.values_mut()[place.clone()]);
        let tokens = projected.row_span(span, length);
        add_transposed_product(tokens, &meet_pull, width, &mut keys.values_mut()[place]);
        let out = &mut pulled.values_mut()[span * width..][..length * width];
        add_product(at.keys.row_span(span, length), &meet_pull, width, out);
    }
    for (gradient, value) in [(&mut queries, &at.queries), (&mut keys, &at.keys)] {
        for (slot, value) in gradient.values_mut().iter_mut().zip(value.values()) {
            *slot *= phi.slope_at_value(*value);
        }
    }
    Pulled { queries, keys, projected: pulled }
}

fn softmax(queries: Matrix, keys: Matrix, projected: &Matrix, length: usize) -> Attended {
    let (key_width, width) = (keys.columns(), projected.columns());
    let scale = 1.0 / (key_width as f64).sqrt();
    let mut weights = Matrix::zeros(projected.rows(), length);
    let mut output = Matrix::zeros(projected.rows(), width);
    for sample in 0..projected.rows() / length {
        let span = sample * length;
        let place = &mut weights.values_mut()[span * length..][..length * length];
        let (queries, keys) = (queries.row_span(span, length), keys.row_span(span, length));
        add_transposed_product(queries, keys, key_width, place);
        for row in place.chunks_exact_mut(length) {
            let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            for score in row.iter_mut() {
                *score = (scale * (*score - top)).exp();
            }
            let sum: f64 = row.iter().sum();
            for score in row.iter_mut() {
                *score /= sum;
            }
        }
        let out = &mut output.values_mut()[span * width..][..length * width];
        add_product(place, projected.row_span(span, length), width, out);
    }
    Attended { output, queries, keys, inner: weights }
}

fn softmax_backward(at: &Attended, projected: &Matrix, pull: &Matrix, length: usize) -> Pulled {
    let (key_width, width) = (at.keys.columns(), projected.columns());
    let scale = 1.0 / (key_width as f64).sqrt();
    let mut queries = Matrix::zeros(at.queries.rows(), key_width);
    let mut keys = queries.clone();
    let mut pulled = Matrix::zeros(projected.rows(), width);
    let mut scores = vec![0.0; length * length];
    for sample in 0..projected.rows() / length {
        let span = sample * length;
        let weights = at.inner.row_span(span, length);
        let pull = pull.row_span(span, length);
        add_outer(weights, pull, width, &mut pulled.values_mut()[span * width..][..length * width]);
        scores.fill(0.0);
        add_transposed_product(pull, projected.row_span(span, length), width, &mut scores);
        for (row, weights) in scores.chunks_exact_mut(length).zip(weights.chunks_exact(length)) {
            let mean: f64 = row.iter().zip(weights).map(|(pull, weight)| pull * weight).sum();
            for (slot, weight) in row.iter_mut().zip(weights) {
                *slot = scale * weight * (*slot - mean);
            }
        }
        let place = span * key_width..(span + length) * key_width;
        let out = &mut queries.values_mut()[place.clone()];
        add_product(&scores, at.keys.row_span(span, length), key_width, out);
        let out = &mut keys.values_mut()[place];
        add_outer(&scores, at.queries.row_span(span, length), key_width, out);
    }
    Pulled { queries, keys, projected: pulled }
}

// Widths known to the compiler stay in registers.
macro_rules! by_width {
    ($($name:ident = $any:ident,)+) => {$(
        fn $name(left: &[f64], right: &[f64], width: usize, out: &mut [f64]) {
            match width {
                2 => $any(left, right, 2, out),
                6 => $any(left, right, 6, out),
                12 => $any(left, right, 12, out),
                _ => $any(left, right, width, out),
            }
        }
    )+};
}

by_width! {
    // `out += left^T right`, both as rows of one sample; `right` has `width` columns.
    add_outer = add_outer_any,
    // `out += left right`; `right` and `out` have `width` columns.
    add_product = add_product_any,
    // `out += left right^T`; `left` and `right` have `width` columns.
    add_transposed_product = add_transposed_product_any,
}

#[inline(always)]
fn add_outer_any(left: &[f64], right: &[f64], width: usize, out: &mut [f64]) {
    let left_width = out.len() / width;
    for (left, right) in left.chunks_exact(left_width).zip(right.chunks_exact(width)) {
        for (out, a) in out.chunks_exact_mut(width).zip(left) {
            for (slot, b) in out.iter_mut().zip(right) {
                *slot += a * b;
            }
        }
    }
}

#[inline(always)]
fn add_product_any(left: &[f64], right: &[f64], width: usize, out: &mut [f64]) {
    let depth = right.len() / width;
    for (out, left) in out.chunks_exact_mut(width).zip(left.chunks_exact(depth)) {
        for (right, a) in right.chunks_exact(width).zip(left) {
            for (slot, b) in out.iter_mut().zip(right) {
                *slot += a * b;
            }
        }
    }
}

#[inline(always)]
fn add_transposed_product_any(left: &[f64], right: &[f64], width: usize, out: &mut [f64]) {
    let columns = right.len() / width;
    for (out, left) in out.chunks_exact_mut(columns).zip(left.chunks_exact(width)) {
        for (slot, right) in out.iter_mut().zip(right.chunks_exact(width)) {
            *slot += left.iter().zip(right).map(|(a, b)| a * b).sum::<f64>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_seed::Seed;

    #[test]
    fn fixed_widths_give_the_bits_of_any_width() {
        let mut generator = Seed(4).generator();
        let mut draw = |count: usize| (0..count).map(|_| generator.normal()).collect::<Vec<f64>>();
        for width in [2, 6, 12] {
            let (left, right, start) = (draw(5 * 3), draw(5 * width), draw(3 * width));
            let (mut fixed, mut any) = (start.clone(), start);
            add_outer(&left, &right, width, &mut fixed);
            add_outer_any(&left, &right, width, &mut any);
            assert_eq!(fixed, any);
            let (left, right, start) = (draw(5 * 3), draw(3 * width), draw(5 * width));
            let (mut fixed, mut any) = (start.clone(), start);
            add_product(&left, &right, width, &mut fixed);
            add_product_any(&left, &right, width, &mut any);
            assert_eq!(fixed, any);
            let (left, right, start) = (draw(5 * width), draw(3 * width), draw(15));
            let (mut fixed, mut any) = (start.clone(), start);
            add_transposed_product(&left, &right, width, &mut fixed);
            add_transposed_product_any(&left, &right, width, &mut any);
            assert_eq!(fixed, any);
        }
    }
}
