//! A quantised matrix in main memory, on its way from a file or from f32 to a tensor.

use crate::cpu::quantised::View;
use crate::error::ComputeError;
use crate::quantisation::{BLOCK, Quantisation, Shape};
use crate::thread_pool;
use half::f16;
use std::ops::Range;

/// A matrix of small integers in blocks; [`Tensor::quantised`](crate::Tensor::quantised) puts it on a device.
///
/// ```
/// # use fedra_compute::{Quantisation, QuantisedMatrix};
/// let numbers: Vec<f32> = (0..64).map(|n| n as f32 / 64.0).collect();
/// let matrix = QuantisedMatrix::of(Quantisation::Int4, (2, 32), &numbers)?;
/// let furthest = matrix.to_f32().iter().zip(&numbers).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
/// assert!(furthest < 0.6 * 0.5 / 15.0);
/// # Ok::<(), fedra_compute::ComputeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantisedMatrix {
    pub(crate) shape: Shape,
    pub(crate) quants: Vec<u8>,
    pub(crate) scales: Vec<u16>,
}

impl QuantisedMatrix {
    /// Quantises numbers, row by row. Scales beyond the largest f16 become that.
    pub fn of(
        kind: Quantisation,
        (rows, cols): (usize, usize),
        values: &[f32],
    ) -> Result<Self, ComputeError> {
        let expected = rows.saturating_mul(cols);
        ComputeError::expect("quantised matrix", "number of values", values.len(), expected)?;
        let shape = Shape { kind, rows, cols };
        let mut scales = vec![0_u16; shape.scales()];
        let mut quants = vec![0_u8; shape.quant_bytes()];
        // First what each block is measured with, then its integers: two lists, each cut by rows.
        let row_scales = shape.row_blocks() * kind.scales();
        thread_pool::each_chunk(&mut scales, ROWS * row_scales.max(1), |task, scales| {
            let rows = scales.chunks_exact_mut(row_scales).enumerate();
            for (row, scales) in rows {
                let row = &values[(task * ROWS + row) * cols..][..cols];
                for (x, scales) in row.chunks(BLOCK).zip(scales.chunks_exact_mut(kind.scales())) {
                    match kind {
                        Quantisation::Int8 => scales[0] = scale_of(x),
                        Quantisation::Int4 => scales.copy_from_slice(&scale_and_minimum_of(x)),
                    }
                }
            }
        });
        let row_quants = shape.row_blocks() * kind.bytes();
        thread_pool::each_chunk(&mut quants, ROWS * row_quants.max(1), |task, quants| {
            for (row, quants) in quants.chunks_exact_mut(row_quants).enumerate() {
                let row = task * ROWS + row;
                let scales = scales[row * row_scales..][..row_scales].chunks_exact(kind.scales());
                let blocks = values[row * cols..][..cols].chunks(BLOCK);
                for ((x, scales), into) in
                    blocks.zip(scales).zip(quants.chunks_exact_mut(kind.bytes()))
                {
                    quantise(kind, x, scales, into);
                }
            }
        });
        Ok(Self { shape, quants, scales })
    }

    /// All zeros.
    pub(crate) fn zeros(kind: Quantisation, rows: usize, cols: usize) -> Self {
        let shape = Shape { kind, rows, cols };
        Self { shape, quants: vec![0; shape.quant_bytes()], scales: vec![0; shape.scales()] }
    }

    /// Blocks as a file has them, row by row: their integers, and their scales, each with its minimum where there
    /// is one. Every scale has to be a number.
    pub fn from_blocks(
        kind: Quantisation,
        (rows, cols): (usize, usize),
        quants: Vec<u8>,
        scales: Vec<u16>,
    ) -> Result<Self, ComputeError> {
        let shape = Shape { kind, rows, cols };
        let what = "number of bytes of integers";
        ComputeError::expect("quantised matrix", what, quants.len(), shape.quant_bytes())?;
        let what = "number of scales";
        ComputeError::expect("quantised matrix", what, scales.len(), shape.scales())?;
        if let Some(bits) = scales.iter().find(|bits| !f16::from_bits(**bits).is_finite()) {
            let (what, found) = ("scale of a block", f16::from_bits(*bits).to_f32());
            return Err(ComputeError::Setting { what, found, expected: "a number" });
        }
        Ok(Self { shape, quants, scales })
    }

