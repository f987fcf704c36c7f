//! Projections of one input and their gradients, with everything around them fused in.
//!
//! A bias or a residual is what the sums start from; an activation is applied before a block leaves
//! the cache. Backward, the gradients of input and weights do not depend on each other, so their
//! tasks run together, and a bias gradient falls out of its weight's.

use super::activation;
use super::elementwise;
use super::matmul::{
    Extras, Finish, Mat, MatMut, Product, Right, Start, Stored, has_few_rows, multiply,
    multiply_stored, multiply_together, transpose_into,
};
use super::shared::Shared;
use crate::activation::Activation;
use crate::fill::Fill;
use crate::pool::{Buffer, Pool};
use crate::thread_pool;

/// What is projected, and what is put around it.
#[derive(Debug)]
pub struct Forward<'a> {
    /// The input.
    pub x: Mat<'a>,
    /// Each `[outputs, inputs]`; their results are side by side.
    pub weights: &'a [Stored<'a>],
    /// One for each weight, or none.
    pub biases: &'a [Option<&'a [f32]>],
    /// Added to the result.
    pub residual: Option<Mat<'a>>,
    /// Applied to the result.
    pub activation: Option<Activation>,
}

/// `y = activation(x W^T + b + residual)`, and the activation's derivative where wanted.
pub fn forward(pool: &Pool, given: &Forward<'_>, y: &mut [f32], derivative: Option<&mut [f32]>) {
    let (rows, outputs) = (given.x.rows(), given.weights.iter().map(Stored::rows).sum());
    let bias = joined_bias(pool, given, outputs);
    let start = match (&bias, given.residual) {
        (Some(bias), Some(residual)) => Start::BiasAndResidual(bias, residual),
        (None, Some(residual)) => Start::Residual(residual),
        (Some(bias), None) => Start::Bias(bias),
        (None, None) => Start::Zero,
    };
    let derivative = derivative.map(Shared::new);
    let activate = |row: usize, column: usize, segment: &mut [f32]| {
        // SAFETY: a row segment is finished by exactly one task.
        let derivative =
            derivative.map(|all| unsafe { all.segment(row * outputs + column, segment.len()) });
        if let Some(activation) = given.activation {
            activation::apply(activation, segment, derivative);
        }
    };
    let finish = given.activation.map(|_| &activate as Finish<'_>);
    let into = MatMut::new(y, rows, outputs);
    if has_few_rows(rows) {
        return multiply_stored(into, given.x, given.weights, start, finish);
    }
    let right = Right::beside_stored(pool, given.weights);
    multiply(into, given.x, &right, start, Extras { finish, row_sums: None });
}

/// Applies an activation in place, and writes its derivative where wanted.
pub fn activate(activation: Activation, y: &mut [f32], derivative: Option<&mut [f32]>) {
    let derivative = derivative.map(Shared::new);
    thread_pool::each_chunk(y, elementwise::RUN, |task, y| {
        // SAFETY: each task has a run of its own.
        let derivative =
            derivative.map(|all| unsafe { all.segment(task * elementwise::RUN, y.len()) });
        activation::apply(activation, y, derivative);
    });
}

/// The biases side by side, zeros where a weight has none; `None` when none has one.
fn joined_bias(pool: &Pool, given: &Forward<'_>, outputs: usize) -> Option<Buffer> {
    if given.biases.iter().all(Option::is_none) {
        return None;
    }
    let mut joined = pool.zeros(outputs);
    let mut rest = &mut joined[..];
    for (weight, bias) in given.weights.iter().zip(given.biases) {
        let (now, later) = rest.split_at_mut(weight.rows());
        if let Some(bias) = bias {
            now.copy_from_slice(bias);
        }
        rest = later;
    }
    Some(joined)
}

/// One weight's gradient to be computed: `into = left^T right`, or added to what is there.
#[derive(Debug)]
pub struct Job<'a> {
    /// The gradient.
    pub into: &'a mut [f32],
    /// What happens to the numbers already there.
    pub fill: Fill,
    /// The gradient of the result.
    pub left: Mat<'a>,
    /// What it was multiplied with.
    pub right: Factor<'a>,
    /// Receives the column sums of `left`.
    pub bias: Option<&'a mut [f32]>,
}

/// The right operand of a weight's gradient.
#[derive(Clone, Copy, Debug)]
pub enum Factor<'a> {
    /// The operation's input.
    Input,
    /// The input, for a low-rank factor: it is too narrow for a transpose to save anything.
    InputOfLowRank,
    /// Another matrix.
    Other(Mat<'a>),
}

