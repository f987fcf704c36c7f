//! What kernels are given: tensors by the names that they have in an operation.

use crate::activation::Activation;
use crate::cpu::attention_inputs::{Columns, Inputs};
use crate::cpu::columns::Part;
use crate::cpu::losses::Factors;
use crate::cpu::matmul::Mat;
use crate::cpu::vocabulary::Loss;
use crate::device::Device;
use crate::fill::Fill;
use crate::geometry::{Attention, Span};
use crate::solver::SolverStep;
use crate::storage::Numbers;
use crate::tensor::Tensor;
use std::ops::Range;

/// Some columns of a tensor, or their transpose.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    pub tensor: &'a Tensor,
    pub columns: Range<usize>,
    pub transposed: bool,
}

impl<'a> View<'a> {
    pub fn of(tensor: &'a Tensor) -> Self {
        Self { tensor, columns: 0..tensor.cols(), transposed: false }
    }

    pub fn columns(tensor: &'a Tensor, columns: Range<usize>) -> Self {
        Self { tensor, columns, transposed: false }
    }

    pub fn t(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// The view over numbers that were read from its tensor.
    pub fn mat<'n>(&self, numbers: &'n Numbers<'_>) -> Mat<'n> {
        let (rows, stride) = self.tensor.shape();
        let from = self.columns.start.min(numbers.len());
        let mat = Mat::strided(&numbers[from..], rows, self.columns.len(), stride);
        if self.transposed { mat.t() } else { mat }
    }
}

/// Projections of one input side by side, with what a Transformer puts around them.
#[derive(Debug)]
pub(crate) struct Linear<'a> {
    pub x: &'a Tensor,
    /// `[outputs, inputs]` and one number per output, if there is a bias.
    pub weights: &'a [(&'a Tensor, Option<&'a Tensor>)],
    pub residual: Option<&'a Tensor>,
    pub activation: Option<Activation>,
}

/// A weight's gradient to be computed: `into = left^T right`, or added to what is there.
#[derive(Debug)]
pub(crate) struct WeightGradient<'a> {
    pub into: &'a mut Tensor,
    pub fill: Fill,
    pub left: View<'a>,
    pub right: Factor<'a>,
    /// Receives the column sums of `left`: a bias gradient.
    pub bias: Option<&'a mut Tensor>,
}

/// The right operand of a weight's gradient.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Factor<'a> {
    /// The operation's input.
    Input,
    /// The operation's input, for the narrow gradient of a low-rank factor.
    InputOfLowRank,
    /// Another tensor.
    Other(&'a Tensor),
}

/// Gradients of projections of one input, carried out together.
#[derive(Debug)]
pub(crate) struct LinearBackward<'a> {
    pub dy: &'a Tensor,
    /// The input, if a weight's gradient reads it.
    pub x: Option<&'a Tensor>,
    pub weights: &'a [&'a Tensor],
    /// Receives `dy W`.
    pub dx: Option<(&'a mut Tensor, Fill)>,
    pub jobs: Vec<WeightGradient<'a>>,
    /// What each row counts in the weights' gradients, if not one; there are no biases then.
    pub row_factors: Option<&'a [f32]>,
}

impl<'a> WeightGradient<'a> {
    /// The numbers of its operands, except the operation's input.
    pub fn read(&self) -> (Numbers<'a>, Option<Numbers<'a>>) {
        let other = match self.right {
            Factor::Input | Factor::InputOfLowRank => None,
            Factor::Other(tensor) => Some(tensor.read()),
        };
        (self.left.tensor.read(), other)
    }
}

/// Gradients `left^T right` of weights that share their input, by the rows of each example.
#[derive(Debug)]
pub(crate) struct Outer<'a> {
    pub lefts: &'a [View<'a>],
    pub right: &'a Tensor,
    pub examples: &'a [Range<usize>],
}

/// What attention reads. Queries are the first columns of a tensor; keys, then values, start at
/// `key_column` of one tensor for all spans, or of one tensor per span.
#[derive(Debug)]
pub(crate) struct Attended<'a> {
    pub geometry: Attention,
    pub spans: &'a [Span],
    pub queries: &'a Tensor,
    pub keys_values: &'a [&'a Tensor],
    pub key_column: usize,
}