    /// The integers.
    pub fn quantisation(&self) -> Quantisation {
        self.shape.kind
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.shape.rows, self.shape.cols)
    }

    /// Some of its rows.
    #[must_use]
    pub fn rows(&self, range: Range<usize>) -> Self {
        assert!(range.end <= self.shape.rows, "rows of a matrix are inside it");
        self.rows_in_order(range)
    }

    /// The rows at these places, in this order.
    #[must_use]
    pub fn rows_in_order(&self, order: impl ExactSizeIterator<Item = usize>) -> Self {
        let shape = Shape { rows: order.len(), ..self.shape };
        let quant_len = shape.row_blocks() * shape.kind.bytes();
        let scale_len = shape.row_blocks() * shape.kind.scales();
        let mut quants = Vec::with_capacity(shape.quant_bytes());
        let mut scales = Vec::with_capacity(shape.scales());
        for row in order {
            quants.extend_from_slice(&self.quants[row * quant_len..][..quant_len]);
            scales.extend_from_slice(&self.scales[row * scale_len..][..scale_len]);
        }
        Self { shape, quants, scales }
    }

    /// The numbers that it stands for.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.shape.rows * self.shape.cols];
        View::of(self.shape, &self.quants, &self.scales).read(&mut values);
        values
    }
}

/// Rows that a task quantises.
const ROWS: usize = 16;

/// The nearest f16, none beyond the largest.
fn nearest(x: f32) -> f16 {
    f16::from_f32(x.clamp(f16::MIN.to_f32(), f16::MAX.to_f32()))
}

/// The scale with which the largest number of a block is 127.
fn scale_of(x: &[f32]) -> u16 {
    let largest = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    nearest(largest / 127.0).to_bits()
}

/// Least squares after rounding, this many times: a little closer to the numbers than from the least to the most.
const REFITS: usize = 2;

/// A block's scale and minimum: from its least to its most number, then the line that fits the rounded integers best,
/// where it is closer.
fn scale_and_minimum_of(x: &[f32]) -> [u16; 2] {
    let least = x.iter().fold(f32::INFINITY, |least, x| least.min(*x));
    let most = x.iter().fold(f32::NEG_INFINITY, |most, x| most.max(*x));
    let mut line = (nearest((most - least) / 15.0), nearest(least));
    let (mut best, mut error) = (line, f64::INFINITY);
    for _ in 0..=REFITS {
        let (d, m) = (line.0.to_f32(), line.1.to_f32());
        let (mut sum, mut squares, mut sum_x, mut products, mut found) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for x in x {
            let q = f32::from(nibble(*x, d, m));
            found += f64::from(*x - (d * q + m)).powi(2);
            let (q, x) = (f64::from(q), f64::from(*x));
            (sum, squares, sum_x, products) =
                (sum + q, squares + q * q, sum_x + x, products + q * x);
        }
        if found < error {
            (best, error) = (line, found);
        }
        let count = x.len() as f64;
        let spread = count * squares - sum * sum;
        if spread <= 0.0 {
            break;
        }
        let d = (count * products - sum * sum_x) / spread;
        line = (nearest(d as f32), nearest(((sum_x - d * sum) / count) as f32));
    }
    [best.0.to_bits(), best.1.to_bits()]
}

/// The integer from 0 to 15 that stands for a number.
fn nibble(x: f32, d: f32, m: f32) -> u8 {
    if d == 0.0 { 0 } else { ((x - m) / d + 0.5).clamp(0.0, 15.0) as u8 }
}

