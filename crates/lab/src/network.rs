//! A student: attention, a value block, and for the bridge an MLP on top; loss and exact gradient.
//!
//! ```text
//! linear, softmax    f = A H V
//! softmax with MLP   X = A H V,   f = X O + tanh(X U) D
//! loss_m = 1/2 mean |Y - f|^2 + lam/2 (|V|^2 + |O|^2 + |U|^2 + |D|^2)
//! ```
//! Means run over a client's samples and tokens. The gradient is written by hand and can leave out query
//! and key, which is all that freezing is.

use fedra_seed::Seed;
use serde::{Deserialize, Serialize};

use crate::attention::{Attended, Attention};
use crate::client::Client;
use crate::matrix::Matrix;

/// The shape of a student.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// How tokens look at each other.
    pub attention: Attention,
    /// Hidden width of the MLP; 0 for none.
    pub mlp: usize,
    /// The weight of the ridge on everything but query and key.
    pub ridge: f64,
}

/// What a student learns.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// `Q`, tokens to queries.
    pub query: Matrix,
    /// `K`, tokens to keys.
    pub key: Matrix,
    /// `V`, the value block.
    pub value: Matrix,
    /// `O`, `U` and `D` of the MLP, or nothing.
    pub rest: Vec<Matrix>,
}

/// Sizes of a student.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Numbers per token, `d`.
    pub width: usize,
    /// Width of queries and keys.
    pub key_width: usize,
    /// Tokens per sample, `n`.
    pub tokens: usize,
    /// Outputs per token.
    pub outputs: usize,
}

impl Network {
    /// Weights to start from. The value block starts at zero where it is the last one.
    pub fn start(&self, sizes: Sizes, seed: Seed) -> Weights {
        let fan_in = |rows: usize| 1.0 / (rows as f64).sqrt();
        let draw = |rows: usize, columns: usize, name: &str| {
            Matrix::normal(rows, columns, fan_in(rows), &mut seed.of(name).generator())
        };
        let Sizes { width, key_width, outputs, .. } = sizes;
        let (value, rest) = if self.mlp == 0 {
            (Matrix::zeros(width, outputs), Vec::new())
        } else {
            let output = Matrix::zeros(width, outputs);
            let (up, down) = (draw(width, self.mlp, "up"), Matrix::zeros(self.mlp, outputs));
            (draw(width, width, "value"), vec![output, up, down])
        };
        let (query, key) = (draw(width, key_width, "query"), draw(width, key_width, "key"));
        Weights { query, key, value, rest }
    }

    /// The features `Z = A H` of a client at a kernel.
    pub fn features(&self, weights: &Weights, client: &Client) -> Matrix {
        self.attend(weights, client, &client.tokens).output
    }

    fn attend(&self, weights: &Weights, client: &Client, projected: &Matrix) -> Attended {
        let tokens = &client.tokens;
        let (queries, keys) = (tokens.times(&weights.query), tokens.times(&weights.key));
        self.attention.forward(queries, keys, projected, client.length)
    }

    /// A client's loss at some weights.
    pub fn loss(&self, weights: &Weights, client: &Client) -> f64 {
        let attended = self.attend(weights, client, &client.tokens.times(&weights.value));
        let missed = Head::of(weights, attended.output).output.minus(&client.targets);
        0.5 * missed.dot(&missed) / missed.rows() as f64 + 0.5 * self.ridge * weights.ridged()
    }

    /// A client's gradient at some weights.
    pub fn gradient(&self, weights: &Weights, client: &Client) -> Weights {
        let tokens = &client.tokens;
        let projected = tokens.times(&weights.value);
        let attended = self.attend(weights, client, &projected);
        let rows = tokens.rows() as f64;
        let head = Head::of(weights, attended.output.clone());
        let missed = head.output.minus(&client.targets).scaled(1.0 / rows);
        let (pull, mut rest) = head.backward(weights, missed);
        let pulled = self.attention.backward(&attended, &projected, &pull, client.length);
        let query = tokens.transposed_times(&pulled.queries);
        let key = tokens.transposed_times(&pulled.keys);
        let mut value = tokens.transposed_times(&pulled.projected);
        value.add_scaled(self.ridge, &weights.value);
        for (gradient, weight) in rest.iter_mut().zip(&weights.rest) {
            gradient.add_scaled(self.ridge, weight);
        }
        Weights { query, key, value, rest }
    }
}

