//! The next token of a few sequences: products with few rows, attention over caches, the likeliest word.

use super::attention::{self, Described};
use super::elementwise::kind;
use crate::activation::Activation;
use crate::cpu::rotary::Angles;
use crate::cuda::arguments::{Argument, Arguments, Grid, Words, arguments};
use crate::cuda::compiler::Source::{Decode, FewRows};
use crate::cuda::opened::COUNTERS;
use crate::cuda::{Buffer, Cuda};
use crate::operands::{Attended, Linear};
use crate::tensor::Tensor;
use std::sync::Arc;

/// For up to so many rows the kernel of projections and that of gated ones.
const FEW_ROWS: [(usize, [&str; 2]); 6] = [
    (1, ["few_rows_1_2", "few_rows_gated_1"]),
    (2, ["few_rows_2_2", "few_rows_gated_2"]),
    (4, ["few_rows_4_2", "few_rows_gated_4"]),
    (8, ["few_rows_8_2", "few_rows_gated_8"]),
    (16, ["some_rows_2", "some_rows_gated_2"]),
    (32, ["some_rows_4", "some_rows_gated_4"]),
];
/// For heads of up to so many features, the kernel for heads with keys of their own and that for shared keys.
const ATTENTION: [(usize, [&str; 2]); 4] = [
    (32, ["decode_attention_4_1", "decode_attention_4_4"]),
    (64, ["decode_attention_8_1", "decode_attention_8_4"]),
    (128, ["decode_attention_16_1", "decode_attention_16_4"]),
    (256, ["decode_attention_32_1", "decode_attention_32_4"]),
];
/// Query heads that a block of shared keys takes.
const TOGETHER: usize = 4;
/// Keys that a block reads, as in the kernel.
const CHUNK: usize = 128;
/// Outputs from which on a warp takes two of a single row.
const MANY_OUTPUTS: usize = 8192;
/// Warps of a block that multiplies.
const WARPS: usize = 4;
/// Rows up to which a warp has outputs of its own; the warps of a block share outputs of more.
const APART: usize = 8;

/// The kernels for products with so few rows, where there are any: all in bf16, rows in whole vectors of eight.
fn few_rows(cuda: &Cuda, given: &Linear<'_>) -> Option<[&'static str; 2]> {
    let (rows, inputs) = given.x.shape();
    let fits = cuda.is_bf16() && given.x.is_bf16() && inputs * rows > 0 && inputs.is_multiple_of(8);
    let (_, names) = FEW_ROWS.iter().find(|(most, _)| *most >= rows)?;
    (fits && given.weights.len() <= 3).then_some(*names)
}

/// Weights as a kernel reads them; copies must be there until it is on the stream.
fn weights(cuda: &Cuda, given: &Linear<'_>, held: &mut Vec<Arc<Buffer>>) -> Vec<Words> {
    let weight = |(weight, bias): &(&Tensor, Option<&Tensor>)| {
        let start = if let Some(unpacked) = super::quantised::unpacked(cuda, weight, true) {
            held.push(Arc::new(unpacked));
            held[held.len() - 1].numbers(true)
        } else if weight.is_bf16() {
            weight.numbers()
        } else {
            held.push(weight.rounded());
            held[held.len() - 1].numbers(true)
        };
        let mut words = vec![start.address];
        bias.map(Tensor::numbers).words(&mut words);
        words.push(weight.rows() as u64);
        Words(words)
    };
    given.weights.iter().map(weight).collect()
}

/// A projection of few rows; returns whether it was done.
pub(super) fn linear(cuda: &Cuda, given: &Linear<'_>, y: &mut Tensor) -> bool {
    let Some([name, _]) = few_rows(cuda, given) else { return false };
    let mut held = Vec::new();
    let nothing = Words(vec![0; 4]);
    let mut beside = weights(cuda, given, &mut held);
    beside.resize(3, nothing);
    let (rows, inputs, outputs) = (y.rows() as u32, given.x.cols() as u32, y.cols());
    let activation = given.activation.map_or(u32::MAX, kind);
    let residual = given.residual.map(Tensor::numbers);
    let (x, y) = (given.x.numbers().address, y.numbers_mut());
    let given =
        arguments![beside[0], beside[1], beside[2], x, rows, inputs, y, residual, activation];
    // With few outputs, a warp for each of them keeps more of the GPU busy than a warp for two.
    let (name, grid) = if rows == 1 && outputs < MANY_OUTPUTS {
        ("few_rows_1_1", warps(outputs))
    } else if rows as usize <= APART {
        (name, warps(outputs.div_ceil(2)))
    } else {
        (name, shared(outputs))
    };
    cuda.launch((FewRows, name), grid.waiting(), given);
    true
}