/// The integers of a block.
fn quantise(kind: Quantisation, x: &[f32], scales: &[u16], into: &mut [u8]) {
    let d = f16::from_bits(scales[0]).to_f32();
    match kind {
        Quantisation::Int8 => {
            for (into, x) in into.iter_mut().zip(x) {
                let q = if d == 0.0 { 0.0 } else { (x / d).round().clamp(-127.0, 127.0) };
                *into = (q as i8).cast_unsigned();
            }
        }
        Quantisation::Int4 => {
            let m = f16::from_bits(scales[1]).to_f32();
            for (place, x) in x.iter().enumerate() {
                let half = if place < BLOCK / 2 { 0 } else { 4 };
                into[place % (BLOCK / 2)] |= nibble(*x, d, m) << half;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    fn drawn(count: usize, seed: u64) -> Vec<f32> {
        let mut draw = Seed(seed).generator();
        (0..count).map(|_| 0.05 * draw.normal() as f32).collect()
    }

    /// The root of the mean square of what is lost, as a share of that of the numbers.
    fn lost(kind: Quantisation, shape: (usize, usize)) -> f64 {
        let numbers = drawn(shape.0 * shape.1, 7);
        let found = QuantisedMatrix::of(kind, shape, &numbers).unwrap().to_f32();
        let square = |x: f32| f64::from(x).powi(2);
        let error: f64 = numbers.iter().zip(&found).map(|(a, b)| square(a - b)).sum();
        (error / numbers.iter().map(|x| square(*x)).sum::<f64>()).sqrt()
    }

    #[test]
    fn what_is_lost_of_normal_numbers_is_half_a_percent_in_8_bits_and_8_percent_in_4() {
        for shape in [(64, 64), (37, 75), (1, 5), (200, 1)] {
            assert!(lost(Quantisation::Int8, shape) < 0.008, "{shape:?}");
            assert!(lost(Quantisation::Int4, shape) < 0.09, "{shape:?}");
        }
        assert!(lost(Quantisation::Int4, (64, 64)) > 0.05, "it would be another format");
    }

    #[test]
    fn a_matrix_that_was_quantised_comes_back_the_same_and_so_do_its_rows() {
        for kind in [Quantisation::Int8, Quantisation::Int4] {
            let matrix = QuantisedMatrix::of(kind, (33, 70), &drawn(33 * 70, 1)).unwrap();
            let numbers = matrix.to_f32();
            let copy = QuantisedMatrix::from_blocks(
                kind,
                (33, 70),
                matrix.quants.clone(),
                matrix.scales.clone(),
            );
            assert_eq!(copy.unwrap().to_f32(), numbers);
            assert_eq!(matrix.rows(3..7).to_f32(), numbers[3 * 70..7 * 70]);
            let turned = matrix.rows_in_order((0..33).rev()).to_f32();
            assert_eq!(turned[..70], numbers[32 * 70..]);
        }
    }

    #[test]
    fn blocks_of_equal_numbers_and_of_zeros_are_exact() {
        for kind in [Quantisation::Int8, Quantisation::Int4] {
            let numbers = [[0.5_f32; BLOCK], [0.0; BLOCK], [-0.25; BLOCK]].concat();
            let found = QuantisedMatrix::of(kind, (3, BLOCK), &numbers).unwrap().to_f32();
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-3 * b.abs();
            assert!(found.iter().zip(&numbers).all(close), "{kind:?}: {found:?}");
            assert_eq!(found[BLOCK..2 * BLOCK], numbers[BLOCK..2 * BLOCK]);
        }
    }

    #[test]
    fn scales_that_are_no_numbers_and_lists_of_another_length_are_refused() {
        let blocks = |quants: usize, scales: Vec<u16>| {
            let made =
                QuantisedMatrix::from_blocks(Quantisation::Int4, (2, 40), vec![0; quants], scales);
            made.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(blocks(64, vec![0; 8]), Ok(()));
        let refused = blocks(64, vec![0, 0, 0, 0, 0, 0x7c00, 0, 0]).unwrap_err();
        assert_eq!(refused, "scale of a block is inf, expected a number");
        let refused = blocks(63, vec![0; 8]).unwrap_err();
        assert_eq!(refused, "quantised matrix: number of bytes of integers is 63, expected 64");
        let refused = blocks(64, vec![0; 7]).unwrap_err();
        assert_eq!(refused, "quantised matrix: number of scales is 7, expected 8");
    }
}
