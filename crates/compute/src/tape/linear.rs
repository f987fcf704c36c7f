//! Linear projections, fused with what a Transformer puts around them.
//!
//! Several projections of one input (query, key, value; gate, up) are one product. A bias or a
//! residual is what the sums start from; an activation is applied before the block leaves the
//! cache. Saves the input when a weight trains, and an activation's derivative instead of its input.
//!
//! ```text
//! y = activation(x W^T + b + s (x A^T) B^T) or x W^T + b + s (x A^T) B^T + residual
//! ```

use super::projection::{Activation, Lora, Projection};
use super::{Flow, Recorded, Slot, Tape, Value};
use crate::cpu::matmul::{
    Extras, Mat, MatMut, Product, Right, Start, multiply, multiply_together, transpose_into,
};
use crate::cpu::shared::Shared;
use crate::cpu::{elementwise, math};
use crate::crew;
use crate::device::Device;
use crate::error::ComputeError;
use crate::params::Weight;
use crate::pool::{Buffer, Pool};
use crate::tensor::Tensor;
use fedra_plan::ParamId;

impl Tape {
    /// Projections of one input, their results side by side.
    pub fn linear(&mut self, x: &Value, projections: &[Projection]) -> Result<Value, ComputeError> {
        self.project(x, projections, Around::Nothing)
    }

    /// A projection followed by an activation.
    pub fn linear_activated(
        &mut self,
        x: &Value,
        projection: &Projection,
        activation: Activation,
    ) -> Result<Value, ComputeError> {
        self.project(x, std::slice::from_ref(projection), Around::Activation(activation))
    }

    /// A projection added onto a residual stream.
    pub fn linear_onto(
        &mut self,
        x: &Value,
        projection: &Projection,
        residual: &Value,
    ) -> Result<Value, ComputeError> {
        self.project(x, std::slice::from_ref(projection), Around::Residual(residual))
    }

    fn project(
        &mut self,
        x: &Value,
        projections: &[Projection],
        around: Around<'_>,
    ) -> Result<Value, ComputeError> {
        let (rows, inputs) = x.tensor.shape();
        if projections.is_empty() {
            return Err(ComputeError::Empty { operation: "linear", what: "list of projections" });
        }
        for projection in projections {
            projection.check(inputs)?;
        }
        let outputs = projections.iter().map(Projection::outputs).sum();
        if let Around::Residual(residual) = around {
            let shape = residual.tensor.shape();
            ComputeError::expect("linear", "residual shape", shape, (rows, outputs))?;
        }
        let residual = match around {
            Around::Residual(residual) => residual.slot,
            Around::Nothing | Around::Activation(_) => None,
        };
        let trains = projections.iter().any(Projection::trains);
        let wanted = trains || x.slot.is_some() || residual.is_some();
        let mut y = Tensor::scratch(&self.device, rows, outputs);
        let activated = matches!(around, Around::Activation(_)) && wanted;
        let mut derivative = activated.then(|| Tensor::scratch(&self.device, rows, outputs));
        let mut low_rank = Vec::new();
        match &self.device {
            Device::Cpu(pool) => {
                let into = derivative.as_mut().map(Tensor::data_mut);
                forward(pool, x, projections, around, y.data_mut(), into, &mut low_rank);
            }
        }
        let reads_input = projections.iter().any(Projection::reads_input);
        Ok(self.finish(y, wanted, |result| Linear {
            result,
            x: reads_input.then(|| x.tensor.clone()),
            x_slot: x.slot,
            x_shape: (rows, inputs),
            residual,
            derivative,
            low_rank,
            projections: projections.to_vec(),
        }))
    }
}

#[derive(Clone, Copy)]
enum Around<'a> {
    Nothing,
    Residual(&'a Value),
    Activation(Activation),
}

