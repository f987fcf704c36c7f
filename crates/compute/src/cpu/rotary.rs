//! Rotary positions, half-split: feature `i` is paired with feature `i + width / 2`.

use super::simd::vectorised;
use crate::thread_pool;

const ROWS: usize = 32;

/// Cosines and sines of every position up to a length, `width / 2` of each per position.
#[derive(Clone, Debug)]
pub struct Angles {
    half: usize,
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

impl Angles {
    /// Angles `position * theta^(-2 i / width)`, computed in f64.
    pub fn new(positions: usize, width: usize, theta: f64) -> Self {
        let frequency = |i: usize| theta.powf(-2.0 * i as f64 / width as f64);
        let frequencies: Vec<f64> = (0..width / 2).map(frequency).collect();
        Self::of_frequencies(positions, &frequencies, 1.0)
    }

    /// Angles `position * frequency` for each pair of a head, whose entries are also multiplied by a factor.
    pub fn of_frequencies(positions: usize, frequencies: &[f64], factor: f64) -> Self {
        let table = |f: fn(f64) -> f64| {
            let row = |p: usize| frequencies.iter().map(move |turn| f(p as f64 * turn) * factor);
            (0..positions).flat_map(row).map(|value| value as f32).collect()
        };
        Self { half: frequencies.len(), cosines: table(f64::cos), sines: table(f64::sin) }
    }

    /// Cosines and sines of the first positions.
    pub(crate) fn up_to(&self, positions: usize) -> (&[f32], &[f32]) {
        let end = positions * self.half;
        (&self.cosines[..end], &self.sines[..end])
    }

    /// Cosines and sines of each of these positions.
    pub(crate) fn of_positions(&self, positions: &[u32]) -> [Vec<f32>; 2] {
        [&self.cosines, &self.sines].map(|table| {
            let row = |&at: &u32| &table[at as usize * self.half..][..self.half];
            positions.iter().flat_map(row).copied().collect()
        })
    }

    /// The same with the positions of another table behind its own.
    #[must_use]
    pub fn followed_by(mut self, other: &Self) -> Self {
        assert_eq!(self.half, other.half, "tables of heads of the same width");
        self.cosines.extend_from_slice(&other.cosines);
        self.sines.extend_from_slice(&other.sines);
        self
    }

    /// Positions covered.
    pub fn positions(&self) -> usize {
        self.cosines.len() / self.half.max(1)
    }

    /// Width of a head.
    pub fn width(&self) -> usize {
        2 * self.half
    }
}

/// Which way to turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Forward.
    With,
    /// Backward: the transpose of a rotation is its inverse.
    Against,
}

/// Rotates the first `heads` heads of each row in place.
pub fn rotate(
    x: &mut [f32],
    cols: usize,
    heads: usize,
    positions: &[u32],
    angles: &Angles,
    turn: Turn,
) {
    thread_pool::each_chunk(x, ROWS * cols, |task, rows| {
        let positions = &positions[task * ROWS..];
        for (row, &position) in rows.chunks_exact_mut(cols).zip(positions) {
            let at = position as usize * angles.half..(position as usize + 1) * angles.half;
            let (cosines, sines) = (&angles.cosines[at.clone()], &angles.sines[at]);
            let sign = match turn {
                Turn::With => 1.0,
                Turn::Against => -1.0,
            };
            rotate_row(&mut row[..heads * 2 * angles.half], cosines, sines, sign);
        }
    });
}

vectorised! {
    fn rotate_row(row: &mut [f32], cosines: &[f32], sines: &[f32], sign: f32) {
        let half = cosines.len();
        for head in row.chunks_exact_mut(2 * half) {
            let (first, second) = head.split_at_mut(half);
            for (((a, b), c), s) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
                let s = s * sign;
                (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
            }
        }
    }
}
