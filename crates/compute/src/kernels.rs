//! Every computation on tensors, and the one place that asks which device is to do it.
//!
//! The tape, gradients and optimiser know shapes and what follows what; a function here knows who
//! computes. Callers have checked shapes; a wrong one is a panic inside the crate, never an access
//! out of bounds. A second device is a second arm in each `match`.

use crate::activation::Activation;
use crate::cpu::attention::{self as cpu_attention, Pass, Target};
use crate::cpu::matmul::{Extras, MatMut, Right, Stored};
use crate::cpu::norm::{Saved, Wanted};
use crate::cpu::rotary::{Angles, Turn};
use crate::cpu::rows::Occurrences;
use crate::cpu::shared::Shared;
use crate::cpu::{
    activation as cpu_activation, columns, elementwise, example_squares, linear as cpu_linear,
    losses, matmul as cpu_matmul, norm as cpu_norm, pattern, rotary, rows, solver, vocabulary,
};
use crate::cuda::ops;
use crate::device::Device;
use crate::geometry::Span;
use crate::meta;
use crate::storage::Numbers;
use crate::tensor::Tensor;
use crate::thread_pool;
use fedra_seed::{NOISE_GROUP, SecretKey, Seed};
use std::ops::Range;

pub(crate) use crate::cpu::attention::ProbeWeights;
pub(crate) use crate::cpu::losses::{Factors, Smoothing};
pub(crate) use crate::cpu::norm::Kind as NormKind;
pub(crate) use crate::cpu::vocabulary::VocabularyExamples;
pub(crate) use crate::fill::Fill;
pub(crate) use crate::operands::{
    Attended, Change, ColumnFactors, Factor, GradientView, Linear, LinearBackward, Outer, View,
    Vocabulary, WeightGradient,
};

// One pass over whole tensors.

/// `x *= y`.
pub(crate) fn multiply(x: &mut Tensor, y: &Tensor) {
    match x.cuda() {
        Some(cuda) => ops::multiply(&cuda, x, y),
        None => x.change(|x| elementwise::multiply_into(x, &y.read())),
    }
}

/// `x *= factor`, where the factor is a tensor of one element.
pub(crate) fn scale_by(device: &Device, x: &mut Tensor, factor: &Tensor) {
    match device {
        Device::Cpu(_) => {
            let factor = factor.item();
            if factor != 1.0 {
                elementwise::scale(x.write(), factor);
            }
        }
        Device::Meta(_) => {}
        Device::Cuda(cuda) => ops::scale_by(cuda, x, factor),
    }
}

/// `x = cap * tanh(x / cap)`.
pub(crate) fn soft_cap(x: &mut Tensor, cap: f32) {
    match x.cuda() {
        Some(cuda) => ops::soft_cap(&cuda, x, cap),
        None => x.change(|x| elementwise::soft_cap(x, cap)),
    }
}

/// Turns the gradient of a soft cap's result `y` into that of its input.
pub(crate) fn soft_cap_backward((y, cap): (&Tensor, f32), dy: &mut Tensor) {
    match dy.cuda() {
        Some(cuda) => ops::soft_cap_backward(&cuda, (y, cap), dy),
        None => dy.change(|dy| elementwise::soft_cap_backward(&y.read(), cap, dy)),
    }
}

/// Makes zeros of a share of `x` and divides the rest by theirs, as a seed decides.
pub(crate) fn drop_out(x: &mut Tensor, rate: f32, rows: &[(Range<usize>, Seed)]) {
    let cols = x.cols();
    x.change(|x| {
        for (rows, seed) in rows {
            elementwise::drop_out(&mut x[rows.start * cols..rows.end * cols], rate, *seed);
        }
    });
}

