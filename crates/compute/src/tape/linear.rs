//! Linear projections, fused with what a Transformer puts around them.
//!
//! Several projections of one input (query, key, value; gate, up) are one product. A bias or a
//! residual is what the sums start from; an activation is applied before the block leaves the
//! cache. Saves the input when a weight trains, and an activation's derivative instead of its input.
//!
//! ```text
//! y = activation(x W^T + b + s (x A^T) B^T) or x W^T + b + s (x A^T) B^T + residual
//! ```

use super::example_factors::{ExampleFactors, Left, LinearFactors, RightFactor, WeightFactors};
use super::projection::{Lora, Projection};
use super::record::{Flow, Tape};
use crate::activation::Activation;
use crate::device::Device;
use crate::error::ComputeError;
use crate::gradients::Gradient;
use crate::kernels::{self, Factor, Fill, LinearBackward, View, WeightGradient};
use crate::params::Weight;
use crate::sequences::Sequences;
use crate::tensor::Tensor;
use crate::value::{Slot, Value};
use std::ops::Range;

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
        ComputeError::not_empty("linear", "list of projections", projections.len())?;
        for projection in projections {
            projection.check(inputs)?;
        }
        let outputs = projections.iter().map(Projection::outputs).sum();
        if let Around::Residual(residual) = around {
            let shape = residual.tensor.shape();
            ComputeError::expect("linear", "residual shape", shape, (rows, outputs))?;
        }
        if projections.iter().any(|projection| projection.magnitude().is_some()) {
            return self.decomposed(x, projections, around);
        }
        let residual = match around {
            Around::Residual(residual) => residual.slot,
            Around::Nothing | Around::Activation(_) => None,
        };
        let trains = projections.iter().any(Projection::trains);
        let wanted = trains || x.slot.is_some() || residual.is_some();
        let weights = projections.iter().flat_map(Projection::weights);
        let examples = self.example_rows("linear", x.sequences(), weights)?;
        let mut y = Tensor::activation(&self.device, rows, outputs);
        let activated = matches!(around, Around::Activation(_)) && wanted;
        let mut derivative = activated.then(|| Tensor::activation(&self.device, rows, outputs));
        let low_rank =
            forward(&self.device, &x.tensor, projections, around, (&mut y, derivative.as_mut()));
        let reads_input = projections.iter().any(Projection::reads_input);
        let y = self.finish(y, wanted, || {
            let linear = Linear {
                x: reads_input.then(|| x.tensor.clone()),
                x_slot: x.slot,
                x_shape: (rows, inputs),
                residual,
                derivative,
                low_rank,
                projections: projections.to_vec(),
                examples,
            };
            move |flow, dy| linear.backward(flow, dy)
        });
        Ok(y.with_rows_of(x))
    }
}

/// What is put around projections.
#[derive(Clone, Copy)]
pub(super) enum Around<'a> {
    Nothing,
    Residual(&'a Value),
    Activation(Activation),
}

/// Runs the products; returns `s x A^T` of each projection that has a correction.
fn forward(
    device: &Device,
    x: &Tensor,
    projections: &[Projection],
    around: Around<'_>,
    (y, mut derivative): (&mut Tensor, Option<&mut Tensor>),
) -> Vec<Option<Tensor>> {
    let corrected = projections.iter().any(|projection| projection.lora.is_some());
    let (residual, activation) = match around {
        Around::Nothing => (None, None),
        Around::Residual(residual) => (Some(&residual.tensor), None),
        Around::Activation(activation) => (None, Some(activation)),
    };
    let weights: Vec<_> = projections
        .iter()
        .map(|p| (&p.weight.tensor, p.bias.as_ref().map(|bias| &bias.tensor)))
        .collect();
    // An activation waits for the corrections.
    let at_once = activation.filter(|_| !corrected);
    let given = kernels::Linear { x, weights: &weights, residual, activation: at_once };
    kernels::linear(device, &given, y, derivative.as_deref_mut());
    let columns = columns(projections);
    let parts = projections.iter().zip(columns);
    let low_rank = parts
        .map(|(p, columns)| Some(correct(device, x, p.lora.as_ref()?, (&mut *y, columns))))
        .collect();
    if let Some(activation) = activation.filter(|_| corrected) {
        kernels::activate(device, activation, y, derivative);
    }
    low_rank
}

