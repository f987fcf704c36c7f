//! The numbers that `tools/golden.py` and these tests both make, so that none of them is stored.

use serde::Deserialize;

/// A tensor by formula: element `i` is `offset + scale (2 uniform(seed, i) - 1)`.
#[derive(Clone, Debug, Deserialize)]
pub struct Spec {
    pub shape: Vec<usize>,
    pub seed: u64,
    pub scale: f64,
    pub offset: f64,
}

impl Spec {
    /// The elements, row by row.
    pub fn values(&self) -> Vec<f32> {
        let element = |i| self.offset + self.scale * (2.0 * uniform(self.seed, i) - 1.0);
        (0..self.shape.iter().product::<usize>()).map(|i| element(i as u64) as f32).collect()
    }
}

/// Enough of a big tensor to tell it from another: its norm and its sums under three random signs.
#[derive(Clone, Debug, Deserialize)]
pub struct Compact {
    pub norm: f64,
    pub projections: [f64; 3],
}

impl Compact {
    /// The same numbers of ours.
    pub fn of(values: &[f32]) -> Self {
        let norm = values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let projections = [0u64, 1, 2].map(|j| {
            let signed = |(i, x): (usize, &f32)| match splitmix64((j << 32) + i as u64) % 2 {
                0 => f64::from(*x),
                _ => -f64::from(*x),
            };
            values.iter().enumerate().map(signed).sum()
        });
        Self { norm, projections }
    }

    /// The largest difference. The sum of an error under random signs is as large as its norm.
    pub fn distance(&self, other: &Self) -> f64 {
        let pairs = self.projections.iter().zip(&other.projections);
        pairs.fold((self.norm - other.norm).abs(), |most, (a, b)| most.max((a - b).abs()))
    }
}

/// Uniform in [0, 1), 24 bits.
pub fn uniform(seed: u64, i: u64) -> f64 {
    let bits = splitmix64(seed.wrapping_mul(GOLDEN_RATIO).wrapping_add(i));
    (bits >> 40) as f64 / (1u64 << 24) as f64
}

const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

fn splitmix64(z: u64) -> u64 {
    let z = z.wrapping_add(GOLDEN_RATIO);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