/// Runs the product; `low_rank` receives `x A^T` of each projection that has a correction.
fn forward(
    pool: &Pool,
    x: &Value,
    projections: &[Projection],
    around: Around<'_>,
    y: &mut [f32],
    derivative: Option<&mut [f32]>,
    low_rank: &mut Vec<Option<Tensor>>,
) {
    let (rows, outputs) = (x.tensor.rows(), projections.iter().map(Projection::outputs).sum());
    let weights: Vec<_> = projections.iter().map(|p| p.weight.tensor.mat().t()).collect();
    let right = Right::beside(pool, &weights);
    let bias = joined_bias(pool, projections, outputs);
    let start = match (&bias, around) {
        (Some(bias), Around::Residual(residual)) => {
            Start::BiasAndResidual(bias, residual.tensor.mat())
        }
        (None, Around::Residual(residual)) => Start::Residual(residual.tensor.mat()),
        (Some(bias), Around::Nothing | Around::Activation(_)) => Start::Bias(bias),
        (None, Around::Nothing | Around::Activation(_)) => Start::Zero,
    };
    let corrected = projections.iter().any(|projection| projection.lora.is_some());
    let derivative = derivative.map(Shared::new);
    let activate = |row: usize, column: usize, segment: &mut [f32]| {
        // SAFETY: a row segment is finished by exactly one task.
        let derivative =
            derivative.map(|all| unsafe { all.segment(row * outputs + column, segment.len()) });
        if let Around::Activation(activation) = around {
            apply(activation, segment, derivative);
        }
    };
    let finish: Option<crate::cpu::matmul::Finish<'_>> = match around {
        Around::Activation(_) if !corrected => Some(&activate),
        Around::Activation(_) | Around::Nothing | Around::Residual(_) => None,
    };
    let extras = Extras { finish, row_sums: None };
    multiply(MatMut::new(y, rows, outputs), x.tensor.mat(), &right, start, extras);
    let mut column = 0;
    for projection in projections {
        low_rank.push(projection.lora.as_ref().map(|lora| {
            correct(
                pool,
                x,
                lora,
                MatMut::strided(&mut y[column..], rows, projection.outputs(), outputs),
            )
        }));
        column += projection.outputs();
    }
    if corrected && matches!(around, Around::Activation(_)) {
        for (row, segment) in y.chunks_exact_mut(outputs).enumerate() {
            activate(row, 0, segment);
        }
    }
}

/// Adds `s (x A^T) B^T` to `y` and returns `s x A^T`.
fn correct(pool: &Pool, x: &Value, lora: &Lora, y: MatMut<'_>) -> Tensor {
    let rank = lora.a.tensor.rows();
    let mut low = Tensor::scratch(&Device::Cpu(pool.clone()), x.tensor.rows(), rank);
    let right = Right::beside(pool, &[lora.a.tensor.mat().t()]);
    let into = MatMut::new(low.data_mut(), x.tensor.rows(), rank);
    multiply(into, x.tensor.mat(), &right, Start::Zero, Extras::default());
    elementwise::scale(low.data_mut(), lora.scale);
    let right = Right::beside(pool, &[lora.b.tensor.mat().t()]);
    multiply(y, low.mat(), &right, Start::Keep, Extras::default());
    low
}

fn apply(activation: Activation, segment: &mut [f32], derivative: Option<&mut [f32]>) {
    match (activation, derivative) {
        (Activation::Gelu, Some(derivative)) => math::gelu_with_derivative(segment, derivative),
        (Activation::Gelu, None) => math::gelu_in_place(segment),
        (Activation::Tanh, derivative) => {
            for x in &mut *segment {
                *x = x.tanh();
            }
            for (d, y) in derivative.into_iter().flatten().zip(&*segment) {
                *d = 1.0 - y * y;
            }
        }
    }
}

/// The biases side by side, zeros where a projection has none; `None` when none has one.
fn joined_bias(pool: &Pool, projections: &[Projection], outputs: usize) -> Option<Buffer> {
    if projections.iter().all(|projection| projection.bias.is_none()) {
        return None;
    }
    let mut joined = pool.zeros(outputs);
    let mut rest = &mut joined[..];
    for projection in projections {
        let (now, later) = rest.split_at_mut(projection.outputs());
        if let Some(bias) = &projection.bias {
            now.copy_from_slice(bias.tensor.data());
        }
        rest = later;
    }
    Some(joined)
}

#[derive(Debug)]
struct Linear {
    result: Slot,
    x: Option<Tensor>,
    x_slot: Option<Slot>,
    x_shape: (usize, usize),
    residual: Option<Slot>,
    derivative: Option<Tensor>,
    low_rank: Vec<Option<Tensor>>,
    projections: Vec<Projection>,
}