/// Whether there is a kernel for [`linear_gated`].
pub(crate) fn gates(cuda: &Cuda, given: &Linear<'_>) -> bool {
    few_rows(cuda, given).is_some()
}

/// `y = activation(x G^T) * (x U^T)` of few rows.
pub(crate) fn linear_gated(
    cuda: &Cuda,
    given: &Linear<'_>,
    activation: Activation,
    y: &mut Tensor,
) {
    let [_, name] = few_rows(cuda, given).expect("it was asked for");
    let mut held = Vec::new();
    let beside = weights(cuda, given, &mut held);
    let (rows, inputs, outputs) = (y.rows() as u32, given.x.cols() as u32, y.cols());
    let (x, y, kind) = (given.x.numbers().address, y.numbers_mut(), kind(activation));
    let given = arguments![beside[0], beside[1], x, rows, inputs, y, kind];
    let grid = if rows as usize <= APART { warps(outputs) } else { shared(outputs) };
    cuda.launch((FewRows, name), grid.waiting(), given);
}

/// Blocks of sixteen outputs.
fn shared(outputs: usize) -> Grid {
    Grid::blocks((outputs.div_ceil(16).max(1) as u32, 1), (32 * WARPS as u32, 1))
}

fn warps(items: usize) -> Grid {
    Grid::blocks((items.div_ceil(WARPS).max(1) as u32, 1), (32 * WARPS as u32, 1))
}

/// The kernel of attention for one new token of each span, where there is one.
pub(crate) fn decodes(cuda: &Cuda, given: &Attended<'_>) -> bool {
    let geometry = given.geometry;
    let all = std::iter::once(given.queries).chain(given.keys_values.iter().copied());
    let mut fits = all.map(|tensor| tensor.is_bf16() && tensor.cols().is_multiple_of(8));
    cuda.is_bf16()
        && fits.all(|fits| fits)
        && geometry.width.is_multiple_of(8)
        && geometry.width <= 256
        && given.spans.iter().all(|span| span.queries.len() == 1)
        && given.spans.len() * geometry.heads <= COUNTERS
}

/// Attention of one new token for each span over its cache, which has room for the token's keys and values behind the
/// others. Queries, keys and values are side by side; queries and keys are turned where there are angles.
pub(crate) fn attention_decoding(
    cuda: &Cuda,
    given: &Attended<'_>,
    turned: Option<(&[u32], &Angles)>,
    out: &mut Tensor,
) {
    let geometry = given.geometry;
    let sharing = geometry.heads / geometry.kv_heads;
    let (_, names) =
        ATTENTION.iter().find(|(most, _)| *most >= geometry.width).expect("heads are narrow");
    let (name, groups) =
        if sharing == 1 { (names[0], 1) } else { (names[1], sharing.div_ceil(TOGETHER)) };
    let seen = |span: &crate::geometry::Span| geometry.visible(span, 0).len().div_ceil(CHUNK);
    let chunks = given.spans.iter().map(seen).max().unwrap_or(1);
    let described: Described = attention::described_queries(cuda, given);
    let parts = if chunks > 1 { chunks } else { 0 };
    let partial =
        cuda.take((given.spans.len() * geometry.heads * parts * (geometry.width + 2)).max(1));
    let angles = turned.map(|(positions, angles)| angles.of_positions(positions));
    let angles = angles.map(|tables| tables.map(|table| cuda.upload(&table)));
    let (cosines, sines) =
        angles.as_ref().map_or((None, None), |[cosines, sines]| (Some(cosines), Some(sines)));
    let arguments: Arguments = arguments![
        described.words,
        cosines,
        sines,
        out.numbers_mut(),
        partial.address,
        cuda.counters(),
    ];
    let blocks = (chunks as u32, (geometry.kv_heads * groups) as u32, given.spans.len() as u32);
    cuda.launch((Decode, name), Grid::volume(blocks, 256).waiting(), arguments);
}

/// For each row the column of its highest number, the first of equal ones; `None` where one is not a number.
pub(crate) fn argmax(cuda: &Cuda, x: &Tensor) -> Vec<Option<u32>> {
    let (rows, cols) = x.shape();
    let into = cuda.take(rows.max(1));
    let grid = Grid::blocks((rows.max(1) as u32, 1), (1024, 1));
    cuda.launch((Decode, "argmax"), grid, arguments![x.numbers(), cols as u32, into.address]);
    let found: Vec<u32> = cuda.read(into.address, rows);
    found.into_iter().map(|place| (place != u32::MAX).then_some(place)).collect()
}