/// `x + offset`; the tensor itself where that is zero.
pub(crate) fn shifted(device: &Device, x: &Tensor, offset: f32) -> Tensor {
    if offset == 0.0 {
        return x.clone();
    }
    let (rows, cols) = x.shape();
    let mut sum = Tensor::scratch(device, rows, cols);
    match device {
        Device::Cuda(cuda) => ops::shifted(cuda, &mut sum, x, offset),
        Device::Cpu(_) | Device::Meta(_) => {
            sum.change(|sum| sum.iter_mut().zip(&*x.read()).for_each(|(sum, x)| *sum = x + offset));
        }
    }
    sum
}

/// `into = sum over the rows of x`, in some columns of it.
pub(crate) fn column_sums(into: &mut Tensor, x: &View<'_>) {
    match into.cuda() {
        Some(cuda) => ops::column_sums(&cuda, into, x),
        None => into.change(|into| cpu_linear::column_sums(into, x.mat(&x.tensor.read()))),
    }
}

/// Takes a step for every parameter that changes.
pub(crate) fn optimise(device: &Device, changes: &mut [Change<'_>]) {
    match device {
        Device::Cpu(_) => solver::run(changes),
        Device::Meta(_) => {
            for Change { weight, moments: [first, second], .. } in changes {
                weight.own();
                first.own();
                second.own();
            }
        }
        Device::Cuda(cuda) => ops::optimise(cuda, changes),
    }
}

// Rows.

/// `into[i] = sum over tables of table[index[i]]`.
pub(crate) fn gather(device: &Device, into: &mut Tensor, tables: &[(&Tensor, &[u32])]) {
    let width = into.cols();
    match device {
        Device::Cpu(_) => {
            let read: Vec<_> =
                tables.iter().map(|(table, index)| looked_up(table, index)).collect();
            let converted = read.iter().any(|(_, index)| index.is_none());
            let rows = if converted { into.rows() } else { 0 };
            let in_order: Vec<u32> = (0..rows as u32).collect();
            let sources: Vec<(&[f32], &[u32])> = read
                .iter()
                .map(|(numbers, index)| (&numbers[..], index.unwrap_or(&in_order)))
                .collect();
            rows::gather(into.write(), width, &sources);
        }
        Device::Meta(counter) => {
            into.own();
            let converted = |(table, index): &(&Tensor, &[u32])| {
                table.is_bf16().then(|| counter.take(index.len() * table.cols()))
            };
            drop(tables.iter().map(converted).collect::<Vec<_>>());
        }
        Device::Cuda(cuda) => ops::gather(cuda, into, tables),
    }
}

/// A table's numbers and the index into them. Of a bf16 table only the rows that are looked up are
/// converted, in the order of the index.
fn looked_up<'a>(table: &'a Tensor, index: &'a [u32]) -> (Numbers<'a>, Option<&'a [u32]>) {
    match table.read_rows(index) {
        Some(rows) => (Numbers::Converted(rows), None),
        None => (table.read(), Some(index)),
    }
}

/// `into[index[i]] += from[i]`; indices may repeat.
pub(crate) fn scatter_add(into: &mut Tensor, index: &[u32], from: &Tensor) {
    let width = into.cols();
    match into.cuda() {
        Some(cuda) => ops::scatter_add(&cuda, into, index, from),
        None => into.change(|into| rows::scatter_add(into, width, index, &from.read())),
    }
}

/// The rows that occur in an index, ascending, and for each the sum of `from` where it occurs.
pub(crate) fn sum_by_row(device: &Device, index: &[u32], from: &Tensor) -> (Vec<u32>, Tensor) {
    let width = from.cols();
    let occurrences = Occurrences::of(index);
    let mut sums = Tensor::scratch(device, occurrences.rows.len(), width);
    match device {
        Device::Cuda(cuda) => ops::sum_by_row(cuda, &mut sums, &occurrences, from),
        Device::Cpu(_) | Device::Meta(_) => {
            sums.change(|sums| occurrences.sum_rows(sums, width, &from.read()));
        }
    }
    (occurrences.rows, sums)
}

// Products.