/// How a job's product is carried out.
enum Plan<'a> {
    /// With the input as the right operand.
    Input,
    /// With another one.
    Other(Right<'a>),
    /// With operands exchanged, because the input is the wider one: that leaves less to pack. The
    /// result is transposed.
    Turned { input: Mat<'a>, left: Right<'a>, result: Buffer },
}

/// What gradients are computed from.
#[derive(Clone, Copy, Debug)]
pub struct Backward<'a, 'w> {
    /// The gradient of the result.
    pub dy: Mat<'a>,
    /// The input, if a job reads it.
    pub x: Option<Mat<'a>>,
    /// The weights, if the gradient of the input is wanted.
    pub weights: &'w [Stored<'a>],
    /// What each row counts in the jobs, if not one; biases then do not fall out.
    pub row_factors: Option<&'w [f32]>,
}

/// `dx = dy W`, and each job.
pub fn backward<'a>(
    pool: &Pool,
    given: Backward<'a, '_>,
    dx: Option<(MatMut<'_>, Fill)>,
    jobs: &mut [Job<'a>],
) {
    let Backward { dy, x, weights, row_factors } = given;
    let pack = |mat: Mat<'a>| match row_factors {
        None => Right::rows(pool, mat),
        Some(factors) => Right::scaled_rows(pool, mat, factors),
    };
    let mut plans: Vec<Plan<'_>> = jobs.iter().map(|job| job.plan(pool, x, pack)).collect();
    let stacked = dx.as_ref().map(|_| Right::stacked_stored(pool, weights));
    let reads_input = plans.iter().any(|plan| matches!(plan, Plan::Input));
    let input = x.filter(|_| reads_input).map(pack);
    let mut products = Vec::with_capacity(1 + jobs.len());
    if let (Some((dx, fill)), Some(stacked)) = (dx, &stacked) {
        products.push(Product::new(dx, dy, stacked, start(fill), Extras::default()));
    }
    for (job, plan) in jobs.iter_mut().zip(&mut plans) {
        products.push(job.product(plan, input.as_ref()));
    }
    multiply_together(&products);
    drop(products);
    for (job, plan) in jobs.iter_mut().zip(plans) {
        job.finish(pool, plan);
    }
}

impl<'a> Job<'a> {
    fn plan(
        &self,
        pool: &Pool,
        x: Option<Mat<'a>>,
        pack: impl Fn(Mat<'a>) -> Right<'a>,
    ) -> Plan<'a> {
        match self.right {
            Factor::InputOfLowRank => Plan::Input,
            Factor::Other(right) => Plan::Other(pack(right)),
            Factor::Input => match x.filter(|x| x.cols() > self.left.cols()) {
                None => Plan::Input,
                Some(input) => Plan::Turned {
                    input,
                    left: pack(self.left),
                    result: pool.take(input.cols() * self.left.cols()),
                },
            },
        }
    }

    fn product<'p>(&'p mut self, plan: &'p mut Plan<'a>, x: Option<&'p Right<'a>>) -> Product<'p> {
        let rows = self.left.cols();
        let right = match plan {
            Plan::Input => x.expect("an input is saved whenever a weight reads it"),
            Plan::Other(right) => right,
            Plan::Turned { input, left, result } => {
                let into = MatMut::new(result, input.cols(), rows);
                return Product::new(into, input.t(), left, Start::Zero, Extras::default());
            }
        };
        if let Some(sums) = &mut self.bias {
            sums.fill(0.0);
        }
        let extras = Extras { finish: None, row_sums: self.bias.as_deref_mut() };
        let into = MatMut::new(self.into, rows, right.cols());
        Product::new(into, self.left.t(), right, start(self.fill), extras)
    }

    /// Puts a turned result where it belongs.
    fn finish(&mut self, pool: &Pool, plan: Plan<'_>) {
        let Plan::Turned { input, result, .. } = plan else { return };
        match self.fill {
            Fill::Overwrite => transpose_into(self.into, input.cols(), &result),
            Fill::Add => {
                let mut turned = pool.take(result.len());
                transpose_into(&mut turned, input.cols(), &result);
                elementwise::add_scaled(self.into, 1.0, &turned);
            }
        }
        if let Some(sums) = &mut self.bias {
            column_sums(sums, self.left);
        }
    }
}

/// What the sums of a product start from, for a way to fill its destination.
pub fn start(fill: Fill) -> Start<'static> {
    match fill {
        Fill::Overwrite => Start::Zero,
        Fill::Add => Start::Keep,
    }
}

/// Column sums, rows added in order.
pub fn column_sums(into: &mut [f32], dy: Mat<'_>) {
    const COLUMNS: usize = 64;
    into.fill(0.0);
    thread_pool::each_chunk(into, COLUMNS, |task, sums| {
        dy.t().add_row_sums(task * COLUMNS, 0..dy.rows(), sums);
    });
}