impl Attended<'_> {
    /// Runs something on a copy in the processor's memory.
    pub fn on_host<R>(&self, run: impl FnOnce(&Attended<'_>) -> R) -> R {
        let host = Device::cpu();
        let queries = self.queries.to(&host);
        let keys_values: Vec<Tensor> = self.keys_values.iter().map(|x| x.to(&host)).collect();
        let keys_values: Vec<&Tensor> = keys_values.iter().collect();
        run(&Attended { queries: &queries, keys_values: &keys_values, ..*self })
    }

    /// Runs something on the processor's view of the inputs.
    pub fn on_cpu<R>(&self, run: impl FnOnce(Inputs<'_>) -> R) -> R {
        let queries = self.queries.read();
        let numbers: Vec<_> = self.keys_values.iter().map(|tensor| tensor.read()).collect();
        let value_column = self.key_column + self.geometry.kv_heads * self.geometry.width;
        let keys_values: Vec<[Columns<'_>; 2]> = numbers
            .iter()
            .zip(self.keys_values)
            .map(|(data, tensor)| {
                let stride = tensor.cols();
                [self.key_column, value_column].map(|column| Columns { data, stride, column })
            })
            .collect();
        let q = Columns { data: &queries, stride: self.queries.cols(), column: 0 };
        run(Inputs { q, keys_values: &keys_values })
    }
}

/// Columns that are multiplied by a weight, in groups of its length; with an epsilon each group is
/// normalised first.
#[derive(Debug)]
pub(crate) struct ColumnFactors<'a> {
    pub parts: &'a [(Range<usize>, Tensor)],
    pub epsilon: Option<f32>,
}

impl ColumnFactors<'_> {
    /// Runs something on the processor's view of it.
    pub fn on_cpu<R>(&self, run: impl FnOnce(&[Part<'_>]) -> R) -> R {
        let weights: Vec<_> = self.parts.iter().map(|(_, weight)| weight.read()).collect();
        let both = self.parts.iter().zip(&weights);
        let parts: Vec<_> =
            both.map(|((columns, _), weight)| Part { columns: columns.clone(), weight }).collect();
        run(&parts)
    }
}

/// The vocabulary loss, and the gradients that are wanted.
#[derive(Debug)]
pub(crate) struct Vocabulary<'a> {
    pub x: &'a Tensor,
    pub weight: &'a Tensor,
    pub bias: Option<&'a Tensor>,
    pub soft_cap: Option<f32>,
    pub labels: &'a [u32],
    pub factors: Factors<'a>,
    pub dx: Option<&'a mut Tensor>,
    pub dw: Option<&'a mut Tensor>,
    pub db: Option<&'a mut Tensor>,
}

impl Vocabulary<'_> {
    /// Runs something on the processor's view of it.
    pub fn on_cpu<R>(self, run: impl FnOnce(Loss<'_>) -> R) -> R {
        let (x, weight, bias) = (self.x.read(), self.weight.read(), self.bias.map(Tensor::read));
        run(Loss {
            x: x.mat(self.x),
            weight: weight.mat(self.weight),
            bias: bias.as_deref(),
            soft_cap: self.soft_cap,
            labels: self.labels,
            factors: self.factors,
            dx: self.dx.map(Tensor::write),
            dw: self.dw.map(Tensor::write),
            db: self.db.map(Tensor::write),
        })
    }
}

/// One parameter and what its step needs.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub weight: &'a mut Tensor,
    /// Empty where the solver has fewer.
    pub moments: [&'a mut Tensor; 2],
    pub slope: GradientView<'a>,
    pub step: SolverStep,
}

/// The gradient of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GradientView<'a> {
    /// Of every element.
    Dense(&'a Tensor),
    /// Of some rows, ascending; of the others it is zero.
    Rows {
        rows: &'a [u32],
        values: &'a Tensor,
        /// Which rows ever had one, if that is known: the others have no moments and only decay.
        touched: Option<&'a [bool]>,
    },
}