/// `into[:, columns] = left * right`, or added to what is there.
pub(crate) fn matmul(
    device: &Device,
    (into, columns): (&mut Tensor, Range<usize>),
    fill: Fill,
    (left, right): (&View<'_>, &View<'_>),
) {
    let (rows, stride) = into.shape();
    match device {
        Device::Cpu(pool) => {
            let numbers = (left.tensor.read(), right.tensor.read());
            let (left_mat, right_mat) = (left.mat(&numbers.0), right.mat(&numbers.1));
            let into = &mut into.write()[columns.start..];
            let into = MatMut::strided(into, rows, columns.len(), stride);
            let start = cpu_linear::start(fill);
            if right.transposed && !left.transposed && cpu_matmul::has_few_rows(rows) {
                let stored = Stored::f32(right_mat.t());
                return cpu_matmul::multiply_stored(into, left_mat, &[stored], start, None);
            }
            let packed = if right.transposed {
                Right::beside(pool, &[right_mat])
            } else {
                Right::rows(pool, right_mat)
            };
            cpu_matmul::multiply(into, left_mat, &packed, start, Extras::default());
        }
        Device::Meta(counter) => {
            into.own();
            meta::matmul(counter, (left, right));
        }
        Device::Cuda(cuda) => ops::matmul(cuda, (into, columns), fill, (left, right)),
    }
}

/// `y = activation(x W^T + b + residual)`; an activation's derivative is written where wanted.
pub(crate) fn linear(
    device: &Device,
    given: &Linear<'_>,
    y: &mut Tensor,
    derivative: Option<&mut Tensor>,
) {
    match device {
        Device::Cpu(pool) => {
            let biases: Vec<_> = given.weights.iter().map(|(_, b)| b.map(Tensor::read)).collect();
            let biases: Vec<_> = biases.iter().map(|bias| bias.as_deref()).collect();
            let weights: Vec<_> = given.weights.iter().map(|(w, _)| w.stored()).collect();
            let (x, residual) = (given.x.read(), given.residual.map(|r| (r.read(), r)));
            let forward = cpu_linear::Forward {
                x: x.mat(given.x),
                weights: &weights,
                biases: &biases,
                residual: residual.as_ref().map(|(numbers, tensor)| numbers.mat(tensor)),
                activation: given.activation,
            };
            cpu_linear::forward(pool, &forward, y.write(), derivative.map(Tensor::write));
        }
        Device::Meta(counter) => {
            y.own();
            derivative.into_iter().for_each(Tensor::own);
            meta::linear(counter, given);
        }
        Device::Cuda(cuda) => ops::linear(cuda, given, y, derivative),
    }
}

/// Applies an activation in place; its derivative is written where wanted.
pub(crate) fn activate(
    device: &Device,
    activation: Activation,
    y: &mut Tensor,
    derivative: Option<&mut Tensor>,
) {
    match device {
        Device::Cpu(_) => {
            cpu_linear::activate(activation, y.write(), derivative.map(Tensor::write));
        }
        Device::Meta(_) => {
            y.own();
            derivative.into_iter().for_each(Tensor::own);
        }
        Device::Cuda(cuda) => ops::activate(cuda, activation, y, derivative),
    }
}

