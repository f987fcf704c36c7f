//! Numbers made by a formula, so that no test depends on a generator's state.
//!
//! The formula is that of `tools/golden.py`, which made the golden values from the same inputs.

use fedra_compute::{Device, LossWeights, Projection, Span, Tensor, Weight};
use fedra_plan::{Layer, ParamId, Part, Role};

/// Gamma of splitmix64, and what spreads the seeds apart.
const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finaliser of splitmix64.
pub fn splitmix64(z: u64) -> u64 {
    let z = z.wrapping_add(GOLDEN_RATIO);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Number `i` of a seed, in [0, 1).
pub fn uniform(seed: u64, i: usize) -> f64 {
    let bits = splitmix64(seed.wrapping_mul(GOLDEN_RATIO).wrapping_add(i as u64));
    (bits >> 40) as f64 / f64::from(1 << 24)
}

/// `offset + scale * (2 u - 1)`, rounded once.
pub fn numbers(seed: u64, count: usize, (scale, offset): (f64, f64)) -> Vec<f32> {
    (0..count).map(|i| (offset + scale * (2.0 * uniform(seed, i) - 1.0)) as f32).collect()
}

/// Numbers in `0 .. limit`.
pub fn indices(seed: u64, count: usize, limit: usize) -> Vec<u32> {
    (0..count).map(|i| (uniform(seed, i) * limit as f64) as u32).collect()
}

/// A tensor of numbers in [-1, 1).
pub fn tensor(device: &Device, (rows, cols): (usize, usize), seed: u64) -> Tensor {
    of(device, (rows, cols), &numbers(seed, rows * cols, (1.0, 0.0)))
}

/// A tensor of the given numbers.
pub fn of(device: &Device, (rows, cols): (usize, usize), numbers: &[f32]) -> Tensor {
    Tensor::from_slice(device, rows, cols, numbers).expect("the shape is that of the numbers")
}

/// A weight of block zero.
pub fn id(role: Role) -> ParamId {
    ParamId::new(Layer::Block(0), role, Part::Weight)
}

/// A bias of block zero.
pub fn bias_id(role: Role) -> ParamId {
    ParamId::new(Layer::Block(0), role, Part::Bias)
}

/// A weight that trains.
pub fn trained(id: ParamId, tensor: Tensor) -> Weight {
    Weight { id, tensor, trains: true }
}

/// A weight that does not.
pub fn frozen(id: ParamId, tensor: Tensor) -> Weight {
    Weight { id, tensor, trains: false }
}

/// A projection by a weight alone.
pub fn bare(weight: Weight) -> Projection {
    Projection { weight, bias: None, lora: None }
}

/// Sequences of the given lengths, every token a query and a key.
pub fn spans(lengths: &[usize]) -> Vec<Span> {
    let mut start = 0;
    let span = |&length| {
        let rows = start..start + length;
        start += length;
        Span { queries: rows.clone(), keys: rows, offset: 0 }
    };
    lengths.iter().map(span).collect()
}

/// Positions of the tokens of sequences of the given lengths.
pub fn positions(lengths: &[usize]) -> Vec<u32> {
    lengths.iter().flat_map(|&length| 0..length as u32).collect()
}

/// The bits of a tensor, for comparisons that admit no error.
pub fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.to_host().iter().map(|x| x.to_bits()).collect()
}

/// Euclidean norm, in f64.
pub fn norm(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

/// Distance relative to the norm of what was expected.
pub fn distance(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let apart: Vec<f32> = found.iter().zip(expected).map(|(x, y)| x - y).collect();
    norm(&apart) / norm(expected).max(f64::MIN_POSITIVE)
}

/// The weights that make a loss the mean over its targets.
pub fn mean(targets: &[Option<u32>]) -> LossWeights<'static> {
    LossWeights::mean(targets.iter().flatten().count())
}
