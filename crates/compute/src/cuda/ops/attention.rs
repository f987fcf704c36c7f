//! Attention and its gradients.

use crate::cpu::attention::ProbeWeights;
use crate::cuda::Cuda;
use crate::cuda::arguments::{Argument, Grid, Words, arguments};
use crate::cuda::compiler::Source;
use crate::cuda::opened::Table;
use crate::geometry::{Mask, Span};
use crate::operands::Attended;
use crate::tensor::Tensor;

/// Kernels for heads of up to so many features: forward, gradients of queries, gradients of keys and values.
const KERNELS: [(usize, [&str; 3]); 5] = [
    (32, ["attention_1", "attention_queries_1", "attention_keys_1"]),
    (64, ["attention_2", "attention_queries_2", "attention_keys_2"]),
    (96, ["attention_3", "attention_queries_3", "attention_keys_3"]),
    (128, ["attention_4", "attention_queries_4", "attention_keys_4"]),
    (256, ["attention_8", "attention_queries_8", "attention_keys_8"]),
];

/// Kernels that use tensor cores, for heads of just so many features.
const TENSOR_KERNELS: [(usize, Source); 4] = [
    (32, Source::TensorAttention32),
    (64, Source::TensorAttention64),
    (96, Source::TensorAttention96),
    (128, Source::TensorAttention128),
];
const TENSOR_NAMES: [&str; 3] =
    ["tensor_attention", "tensor_attention_queries", "tensor_attention_keys"];

/// Queries, or keys, of a block without tensor cores.
const BLOCK: usize = 16;