/// Gradients of the input and the weights of projections.
pub(crate) fn linear_backward(device: &Device, given: LinearBackward<'_>) {
    match device {
        Device::Cpu(pool) => {
            let dy = given.dy.read();
            let x = given.x.map(|x| (x.read(), x));
            let weights = if given.dx.is_some() { given.weights } else { &[] };
            let weights: Vec<_> = weights.iter().map(|w| (w.read(), *w)).collect();
            let weights: Vec<_> = weights.iter().map(|(numbers, w)| numbers.mat(w)).collect();
            let numbers: Vec<_> = given.jobs.iter().map(WeightGradient::read).collect();
            let jobs = given.jobs.into_iter().zip(&numbers).map(|(job, (left, other))| {
                let right = match job.right {
                    Factor::Input => cpu_linear::Factor::Input,
                    Factor::InputOfLowRank => cpu_linear::Factor::InputOfLowRank,
                    Factor::Other(tensor) => {
                        let numbers = other.as_ref().expect("read above");
                        cpu_linear::Factor::Other(numbers.mat(tensor))
                    }
                };
                let (left, bias) = (job.left.mat(left), job.bias.map(Tensor::write));
                cpu_linear::Job { into: job.into.write(), fill: job.fill, left, right, bias }
            });
            let mut jobs: Vec<_> = jobs.collect();
            let dx = given.dx.map(|(dx, fill)| {
                let (rows, cols) = dx.shape();
                (MatMut::new(dx.write(), rows, cols), fill)
            });
            let x = x.as_ref().map(|(numbers, x)| numbers.mat(x));
            let dy = dy.mat(given.dy);
            let row_factors = given.row_factors;
            let given = cpu_linear::Backward { dy, x, weights: &weights, row_factors };
            cpu_linear::backward(pool, given, dx, &mut jobs);
        }
        Device::Meta(counter) => meta::linear_backward(counter, given),
        Device::Cuda(cuda) => ops::linear_backward(cuda, given),
    }
}

// Parts of a block.

/// Normalises each row; `stats` receives two numbers per row.
pub(crate) fn norm(
    device: &Device,
    (kind, epsilon): (NormKind, f32),
    (x, weight, bias): (&Tensor, &Tensor, Option<&Tensor>),
    (y, stats): (&mut Tensor, &mut Tensor),
) {
    match device {
        Device::Cpu(_) => {
            let bias = bias.map(Tensor::read);
            let scaling = (&*weight.read(), bias.as_deref());
            cpu_norm::forward(kind, epsilon, &x.read(), scaling, y.write(), stats.write());
        }
        Device::Meta(_) => {
            y.own();
            stats.own();
        }
        Device::Cuda(cuda) => ops::norm(cuda, (kind, epsilon), (x, weight, bias), (y, stats)),
    }
}

/// Gradients of a norm: of its input, of weight and bias (both or neither).
pub(crate) fn norm_backward(
    device: &Device,
    kind: NormKind,
    (x, stats, weight, dy): (&Tensor, &Tensor, &Tensor, &Tensor),
    dx: Option<(&mut Tensor, Fill)>,
    sums: Option<[&mut Tensor; 2]>,
) {
    match device {
        Device::Cpu(pool) => {
            let (x, stats, weight) = (x.read(), stats.read(), weight.read());
            let saved = Saved { x: &x, stats: &stats, weight: &weight };
            let wanted = Wanted {
                x: dx.map(|(dx, fill)| (dx.write(), fill == Fill::Add)),
                weights: sums.map(|sums| sums.map(Tensor::write)),
            };
            cpu_norm::backward(pool, kind, saved, &dy.read(), wanted);
        }
        Device::Meta(counter) => {
            if let Some((dx, _)) = dx {
                dx.own();
            }
            if let Some(sums) = sums {
                sums.into_iter().for_each(Tensor::own);
                meta::norm_backward(counter, dy);
            }
        }
        Device::Cuda(cuda) => ops::norm_backward(cuda, kind, (x, stats, weight, dy), dx, sums),
    }
}

/// Turns the first heads of each row by the angles of its position.
pub(crate) fn rotate(
    x: &mut Tensor,
    heads: usize,
    (positions, angles, turn): (&[u32], &Angles, Turn),
) {
    let cols = x.cols();
    match x.cuda() {
        Some(cuda) => ops::rotate(&cuda, x, heads, (positions, angles, turn)),
        None => x.change(|x| rotary::rotate(x, cols, heads, positions, angles, turn)),
    }
}