impl Recorded for Linear {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(mut dy) = flow.take(self.result) else { return };
        let device = flow.device.clone();
        let Device::Cpu(pool) = &device;
        if let Some(derivative) = &self.derivative {
            elementwise::multiply_into(dy.data_mut(), derivative.data());
        }
        if self.residual.is_some() {
            flow.add(self.residual, dy.clone());
        }
        let gradients = self.columns(&dy);
        let lowered: Vec<_> =
            gradients.iter().map(|(projection, dy)| lower(pool, projection, *dy)).collect();
        let mut input = self.x_slot.map(|slot| (slot, flow.open(slot, self.x_shape)));
        let mut jobs = self.weight_jobs(flow, pool, &gradients, &lowered);
        let weights = input.as_ref().map(|_| self.weight_rows(pool));
        let reads_input = jobs.iter().any(WeightJob::reads_input);
        let x = self.x.as_ref().filter(|_| reads_input).map(|x| Right::rows(pool, x.mat()));
        let mut products = Vec::with_capacity(1 + jobs.len());
        if let (Some((_, (dx, start))), Some(weights)) = (&mut input, &weights) {
            let into = MatMut::new(dx.data_mut(), self.x_shape.0, self.x_shape.1);
            products.push(Product::new(into, dy.mat(), weights, *start, Extras::default()));
        }
        products.extend(jobs.iter_mut().map(|job| job.product(x.as_ref())));
        multiply_together(&products);
        drop(products);
        if let Some((slot, (mut dx, _))) = input {
            self.add_low_rank(pool, &lowered, &mut dx);
            flow.close(slot, dx);
        }
        for job in jobs {
            job.close(flow);
        }
        for (projection, dy) in &gradients {
            if let Some(bias) =
                projection.bias.as_ref().filter(|b| b.trains && !projection.weight.trains)
            {
                flow.add_row(bias.id, &column_sums(pool, *dy));
            }
        }
    }
}

/// One weight's gradient to be computed: `sum += left^T right`.
struct WeightJob<'a> {
    id: ParamId,
    sum: Tensor,
    start: Start<'static>,
    left: Mat<'a>,
    right: Operand<'a>,
    /// The bias whose gradient falls out, and its sums.
    bias: Option<(ParamId, Buffer)>,
}

/// The right operand of a weight's gradient.
enum Operand<'a> {
    /// The operation's input.
    Input,
    /// Another matrix.
    Other(Right<'a>),
    /// The input is the wider one, so it is the left operand and `left` the right one: less to
    /// pack. The result is transposed.
    Turned { input: Mat<'a>, left: Right<'a>, result: Tensor },
}

impl WeightJob<'_> {
    fn reads_input(&self) -> bool {
        matches!(self.right, Operand::Input)
    }

    fn product<'a>(&'a mut self, x: Option<&'a Right<'a>>) -> Product<'a> {
        let (rows, cols) = self.sum.shape();
        let right = match &mut self.right {
            Operand::Input => x.expect("an input is saved whenever a weight reads it"),
            Operand::Other(right) => right,
            Operand::Turned { input, left, result } => {
                let into = MatMut::new(result.data_mut(), cols, rows);
                return Product::new(into, input.t(), left, Start::Zero, Extras::default());
            }
        };
        let row_sums = self.bias.as_mut().map(|(_, sums)| &mut sums[..]);
        let into = MatMut::new(self.sum.data_mut(), rows, cols);
        let extras = Extras { finish: None, row_sums };
        Product::new(into, self.left.t(), right, self.start, extras)
    }

    /// Hands the finished gradients over.
    fn close(mut self, flow: &mut Flow) {
        if let Operand::Turned { result, .. } = &self.right {
            let cols = self.sum.cols();
            match self.start {
                Start::Zero => transpose_into(self.sum.data_mut(), cols, result.data()),
                Start::Keep | Start::Bias(_) | Start::Residual(_) | Start::BiasAndResidual(..) => {
                    let mut turned = result.clone();
                    transpose_into(turned.data_mut(), cols, result.data());
                    elementwise::add_into(self.sum.data_mut(), turned.data());
                }
            }
            if let Some((_, sums)) = &mut self.bias {
                *sums = column_sums(sums.pool(), self.left);
            }
        }
        flow.close_weight(self.id, self.sum);
        if let Some((id, sums)) = self.bias {
            flow.add_row(id, &sums);
        }
    }
}

