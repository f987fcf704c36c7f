//! Projections and other products.

use crate::cuda::products::{Operand, Product};
use crate::cuda::{Buffer, Cuda, Numbers};
use crate::fill::Fill;
use crate::operands::{Factor, Linear, LinearBackward, View};
use crate::precision::Precision;
use crate::tensor::Tensor;
use std::ops::Range;
use std::sync::Arc;

/// Converted factors; they must be there until the product is on the stream.
type Held = Vec<Arc<Buffer>>;

/// A factor in the precision of products: some columns of a tensor.
fn factor(cuda: &Cuda, x: &View<'_>, held: &mut Held) -> Operand {
    let tensor = x.tensor;
    let half = cuda.is_bf16();
    let numbers = if let Some(unpacked) = super::quantised::unpacked(cuda, tensor, half) {
        let unpacked = Arc::new(unpacked);
        let numbers = unpacked.numbers(half);
        held.push(unpacked);
        numbers
    } else if tensor.is_bf16() == half {
        tensor.numbers()
    } else if half {
        let rounded = tensor.rounded();
        let numbers = rounded.numbers(true);
        held.push(rounded);
        numbers
    } else {
        let wide = Arc::new(cuda.take(tensor.elements()));
        cuda.convert(wide.numbers(false), tensor.numbers(), tensor.elements());
        let numbers = wide.numbers(false);
        held.push(wide);
        numbers
    };
    operand(numbers, x.columns.start, tensor.cols(), x.transposed)
}

fn operand(numbers: Numbers, first: usize, stride: usize, transposed: bool) -> Operand {
    let Numbers { address, half } = numbers.from(first);
    Operand { address, stride, half, transposed }
}

/// A bias in the precision of a result.
fn bias(bias: &Tensor, half: bool, held: &mut Held) -> u64 {
    if bias.is_bf16() == half {
        return bias.numbers().address;
    }
    assert!(half, "biases are f32 or are read as bf16");
    let rounded = bias.rounded();
    let address = rounded.numbers(true).address;
    held.push(rounded);
    address
}

pub(crate) fn matmul(
    cuda: &Cuda,
    (into, columns): (&mut Tensor, Range<usize>),
    fill: Fill,
    (left, right): (&View<'_>, &View<'_>),
) {
    let mut held = Held::new();
    let (rows, stride) = into.shape();
    let inner = if left.transposed { left.tensor.rows() } else { left.columns.len() };
    let into = operand(into.numbers_mut(), columns.start, stride, false);
    cuda.multiply(&Product {
        rows,
        inner,
        cols: columns.len(),
        left: factor(cuda, left, &mut held),
        right: factor(cuda, right, &mut held),
        into,
        plus: (fill == Fill::Add).then_some(into),
        bias: None,
        sums: None,
        tf32: cuda.precision() == Precision::Tf32,
    });
}

pub(crate) fn linear(
    cuda: &Cuda,
    given: &Linear<'_>,
    y: &mut Tensor,
    derivative: Option<&mut Tensor>,
) {
    if derivative.is_none() && super::decode::linear(cuda, given, y) {
        return;
    }
    let mut held = Held::new();
    let (rows, stride) = y.shape();
    let left = factor(cuda, &View::of(given.x), &mut held);
    let into = y.numbers_mut();
    let residual = given.residual.map(|residual| {
        if residual.is_bf16() == into.half {
            return residual.numbers();
        }
        let same = Arc::new(cuda.take(residual.elements()));
        cuda.convert(same.numbers(into.half), residual.numbers(), residual.elements());
        let numbers = same.numbers(into.half);
        held.push(same);
        numbers
    });
    let mut first = 0;
    for (weight, with) in given.weights {
        let outputs = weight.rows();
        cuda.multiply(&Product {
            rows,
            inner: weight.cols(),
            cols: outputs,
            left,
            right: factor(cuda, &View::of(weight).t(), &mut held),
            into: operand(into, first, stride, false),
            plus: residual.map(|numbers| operand(numbers, first, stride, false)),
            bias: with.map(|with| bias(with, into.half, &mut held)),
            sums: None,
            tf32: cuda.precision() == Precision::Tf32,
        });
        first += outputs;
    }
    if let Some(activation) = given.activation {
        super::activate(cuda, activation, y, derivative);
    }
}

pub(crate) fn linear_backward(cuda: &Cuda, given: LinearBackward<'_>) {
    let mut held = Held::new();
    let tf32 = cuda.precision() == Precision::Tf32;
    let (rows, stride) = given.dy.shape();
    if let Some((dx, fill)) = given.dx {
        let (into, mut fill) = (dx.numbers_mut(), fill);
        let mut first = 0;
        for weight in given.weights {
            let (outputs, inputs) = weight.shape();
            let into = operand(into, 0, inputs, false);
            let left = View::columns(given.dy, first..first + outputs);
            cuda.multiply(&Product {
                rows,
                inner: outputs,
                cols: inputs,
                left: factor(cuda, &left, &mut held),
                right: factor(cuda, &View::of(weight), &mut held),
                into,
                plus: (fill == Fill::Add).then_some(into),
                bias: None,
                sums: None,
                tf32,
            });
            fill = Fill::Add;
            first += outputs;
        }
    }
    // Gradients of all rows, or of rows that count differently.
    let weighted = given.row_factors.map(|factors| {
        let mut scaled = Tensor::activation(&given.dy.device(), rows, stride);
        super::scale_rows(cuda, &mut scaled, (given.dy, 0), factors);
        scaled
    });
    for job in given.jobs {
        let mut own = None;
        let left = match (&weighted, given.row_factors) {
            (Some(weighted), _) if std::ptr::eq(job.left.tensor, given.dy) => {
                View { tensor: weighted, ..job.left.clone() }
            }
            (_, Some(factors)) => {
                let cols = job.left.columns.len();
                let mut scaled = Tensor::activation(&given.dy.device(), rows, cols);
                let from = (job.left.tensor, job.left.columns.start);
                super::scale_rows(cuda, &mut scaled, from, factors);
                View::of(own.insert(scaled))
            }
            (_, None) => job.left.clone(),
        };
        let right = match job.right {
            Factor::Input | Factor::InputOfLowRank => {
                given.x.expect("a weight's gradient reads it")
            }
            Factor::Other(tensor) => tensor,
        };
        let (outputs, inputs) = job.into.shape();
        let into = operand(job.into.numbers_mut(), 0, inputs, false);
        let mut job_bias = job.bias;
        let sums = job_bias.as_deref_mut().map(Tensor::numbers_mut);
        let summed = cuda.multiply(&Product {
            rows: outputs,
            inner: rows,
            cols: inputs,
            left: factor(cuda, &left.clone().t(), &mut held),
            right: factor(cuda, &View::of(right), &mut held),
            into,
            plus: (job.fill == Fill::Add).then_some(into),
            bias: None,
            sums: sums.map(|sums| sums.address),
            tf32,
        });
        if let Some(bias) = job_bias.filter(|_| !summed) {
            super::column_sums(cuda, bias, &left);
        }
    }
}
