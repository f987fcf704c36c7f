//! Reading quantised matrices as the f32 that they stand for.

#![expect(
    clippy::inline_always,
    reason = "a call inside a loop would keep it from being vectorised"
)]

use super::simd::vectorised;
use crate::quantisation::{BLOCK, Quantisation, Shape};
use crate::thread_pool;
use std::ops::Range;

/// A quantised matrix in main memory.
///
/// Every block lies inside both lists: the constructor checks it and nobody else makes one, so the kernels may
/// read without checking.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    shape: Shape,
    quants: &'a [u8],
    scales: &'a [u16],
}

impl<'a> View<'a> {
    /// The matrix over its integers and scales, which may be longer.
    pub(crate) fn of(shape: Shape, quants: &'a [u8], scales: &'a [u16]) -> Self {
        let (quants, scales) = (&quants[..shape.quant_bytes()], &scales[..shape.scales()]);
        Self { shape, quants, scales }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.shape.cols
    }

    /// The integers, from a row on; their kind says how they are laid out.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn rows_behind(&self, row: usize) -> (Quantisation, &'a [u8], &'a [u16]) {
        let (kind, blocks) = (self.shape.kind, row * self.shape.row_blocks());
        (kind, &self.quants[blocks * kind.bytes()..], &self.scales[blocks * kind.scales()..])
    }

    /// Some columns of a row, from the start of a block on.
    pub fn read_row(&self, row: usize, columns: Range<usize>, into: &mut [f32]) {
        debug_assert!(columns.start.is_multiple_of(BLOCK) && columns.end <= self.shape.cols);
        let (kind, first) =
            (self.shape.kind, row * self.shape.row_blocks() + columns.start / BLOCK);
        let quants = &self.quants[first * kind.bytes()..];
        let scales = &self.scales[first * kind.scales()..];
        let whole = columns.len() / BLOCK;
        let (into, rest) = into[..columns.len()].split_at_mut(whole * BLOCK);
        unpack(kind, into, quants, scales);
        if !rest.is_empty() {
            let mut last = [0.0; BLOCK];
            unpack(
                kind,
                &mut last,
                &quants[whole * kind.bytes()..],
                &scales[whole * kind.scales()..],
            );
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// All of its first rows, as many as there is room for.
    pub fn read(&self, into: &mut [f32]) {
        const ROWS: usize = 16;
        let cols = self.shape.cols;
        if cols == 0 {
            return;
        }
        thread_pool::each_chunk(into, ROWS * cols, |task, into| {
            for (row, into) in into.chunks_exact_mut(cols).enumerate() {
                self.read_row(task * ROWS + row, 0..cols, into);
            }
        });
    }
}

fn unpack(kind: Quantisation, into: &mut [f32], quants: &[u8], scales: &[u16]) {
    match kind {
        Quantisation::Int8 => unpack_int8(into, quants, scales),
        Quantisation::Int4 => unpack_int4(into, quants, scales),
    }
}

/// The f32 that a finite f16 stands for: its bits in the place of an f32's, times what the exponents differ by.
#[inline(always)]
fn widened(half: u16) -> f32 {
    let magnitude = f32::from_bits(u32::from(half & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    f32::from_bits(magnitude.to_bits() | u32::from(half & 0x8000) << 16)
}

vectorised! {
    /// Whole blocks.
    fn unpack_int8(into: &mut [f32], quants: &[u8], scales: &[u16]) {
        for (block, into) in into.chunks_exact_mut(BLOCK).enumerate() {
            let q: &[u8; BLOCK] = quants[block * BLOCK..][..BLOCK].try_into().expect("32 bytes");
            let d = widened(scales[block]);
            for i in 0..BLOCK {
                into[i] = d * f32::from(q[i].cast_signed());
            }
        }
    }
}

vectorised! {
    /// Whole blocks.
    fn unpack_int4(into: &mut [f32], quants: &[u8], scales: &[u16]) {
        const HALF: usize = BLOCK / 2;
        for (block, into) in into.chunks_exact_mut(BLOCK).enumerate() {
            let q: &[u8; HALF] = quants[block * HALF..][..HALF].try_into().expect("16 bytes");
            let (d, m) = (widened(scales[2 * block]), widened(scales[2 * block + 1]));
            for i in 0..HALF {
                into[i] = d * f32::from(q[i] & 15) + m;
            }
            for i in 0..HALF {
                into[HALF + i] = d * f32::from(q[i] >> 4) + m;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn every_finite_f16_is_read_as_what_it_is() {
        for bits in (0..=u16::MAX).filter(|bits| f16::from_bits(*bits).is_finite()) {
            let (found, expected) = (widened(bits), f16::from_bits(bits).to_f32());
            assert_eq!(found.to_bits(), expected.to_bits(), "{bits:#06x}");
        }
    }

    #[test]
    fn blocks_are_read_as_the_formula_says() {
        let (scale, least) = (f16::from_f32(0.125), f16::from_f32(-0.75));
        let scales = [scale.to_bits(), least.to_bits()];
        let quants: Vec<u8> = (0..16).map(|i| i | (15 - i) << 4).collect();
        let mut found = [0.0; 30];
        let shape = Shape { kind: Quantisation::Int4, rows: 1, cols: 30 };
        View::of(shape, &quants, &scales).read(&mut found);
        for (place, x) in found.iter().enumerate() {
            let q = if place < 16 { place } else { 31 - place };
            assert_eq!(*x, 0.125 * q as f32 - 0.75, "{place}");
        }
        let quants: Vec<u8> = (0..32).map(|i: i8| (i - 16).cast_unsigned()).collect();
        let mut found = [0.0; 32];
        let shape = Shape { kind: Quantisation::Int8, rows: 1, cols: 32 };
        View::of(shape, &quants, &scales[..1]).read(&mut found);
        assert!(found.iter().enumerate().all(|(i, x)| *x == 0.125 * (i as f32 - 16.0)));
    }
}