impl Linear {
    /// Each projection with its columns of the gradient.
    fn columns<'a>(&'a self, dy: &'a Tensor) -> Vec<(&'a Projection, Mat<'a>)> {
        let (rows, width) = dy.shape();
        let mut column = 0;
        let mut parts = Vec::with_capacity(self.projections.len());
        for projection in &self.projections {
            let outputs = projection.outputs();
            parts.push((projection, Mat::strided(&dy.data()[column..], rows, outputs, width)));
            column += outputs;
        }
        parts
    }

    /// The weights on top of each other, as the right operand of `dx = dy W`.
    fn weight_rows(&self, pool: &Pool) -> Right<'_> {
        match &self.projections[..] {
            [only] => Right::rows(pool, only.weight.tensor.mat()),
            several => {
                let weights: Vec<_> = several.iter().map(|p| p.weight.tensor.mat()).collect();
                Right::stacked(pool, &weights)
            }
        }
    }

    /// `dx += (s dy B) A`.
    fn add_low_rank(&self, pool: &Pool, lowered: &[Option<Tensor>], dx: &mut Tensor) {
        let (rows, inputs) = self.x_shape;
        for (projection, low) in self.projections.iter().zip(lowered) {
            if let (Some(lora), Some(low)) = (&projection.lora, low) {
                let right = Right::rows(pool, lora.a.tensor.mat());
                let into = MatMut::new(dx.data_mut(), rows, inputs);
                multiply(into, low.mat(), &right, Start::Keep, Extras::default());
            }
        }
    }

    /// `dW = dy^T x`, `db = sum of dy`, `dA = (s dy B)^T x`, `dB = dy^T (s x A^T)`.
    fn weight_jobs<'a>(
        &'a self,
        flow: &mut Flow,
        pool: &Pool,
        gradients: &[(&Projection, Mat<'a>)],
        lowered: &'a [Option<Tensor>],
    ) -> Vec<WeightJob<'a>> {
        let device = Device::Cpu(pool.clone());
        let mut jobs = Vec::new();
        let mut push = |weight: &Weight, left, right, bias| {
            let (sum, start) = flow.open_weight(weight.id, weight.tensor.shape());
            jobs.push(WeightJob { id: weight.id, sum, start, left, right, bias });
        };
        for (index, (projection, dy)) in gradients.iter().enumerate() {
            if projection.weight.trains {
                let bias = projection.bias.as_ref().filter(|bias| bias.trains);
                let bias = bias.map(|bias| (bias.id, pool.zeros(dy.cols)));
                let turned = self.x.as_ref().filter(|x| x.cols() > dy.cols);
                let right = turned.map_or(Operand::Input, |x| Operand::Turned {
                    input: x.mat(),
                    left: Right::rows(pool, *dy),
                    result: Tensor::scratch(&device, x.cols(), dy.cols),
                });
                push(&projection.weight, *dy, right, bias);
            }
            let Some(lora) = &projection.lora else { continue };
            if let (Some(low), true) = (&lowered[index], lora.a.trains) {
                push(&lora.a, low.mat(), Operand::Input, None);
            }
            if let (Some(low), true) = (&self.low_rank[index], lora.b.trains) {
                let right = Operand::Other(Right::rows(pool, low.mat()));
                push(&lora.b, *dy, right, None);
            }
        }
        jobs
    }
}

/// `s dy B`, the gradient at the low-rank waist.
fn lower(pool: &Pool, projection: &Projection, dy: Mat<'_>) -> Option<Tensor> {
    let lora = projection.lora.as_ref()?;
    let rank = lora.b.tensor.cols();
    let mut low = Tensor::scratch(&Device::Cpu(pool.clone()), dy.rows, rank);
    let right = Right::rows(pool, lora.b.tensor.mat());
    let into = MatMut::new(low.data_mut(), dy.rows, rank);
    multiply(into, dy, &right, Start::Zero, Extras::default());
    elementwise::scale(low.data_mut(), lora.scale);
    Some(low)
}

/// Column sums of a gradient, rows added in order.
fn column_sums(pool: &Pool, dy: Mat<'_>) -> Buffer {
    const COLUMNS: usize = 64;
    let mut sums = pool.zeros(dy.cols);
    crew::each_chunk(&mut sums, COLUMNS, |task, sums| {
        dy.t().add_row_sums(task * COLUMNS, 0..dy.rows, sums);
    });
    sums
}