/// Multiplies columns of each row by their weights.
pub(crate) fn scale_columns(x: &mut Tensor, by: &ColumnFactors<'_>) {
    let cols = x.cols();
    match x.cuda() {
        Some(cuda) => ops::scale_columns(&cuda, x, by),
        None => x.change(|x| by.on_cpu(|parts| columns::forward(x, cols, parts, by.epsilon))),
    }
}

/// Turns the gradient of normalised columns into that of the input `x`.
pub(crate) fn norm_columns_backward(
    (x, epsilon): (&Tensor, f32),
    by: &ColumnFactors<'_>,
    dy: &mut Tensor,
) {
    match dy.cuda() {
        Some(cuda) => ops::norm_columns_backward(&cuda, (x, epsilon), by, dy),
        None => dy.change(|dy| {
            by.on_cpu(|parts| columns::backward(&x.read(), x.cols(), parts, epsilon, dy));
        }),
    }
}

/// One row for each run of rows: the gradients of the weights of [`scale_columns`] side by side.
pub(crate) fn column_weight_sums(
    device: &Device,
    (x, dy): (&Tensor, &Tensor),
    by: &ColumnFactors<'_>,
    runs: &[Range<usize>],
) -> Tensor {
    let total = by.parts.iter().map(|(_, weight)| weight.cols()).sum();
    let mut sums = Tensor::scratch(device, runs.len(), total);
    if let Device::Cuda(cuda) = device {
        ops::column_weight_sums(cuda, (x, dy), by, runs, &mut sums);
        return sums;
    }
    sums.change(|sums| {
        let both = (&*x.read(), &*dy.read());
        by.on_cpu(|parts| columns::weight_sums(both, x.cols(), (parts, by.epsilon), runs, sums));
    });
    sums
}

/// `y = activation(gate) * up`, where a row of `x` is gate then up.
pub(crate) fn gated(activation: Activation, x: &Tensor, y: &mut Tensor) {
    let width = y.cols();
    match y.cuda() {
        Some(cuda) => ops::gated(&cuda, activation, x, y),
        None => y.change(|y| cpu_activation::gated(activation, &x.read(), y, width)),
    }
}

/// The gradient of [`gated`]'s input.
pub(crate) fn gated_backward(activation: Activation, (x, dy): (&Tensor, &Tensor), dx: &mut Tensor) {
    let width = dy.cols();
    match dx.cuda() {
        Some(cuda) => ops::gated_backward(&cuda, activation, (x, dy), dx),
        None => dx.change(|dx| {
            cpu_activation::gated_backward(activation, &x.read(), &dy.read(), dx, width);
        }),
    }
}

/// Attention; `log_sums` are written when backward will follow. With a probe, returns for each span
/// and key head the attention that counts.
pub(crate) fn attention(
    device: &Device,
    given: &Attended<'_>,
    (out, log_sums): (&mut Tensor, Option<&mut Tensor>),
    probe: Option<ProbeWeights<'_>>,
) -> Vec<f64> {
    match device {
        Device::Cpu(pool) => given.on_cpu(|inputs| {
            let into = (out.write(), log_sums.map(Tensor::write));
            cpu_attention::forward(pool, (given.geometry, given.spans), inputs, into, probe)
        }),
        Device::Meta(counter) => {
            out.own();
            log_sums.into_iter().for_each(Tensor::own);
            meta::attention(counter, given, Pass::Forward);
            vec![0.0; given.spans.len() * given.geometry.kv_heads]
        }
        Device::Cuda(cuda) => {
            ops::attention(cuda, given, (out, log_sums));
            probe.map_or_else(Vec::new, |probe| given.on_host(|given| masses(given, probe)))
        }
    }
}

/// What a probe reads, of attention that the processor computes again.
fn masses(given: &Attended<'_>, probe: ProbeWeights<'_>) -> Vec<f64> {
    let device = given.queries.device();
    let columns = given.geometry.heads * given.geometry.width;
    let mut out = Tensor::scratch(&device, given.queries.rows(), columns);
    attention(&device, given, (&mut out, None), Some(probe))
}