/// How attention is carried out.
struct Way {
    source: Source,
    names: [&'static str; 3],
    /// Queries of a block, and keys of one.
    blocks: [usize; 2],
    /// Bytes of shared memory of the three kernels.
    shared: [usize; 3],
}

/// Tensor cores where everything is bf16 and rows are whole vectors of eight.
fn way(given: &Attended<'_>, others: &[&Tensor]) -> Way {
    let width = given.geometry.width;
    let read = std::iter::once(given.queries).chain(given.keys_values.iter().copied());
    let fits = |tensor: &Tensor| tensor.is_bf16() && tensor.cols().is_multiple_of(8);
    let is_half = read.chain(others.iter().copied()).all(fits);
    let exact = TENSOR_KERNELS.iter().find(|(of, _)| *of == width);
    if let Some((d, source)) = exact.filter(|_| is_half) {
        let blocks = [if *d <= 64 { 128 } else { 64 }, 64];
        // Every kernel has room for 256 rows, each eight numbers longer than a head is wide.
        let shared = [2 * 256 * (d + 8); 3];
        return Way { source: *source, names: TENSOR_NAMES, blocks, shared };
    }
    let (d, names) =
        KERNELS.iter().find(|(most, _)| *most >= width).expect("heads are at most 256 wide");
    let backward = 4 * (64 * (d + 1) + 2 * 16 * d);
    let shared = [4 * (32 * (d + 1) + 32 * d + 16 * d), backward, backward];
    Way { source: Source::Attention, names: *names, blocks: [BLOCK; 2], shared }
}

/// What a kernel is told, and the tables that must stay until it is on the stream.
pub(super) struct Described {
    pub words: Words,
    tiles: usize,
    _tables: Vec<Table>,
}

#[derive(Clone, Copy, PartialEq)]
enum Over {
    Queries,
    Keys,
}

/// The description for a kernel that takes one query at a time.
pub(super) fn described_queries(cuda: &Cuda, given: &Attended<'_>) -> Described {
    described(cuda, given, Over::Queries, usize::MAX)
}

fn described(cuda: &Cuda, given: &Attended<'_>, over: Over, block: usize) -> Described {
    let Attended { geometry, spans, queries, keys_values, key_column } = *given;
    let span = |span: &Span| {
        let Span { queries, keys, offset } = span;
        [queries.start, queries.len(), keys.start, keys.len(), *offset].map(|x| x as u32)
    };
    let all: Vec<u32> = spans.iter().flat_map(span).collect();
    let mut tiles: Vec<u32> = Vec::new();
    for (number, span) in spans.iter().enumerate() {
        let count = match over {
            Over::Queries => span.queries.len(),
            Over::Keys => span.keys.len(),
        };
        tiles.extend((0..count).step_by(block).flat_map(|first| [number as u32, first as u32]));
    }
    let mut tables = vec![cuda.upload(&all), cuda.upload(&tiles)];
    // Several tensors of keys and values: one for each span. All have the same precision.
    let caches = (keys_values.len() > 1).then(|| {
        let addresses: Vec<u64> = keys_values.iter().map(|x| x.numbers().address).collect();
        cuda.upload(&addresses)
    });
    let pair = |low: usize, high: usize| low as u64 | (high as u64) << 32;
    let value_column = key_column + geometry.kv_heads * geometry.width;
    let mut words = Vec::new();
    queries.numbers().words(&mut words);
    keys_values[0].numbers().words(&mut words);
    words.extend([
        caches.as_ref().map_or(0, Table::address),
        tables[0].address(),
        tables[1].address(),
    ]);
    words.extend([
        pair(queries.cols(), keys_values[0].cols()),
        pair(key_column, value_column),
        pair(geometry.heads, geometry.kv_heads),
        pair(geometry.width, usize::from(geometry.mask == Mask::Causal)),
        geometry.window.map_or(1 << 30, |distance| distance.min(1 << 30) as u64),
        u64::from(geometry.scale.to_bits())
            | u64::from(geometry.soft_cap.unwrap_or(0.0).to_bits()) << 32,
    ]);
    tables.extend(caches);
    Described { words: Words(words), tiles: tiles.len() / 2, _tables: tables }
}

fn grid(tiles: usize, heads: usize, shared: usize) -> Grid {
    let grid = Grid::blocks((tiles as u32, heads as u32), (128, 1));
    Grid { shared: shared as u32, ..grid }
}

pub(crate) fn attention(
    cuda: &Cuda,
    given: &Attended<'_>,
    (out, log_sums): (&mut Tensor, Option<&mut Tensor>),
) {
    let Way { source, names: [name, ..], blocks: [block, _], shared: [shared, ..] } =
        way(given, &[out]);
    let described = described(cuda, given, Over::Queries, block);
    let log_sums = log_sums.map_or(0, |log_sums| log_sums.numbers_mut().address);
    let grid = grid(described.tiles, given.geometry.heads, shared);
    if described.tiles > 0 {
        let given = arguments![described.words, out.numbers_mut(), log_sums];
        cuda.launch((source, name), grid, given);
    }
}

/// For each span and key head, the attention that counts; see [`ProbeWeights`].
pub(crate) fn probe(
    cuda: &Cuda,
    given: &Attended<'_>,
    log_sums: &Tensor,
    probe: ProbeWeights<'_>,
) -> Vec<f64> {
    let Attended { geometry, spans, .. } = *given;
    let count = spans.len() * geometry.kv_heads;
    if count == 0 {
        return Vec::new();
    }
    let masses = cuda.take(2 * count);
    let (queries, keys) = (cuda.upload(probe.queries), cuda.upload(probe.keys));
    let received = probe.received.as_ref().map(|received| cuda.take(received.len().max(1)));
    let described = described(cuda, given, Over::Queries, BLOCK);
    let width = geometry.width;
    let shared = 4 * (32 * (width + 1) + 16 * width);
    let arguments = arguments![
        described.words,
        log_sums.numbers().address,
        &queries,
        &keys,
        probe.keys.len() as u32,
        received.as_ref().map_or(0, |received| received.address),
        masses.address
    ];
    let grid = grid(spans.len(), geometry.kv_heads, shared);
    cuda.launch((Source::Probe, "probe"), grid, arguments);
    if let (Some(found), Some(received)) = (probe.received, received) {
        found.copy_from_slice(&cuda.read::<f32>(received.address, found.len()));
    }
    cuda.read(masses.address, count)
}

pub(crate) fn attention_backward(
    cuda: &Cuda,
    given: &Attended<'_>,
    (out, log_sums, dout): (&Tensor, &Tensor, &Tensor),
    (dq, dkv): (Option<&mut Tensor>, &mut Tensor),
) {
    let geometry = given.geometry;
    let written: Vec<&Tensor> = dq.as_deref().into_iter().chain([&*dkv, dout]).collect();
    let Way { source, names: [_, for_queries, for_keys], blocks: [queries, keys], shared } =
        way(given, &written);
    let count = out.rows() * geometry.heads;
    let inner = cuda.take(count.max(1));
    let (log_sums, dout) = (log_sums.numbers().address, dout.numbers());
    let width = geometry.width as u32;
    let sums = arguments![out.numbers(), dout, inner.address, count as u64, width];
    cuda.launch((Source::Rows, "inner_products"), Grid::warps(count as u64), sums);
    let stride = dkv.cols();
    let dkv = dkv.numbers_mut();
    let (dq, stride) = dq.map_or((dkv, stride), |dq| (dq.numbers_mut(), dq.cols()));
    let of_queries = described(cuda, given, Over::Queries, queries);
    if of_queries.tiles > 0 {
        let grid = grid(of_queries.tiles, geometry.heads, shared[1]);
        let inner = inner.address;
        let given = arguments![of_queries.words, dout, log_sums, inner, dq, stride as u32];
        cuda.launch((source, for_queries), grid, given);
    }
    let of_keys = described(cuda, given, Over::Keys, keys);
    if of_keys.tiles > 0 {
        let grid = grid(of_keys.tiles, geometry.kv_heads, shared[2]);
        let given = arguments![of_keys.words, dout, log_sums, inner.address, dkv];
        cuda.launch((source, for_keys), grid, given);
    }
}