/// Adds `s (x A^T) B^T` to some columns of `y` and returns `s x A^T`.
fn correct(device: &Device, x: &Tensor, lora: &Lora, y: (&mut Tensor, Range<usize>)) -> Tensor {
    let (a, b) = (&lora.a.tensor, &lora.b.tensor);
    let mut low = Tensor::activation(device, x.rows(), a.rows());
    let into = (&mut low, 0..a.rows());
    kernels::matmul(device, into, Fill::Overwrite, (&View::of(x), &View::of(a).t()));
    low.scale(lora.scale);
    kernels::matmul(device, y, Fill::Add, (&View::of(&low), &View::of(b).t()));
    low
}

/// The columns of each projection's result.
pub(super) fn columns(projections: &[Projection]) -> Vec<Range<usize>> {
    let mut end = 0;
    let range = |projection: &Projection| {
        let start = end;
        end += projection.outputs();
        start..end
    };
    projections.iter().map(range).collect()
}

struct Linear {
    x: Option<Tensor>,
    x_slot: Option<Slot>,
    x_shape: (usize, usize),
    residual: Option<Slot>,
    derivative: Option<Tensor>,
    low_rank: Vec<Option<Tensor>>,
    projections: Vec<Projection>,
    /// The rows of each example, where examples are told apart and something trains.
    examples: Option<Sequences>,
}

impl Linear {
    fn backward(self, flow: &mut Flow, mut dy: Tensor) {
        let device = flow.device.clone();
        if let Some(derivative) = &self.derivative {
            kernels::multiply(&mut dy, derivative);
        }
        if self.residual.is_some() {
            flow.add(self.residual, dy.clone());
        }
        let columns = columns(&self.projections);
        let parts = || self.projections.iter().zip(&columns);
        let lowered: Vec<_> = parts()
            .map(|(p, columns)| Some(lower(&device, p.lora.as_ref()?, &dy, columns.clone())))
            .collect();
        let mut input = self.x_slot.map(|slot| (slot, flow.open(slot, self.x_shape)));
        let trained = match self.examples {
            None => self.trained(&dy, &columns, &lowered),
            Some(_) => Vec::new(),
        };
        let open = |part: &Part<'_>| {
            let sums = part.bias.map(|bias| Tensor::scratch(&device, 1, bias.tensor.cols()));
            (flow.gradients.open(&device, part.weight.id, part.weight.tensor.shape()), sums)
        };
        let mut opened: Vec<_> = trained.iter().map(open).collect();
        let weights: Vec<_> = self.projections.iter().map(|p| &p.weight.tensor).collect();
        let jobs = trained.iter().zip(&mut opened).map(|(part, ((into, fill), sums))| {
            let (left, right) = (part.left.clone(), part.right);
            WeightGradient { into, fill: *fill, left, right, bias: sums.as_mut() }
        });
        let given = LinearBackward {
            dy: &dy,
            x: self.x.as_ref(),
            weights: &weights,
            dx: input.as_mut().map(|(_, (dx, fill))| (dx, *fill)),
            jobs: jobs.collect(),
            row_factors: None,
        };
        kernels::linear_backward(&device, given);
        if let Some((slot, (mut dx, _))) = input {
            self.add_low_rank(&device, &lowered, &mut dx);
            flow.close(slot, dx);
        }
        for (part, ((sum, _), sums)) in trained.into_iter().zip(opened) {
            flow.gradients.close(part.weight.id, sum);
            if let (Some(bias), Some(sums)) = (part.bias, sums) {
                flow.add_gradient(bias.id, Gradient::Dense(sums));
            }
        }
        if let Some(examples) = self.examples.clone() {
            return self.keep(flow, dy, lowered, examples);
        }
        for (projection, columns) in parts() {
            let alone = |bias: &&Weight| bias.trains && !projection.weight.trains;
            if let Some(bias) = projection.bias.as_ref().filter(alone) {
                let mut sums = Tensor::scratch(&device, 1, columns.len());
                kernels::column_sums(&mut sums, &View::columns(&dy, columns.clone()));
                flow.add_gradient(bias.id, Gradient::Dense(sums));
            }
        }
    }
}