/// Gradients of attention, from its result `out` where the device reads that. Where `dq` is absent, the gradients of the queries go into the first
/// columns of `dkv`.
pub(crate) fn attention_backward(
    device: &Device,
    given: &Attended<'_>,
    (out, log_sums, dout): (Option<&Tensor>, &Tensor, &Tensor),
    (dq, dkv): (Option<&mut Tensor>, &mut Tensor),
) {
    let value_column = given.key_column + given.geometry.kv_heads * given.geometry.width;
    match device {
        Device::Cpu(pool) => given.on_cpu(|inputs| {
            let stride = dkv.cols();
            let shared = Shared::new(dkv.write());
            let queries = match dq {
                Some(dq) => {
                    let stride = dq.cols();
                    Target { data: Shared::new(dq.write()), stride, column: 0 }
                }
                None => Target { data: shared, stride, column: 0 },
            };
            let target = |column| Target { data: shared, stride, column };
            let into = [queries, target(given.key_column), target(value_column)];
            let spans = (given.geometry, given.spans);
            cpu_attention::backward(pool, spans, inputs, (&log_sums.read(), &dout.read()), into);
        }),
        Device::Meta(counter) => {
            dq.into_iter().chain([dkv]).for_each(Tensor::own);
            meta::attention(counter, given, Pass::Backward);
        }
        Device::Cuda(cuda) => {
            let out = out.expect("a GPU's attention keeps its result");
            ops::attention_backward(cuda, given, (out, log_sums, dout), (dq, dkv));
        }
    }
}

/// All attention weights, by span, head, query and key.
pub(crate) fn attention_pattern(device: &Device, given: &Attended<'_>) -> Vec<f32> {
    match device {
        Device::Cpu(_) => {
            given.on_cpu(|inputs| pattern::pattern(given.geometry, given.spans, inputs))
        }
        Device::Meta(_) => {
            let pairs = |span: &Span| span.queries.len() * span.keys.len();
            let all: usize = given.spans.iter().map(pairs).sum();
            vec![0.0; given.geometry.heads * all]
        }
        Device::Cuda(_) => given.on_host(|given| attention_pattern(&given.queries.device(), given)),
    }
}

// Gradients by example.

/// For each example the squared norm of its gradients of some weights that share their input.
pub(crate) fn outer_squares(device: &Device, given: &Outer<'_>) -> Vec<f64> {
    let mut squares = vec![0.0; given.examples.len()];
    match device {
        Device::Cpu(pool) => {
            let (right, numbers) = (
                given.right.read(),
                given.lefts.iter().map(|left| left.tensor.read()).collect::<Vec<_>>(),
            );
            let lefts: Vec<_> =
                given.lefts.iter().zip(&numbers).map(|(view, numbers)| view.mat(numbers)).collect();
            let outer = example_squares::Outer { lefts: &lefts, right: right.mat(given.right) };
            example_squares::outer(pool, outer, given.examples, &mut squares);
        }
        Device::Meta(counter) => meta::outer_squares(counter, given),
        Device::Cuda(_) => {
            let host = Device::cpu();
            let lefts: Vec<Tensor> = given.lefts.iter().map(|left| left.tensor.to(&host)).collect();
            let views = given.lefts.iter().zip(&lefts);
            let lefts: Vec<_> =
                views.map(|(view, tensor)| View { tensor, ..view.clone() }).collect();
            let right = given.right.to(&host);
            let given = Outer { lefts: &lefts, right: &right, examples: given.examples };
            return outer_squares(&host, &given);
        }
    }
    squares
}

/// For each example the squared norm of the sums of its rows with the same index.
pub(crate) fn lookup_squares(
    device: &Device,
    (from, index): (&Tensor, &[u32]),
    examples: &[Range<usize>],
) -> Vec<f64> {
    let mut squares = vec![0.0; examples.len()];
    match device {
        Device::Cpu(_) | Device::Cuda(_) => {
            example_squares::lookup(from.read().mat(from), index, examples, &mut squares);
        }
        Device::Meta(_) => {}
    }
    squares
}