/// What a federation averages: one matrix or several.
pub trait Blocks: Clone {
    /// Every matrix.
    fn parts(&self) -> impl Iterator<Item = &Matrix>;

    /// Every matrix, to be changed.
    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Matrix>;

    /// Adds `factor * other`.
    fn add_scaled(&mut self, factor: f64, other: &Self) {
        for (mine, theirs) in self.parts_mut().zip(other.parts()) {
            mine.add_scaled(factor, theirs);
        }
    }

    /// Zeros of the same shape.
    fn zeros(&self) -> Self {
        let mut zeros = self.clone();
        zeros.parts_mut().for_each(|part| part.values_mut().fill(0.0));
        zeros
    }

    /// Whether every number is one.
    fn is_finite(&self) -> bool {
        self.parts().all(Matrix::is_finite)
    }
}

impl Blocks for Matrix {
    fn parts(&self) -> impl Iterator<Item = &Matrix> {
        std::iter::once(self)
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Matrix> {
        std::iter::once(self)
    }
}

/// Query, key, value, then the MLP.
impl Blocks for Weights {
    fn parts(&self) -> impl Iterator<Item = &Matrix> {
        [&self.query, &self.key, &self.value].into_iter().chain(&self.rest)
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Matrix> {
        [&mut self.query, &mut self.key, &mut self.value].into_iter().chain(&mut self.rest)
    }
}

impl Weights {
    fn ridged(&self) -> f64 {
        self.value.dot(&self.value) + self.rest.iter().map(|part| part.dot(part)).sum::<f64>()
    }
}

/// What happens after attention.
struct Head {
    output: Matrix,
    /// `X`, and `tanh(X U)` where there is an MLP.
    saved: Option<(Matrix, Matrix)>,
}

impl Head {
    fn of(weights: &Weights, attended: Matrix) -> Self {
        let [straight, up, down] = weights.rest.as_slice() else {
            return Self { output: attended, saved: None };
        };
        let hidden = attended.times(up).map(tanh);
        let mut output = attended.times(straight);
        output.add_scaled(1.0, &hidden.times(down));
        Self { output, saved: Some((attended, hidden)) }
    }

    /// The gradient of attention's output, and of the MLP.
    fn backward(&self, weights: &Weights, pull: Matrix) -> (Matrix, Vec<Matrix>) {
        let (Some((attended, hidden)), [straight, up, down]) =
            (&self.saved, weights.rest.as_slice())
        else {
            return (pull, Vec::new());
        };
        let mut inner = pull.times(&down.transposed());
        for (slot, tanh) in inner.values_mut().iter_mut().zip(hidden.values()) {
            *slot *= 1.0 - tanh * tanh;
        }
        let mut below = pull.times(&straight.transposed());
        below.add_scaled(1.0, &inner.times(&up.transposed()));
        let rest = vec![
            attended.transposed_times(&pull),
            attended.transposed_times(&inner),
            hidden.transposed_times(&pull),
        ];
        (below, rest)
    }
}

/// The hyperbolic tangent, to within a few units of the last place of 1: several times as fast as the standard
/// one, which also keeps the relative accuracy near zero that a sum of hidden units has no use for.
pub(crate) fn tanh(x: f64) -> f64 {
    1.0 - 2.0 / ((2.0 * x).exp() + 1.0)
}

#[cfg(test)]
mod tests {
    use super::tanh;

    #[test]
    fn the_fast_tangent_is_the_standard_one_to_rounding() {
        for n in -4000..=4000 {
            let x = f64::from(n) / 100.0;
            assert!((tanh(x) - x.tanh()).abs() < 4.0 * f64::EPSILON, "at {x}");
        }
        assert_eq!((tanh(1e6), tanh(-1e6)), (1.0, -1.0));
    }
}