/// A weight that trains, and the factors of its gradient.
struct Part<'a> {
    weight: &'a Weight,
    left: View<'a>,
    right: Factor<'a>,
    /// The bias whose gradient falls out.
    bias: Option<&'a Weight>,
}

impl Linear {
    /// Hands over what each example's gradients are made of.
    fn keep(self, flow: &mut Flow, dy: Tensor, lowered: Vec<Option<Tensor>>, examples: Sequences) {
        let columns = columns(&self.projections);
        let mut parts = Vec::new();
        let mut biases = Vec::new();
        let low = self.low_rank.into_iter().zip(lowered);
        for ((projection, columns), (low_rank, lowered)) in
            self.projections.iter().zip(columns).zip(low)
        {
            let part = |weight: &Weight, left, right| WeightFactors {
                id: weight.id,
                shape: weight.tensor.shape(),
                left,
                right,
            };
            let all = || Left::Columns(columns.clone());
            if projection.weight.trains {
                parts.push(part(&projection.weight, all(), RightFactor::Input));
            }
            if let Some(bias) = projection.bias.as_ref().filter(|bias| bias.trains) {
                biases.push((bias.id, columns.clone()));
            }
            let Some(lora) = &projection.lora else { continue };
            if let Some(low) = lowered.filter(|_| lora.a.trains) {
                parts.push(part(&lora.a, Left::Other(low), RightFactor::Input));
            }
            if let Some(low) = low_rank.filter(|_| lora.b.trains) {
                parts.push(part(&lora.b, all(), RightFactor::Other(low)));
            }
        }
        if !biases.is_empty() {
            let ranges: Vec<_> = examples.ranges().collect();
            let sums = kernels::example_sums(&flow.device, &dy, &ranges);
            flow.keep(ExampleFactors::Sums { sums, of: biases });
        }
        if !parts.is_empty() {
            flow.keep(ExampleFactors::Linear(LinearFactors { dy, x: self.x, examples, parts }));
        }
    }

    /// `dW = dy^T x`, `dA = (s dy B)^T x` and `dB = dy^T (s x A^T)` of what trains.
    fn trained<'a>(
        &'a self,
        dy: &'a Tensor,
        columns: &[Range<usize>],
        lowered: &'a [Option<Tensor>],
    ) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let low = self.low_rank.iter().zip(lowered);
        for ((projection, columns), (low_rank, lowered)) in
            self.projections.iter().zip(columns).zip(low)
        {
            let Projection { weight, bias, lora } = projection;
            let left = || View::columns(dy, columns.clone());
            if weight.trains {
                let bias = bias.as_ref().filter(|bias| bias.trains);
                parts.push(Part { weight, left: left(), right: Factor::Input, bias });
            }
            let Some(Lora { a, b, .. }) = lora else { continue };
            if let Some(low) = lowered.as_ref().filter(|_| a.trains) {
                let (left, right) = (View::of(low), Factor::InputOfLowRank);
                parts.push(Part { weight: a, left, right, bias: None });
            }
            if let Some(low) = low_rank.as_ref().filter(|_| b.trains) {
                parts.push(Part { weight: b, left: left(), right: Factor::Other(low), bias: None });
            }
        }
        parts
    }

    /// `dx += (s dy B) A`.
    fn add_low_rank(&self, device: &Device, lowered: &[Option<Tensor>], dx: &mut Tensor) {
        for (projection, low) in self.projections.iter().zip(lowered) {
            if let (Some(lora), Some(low)) = (&projection.lora, low) {
                let into = (&mut *dx, 0..self.x_shape.1);
                let factors = (&View::of(low), &View::of(&lora.a.tensor));
                kernels::matmul(device, into, Fill::Add, factors);
            }
        }
    }
}

/// `s dy B`, the gradient at the low-rank waist.
fn lower(device: &Device, lora: &Lora, dy: &Tensor, columns: Range<usize>) -> Tensor {
    let b = &lora.b.tensor;
    let mut low = Tensor::activation(device, dy.rows(), b.cols());
    let (into, left) = ((&mut low, 0..b.cols()), View::columns(dy, columns));
    kernels::matmul(device, into, Fill::Overwrite, (&left, &View::of(b)));
    low.scale(lora.scale);
    low
}