/// One row for each example: the sum of its rows.
pub(crate) fn example_sums(device: &Device, x: &Tensor, examples: &[Range<usize>]) -> Tensor {
    let mut sums = Tensor::scratch(device, examples.len(), x.cols());
    let run = |sums: &mut [f32]| example_squares::column_sums(sums, x.read().mat(x), examples);
    match device {
        Device::Cuda(cuda) => ops::example_sums(cuda, &mut sums, x, examples),
        Device::Cpu(_) | Device::Meta(_) => sums.change(run),
    }
    sums
}

/// One row for each example: its gradient of a norm's weight, and that of its bias.
pub(crate) fn norm_example_sums(
    device: &Device,
    (x, stats, weight, dy): (&Tensor, &Tensor, &Tensor, &Tensor),
    examples: &[Range<usize>],
) -> [Tensor; 2] {
    let sums = || Tensor::scratch(device, examples.len(), x.cols());
    let mut sums = [sums(), sums()];
    match device {
        Device::Cpu(_) => {
            let (x, stats, weight) = (x.read(), stats.read(), weight.read());
            let saved = Saved { x: &x, stats: &stats, weight: &weight };
            let into = sums.each_mut().map(Tensor::write);
            example_squares::norm_weights(&saved, dy.read().mat(dy), examples, into);
        }
        Device::Cuda(cuda) => ops::norm_example_sums(cuda, (x, stats, dy), examples, &mut sums),
        Device::Meta(_) => {}
    }
    sums
}

/// The sum of squares of each row, in some columns.
pub(crate) fn row_squares(device: &Device, x: &View<'_>) -> Vec<f64> {
    match device {
        Device::Cpu(_) | Device::Cuda(_) => {
            let numbers = x.tensor.read();
            let mat = x.mat(&numbers);
            (0..mat.rows()).map(|row| elementwise::sum_of_squares(mat.row(row))).collect()
        }
        Device::Meta(_) => vec![0.0; x.tensor.rows()],
    }
}

/// `into = sum over rows of factor * row`, in some columns; a factor of zero leaves a row out.
pub(crate) fn weighted_rows(into: &mut Tensor, x: &View<'_>, factors: &[f32]) {
    let run = |into: &mut [f32]| {
        example_squares::weighted_rows(into, x.mat(&x.tensor.read()), factors);
    };
    match into.cuda() {
        Some(cuda) => ops::weighted_rows(&cuda, into, x, factors),
        None => into.change(run),
    }
}

/// `x[i] *= factors[i]`, row by row; a factor of zero makes zeros of anything.
pub(crate) fn scale_rows(x: &mut Tensor, factors: &[f32]) {
    let width = x.cols();
    match x.cuda() {
        Some(cuda) => {
            let from = x.clone();
            ops::scale_rows(&cuda, x, (&from, 0), factors);
        }
        None => x.change(|x| example_squares::scale_rows(x, width, factors)),
    }
}

/// `x += deviation * normal`, by a key.
pub(crate) fn add_noise(x: &mut Tensor, deviation: f32, key: &SecretKey) {
    const RUN: usize = 32 * NOISE_GROUP;
    let add = |task: usize, run: &mut [f32]| key.add_normal(run, task * RUN, deviation);
    x.change(|x| thread_pool::each_chunk(x, RUN, add));
}

// Losses. Each turns logits into the gradient of the loss and returns the loss.

/// Cross-entropy of each row with the column that it should have predicted.
pub(crate) fn cross_entropy(
    device: &Device,
    logits: &mut Tensor,
    labels: &[u32],
    factors: Factors<'_>,
) -> Tensor {
    if let Device::Cuda(cuda) = device {
        let mut loss = Tensor::scratch(device, 1, 1);
        ops::cross_entropy(cuda, logits, labels, factors, &mut loss);
        return loss;
    }
    let classes = logits.cols();
    let run =
        |logits: &mut [f32]| losses::cross_entropy_rows((logits, classes), None, labels, factors);
    loss(device, factors, logits, run)
}

/// Binary cross-entropy of every logit with its target.
pub(crate) fn binary_cross_entropy(
    device: &Device,
    logits: &mut Tensor,
    targets: &[f32],
    factors: Factors<'_>,
) -> Tensor {
    if let Device::Cuda(cuda) = device {
        let mut loss = Tensor::scratch(device, 1, 1);
        ops::binary_cross_entropy(cuda, logits, targets, factors, &mut loss);
        return loss;
    }
    let classes = logits.cols();
    let run = |logits: &mut [f32]| losses::binary_cross_entropy(logits, classes, targets, factors);
    loss(device, factors, logits, run)
}

fn loss(
    device: &Device,
    factors: Factors<'_>,
    logits: &mut Tensor,
    run: impl FnOnce(&mut [f32]) -> f64,
) -> Tensor {
    match device {
        Device::Cpu(_) => divided(device, factors, run(logits.write())),
        Device::Meta(_) | Device::Cuda(_) => {
            logits.own();
            Tensor::scalar(device, 0.0)
        }
    }
}

/// Cross-entropy of `x W^T + b`; only a few rows of logits exist at a time.
pub(crate) fn vocabulary_loss(device: &Device, given: Vocabulary<'_>) -> Tensor {
    match device {
        Device::Cpu(pool) => {
            let factors = given.factors;
            divided(device, factors, given.on_cpu(|loss| vocabulary::run(pool, loss)))
        }
        Device::Meta(counter) => {
            meta::vocabulary_loss(counter, &given);
            Tensor::scalar(device, 0.0)
        }
        Device::Cuda(cuda) => {
            let mut loss = Tensor::scratch(device, 1, 1);
            ops::vocabulary_loss(cuda, given, &mut loss);
            loss
        }
    }
}

/// [`vocabulary_loss`] without gradients of weights, and for each example the squared norms of its own.
pub(crate) fn vocabulary_loss_by_example(
    device: &Device,
    given: Vocabulary<'_>,
    examples: VocabularyExamples<'_>,
) -> (Tensor, [Vec<f64>; 2]) {
    match device {
        Device::Cpu(pool) => {
            let factors = given.factors;
            let (sum, squares) =
                given.on_cpu(|loss| vocabulary::run_by_example(pool, loss, examples));
            (divided(device, factors, sum), squares)
        }
        Device::Meta(counter) => {
            meta::vocabulary_loss_by_example(counter, &given, examples);
            let nothing = || vec![0.0; examples.rows.len()];
            (Tensor::scalar(device, 0.0), [nothing(), nothing()])
        }
        Device::Cuda(_) => {
            let host = Device::cpu();
            let [x, weight] = [given.x, given.weight].map(|tensor| tensor.to(&host));
            let bias = given.bias.map(|bias| bias.to(&host));
            let mut dx = given.dx.as_ref().map(|dx| Tensor::scratch(&host, dx.rows(), dx.cols()));
            let on_host = Vocabulary {
                x: &x,
                weight: &weight,
                bias: bias.as_ref(),
                dx: dx.as_mut(),
                dw: None,
                db: None,
                ..given
            };
            let (loss, squares) = vocabulary_loss_by_example(&host, on_host, examples);
            if let (Some(into), Some(dx)) = (given.dx, dx) {
                into.overwrite(&dx.read()).expect("both have the input's shape");
            }
            (loss.to(device), squares)
        }
    }
}

/// A loss that the processor summed, as a tensor.
fn divided(device: &Device, factors: Factors<'_>, sum: f64) -> Tensor {
    Tensor::scalar(device, factors.divided(sum))
}
