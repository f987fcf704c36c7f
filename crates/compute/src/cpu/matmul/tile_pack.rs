//! Operands of bf16 products, rounded and cut into [blocks](super::tile).
//!
//! There is one move for numbers that are neighbours along the depth (round, join two), one for
//! numbers that are neighbours across it (round two rows, join them), and a transpose of 16 x 16 words
//! that turns what suits one side of a product into what suits the other. Past the edges are zeros.

#![expect(
    clippy::inline_always,
    reason = "a call inside a loop would keep it from being vectorised"
)]

use super::moves::transpose;
use super::tile::{Block, SIDE, TILE};
use super::view::Mat;
use crate::cpu::simd::vectorised;
use std::ops::Range;

/// Words of one tile.
type Tile = [f32; TILE * TILE];

/// Blocks that a matrix has along a side of so many rows, columns or depth.
pub const fn blocks(count: usize) -> usize {
    count.div_ceil(SIDE)
}

/// Packs columns `panel * SIDE ..` of matrices on top of each other, block after block.
pub fn right_panel(into: &mut [Block], parts: &[Mat<'_>], panel: usize) {
    let columns = panel * SIDE..parts[0].cols.min(panel * SIDE + SIDE);
    let depth: usize = parts.iter().map(|part| part.rows).sum();
    for (index, block) in into.iter_mut().enumerate() {
        let depth = index * SIDE..depth.min(index * SIDE + SIDE);
        for (half, tile) in tiles(block).into_iter().enumerate() {
            let first = columns.end.min(columns.start + half * TILE);
            let columns = first..columns.end.min(first + TILE);
            right_tile(tile, parts, depth.clone(), columns);
        }
    }
}

/// Packs some rows of a matrix, a strip of 32 after another, each block after block of the depth.
pub fn left_strips(into: &mut [Block], a: Mat<'_>, rows: &Range<usize>, depth: &Range<usize>) {
    let deep = blocks(depth.len());
    // Where rows are neighbours, all of them are read before the depth moves on.
    for index in 0..deep {
        let depth = depth.start + index * SIDE..depth.end.min(depth.start + (index + 1) * SIDE);
        for (strip, first) in rows.clone().step_by(SIDE).enumerate() {
            for (half, tile) in tiles(&mut into[strip * deep + index]).into_iter().enumerate() {
                let first = rows.end.min(first + half * TILE);
                left_tile(tile, a, first..rows.end.min(first + TILE), depth.clone());
            }
        }
    }
}

/// The two tiles of a block.
fn tiles(block: &mut Block) -> [&mut Tile; 2] {
    let (tiles, _) = block.as_chunks_mut();
    let [upper, lower] = tiles else { unreachable!("a block is two tiles") };
    [upper, lower]
}

fn left_tile(into: &mut Tile, a: Mat<'_>, rows: Range<usize>, depth: Range<usize>) {
    if a.col_stride == 1 {
        return along(into, a, rows, depth);
    }
    let mut turned = [0.0; TILE * TILE];
    across(&mut turned, &[a.t()], depth, rows);
    transpose(into, TILE, &turned, TILE, (TILE, TILE));
}

fn right_tile(into: &mut Tile, parts: &[Mat<'_>], depth: Range<usize>, columns: Range<usize>) {
    if let [only] = parts
        && only.col_stride != 1
    {
        let mut turned = [0.0; TILE * TILE];
        along(&mut turned, only.t(), columns, depth);
        return transpose(into, TILE, &turned, TILE, (TILE, TILE));
    }
    across(into, parts, depth, columns);
}

/// Row `r` is row `rows.start + r`, neighbours along the depth joined.
fn along(into: &mut Tile, a: Mat<'_>, rows: Range<usize>, depth: Range<usize>) {
    debug_assert_eq!(a.col_stride, 1, "rows run along the depth");
    let (into, _) = into.as_chunks_mut::<TILE>();
    if (rows.len(), depth.len()) == (TILE, SIDE) {
        let from = &a.data[rows.start * a.row_stride + depth.start..];
        return join_neighbours(into, from, a.row_stride);
    }
    let mut padded = [0.0; TILE * SIDE];
    for (row, into) in rows.zip(padded.chunks_exact_mut(SIDE)) {
        let from = &a.data[row * a.row_stride + depth.start..][..depth.len()];
        into[..from.len()].copy_from_slice(from);
    }
    join_neighbours(into, &padded, SIDE);
}

/// Row `p` is rows `2 p` and `2 p + 1` of the depth joined, column by column.
fn across(into: &mut Tile, parts: &[Mat<'_>], depth: Range<usize>, columns: Range<usize>) {
    let (into, _) = into.as_chunks_mut::<TILE>();
    if let [only] = parts
        && (depth.len(), columns.len()) == (SIDE, TILE)
    {
        debug_assert_eq!(only.col_stride, 1, "rows run across the depth");
        let from = &only.data[depth.start * only.row_stride + columns.start..];
        return join_rows(into, from, only.row_stride);
    }
    let mut padded = [0.0; SIDE * TILE];
    for (k, into) in depth.zip(padded.chunks_exact_mut(TILE)) {
        row_of(parts, k, &columns, into);
    }
    join_rows(into, &padded, TILE);
}

/// Some columns of row `k` of matrices on top of each other.
fn row_of(parts: &[Mat<'_>], mut k: usize, columns: &Range<usize>, into: &mut [f32]) {
    for part in parts {
        if k < part.rows {
            for (column, into) in columns.clone().zip(into) {
                *into = part.data[k * part.row_stride + column * part.col_stride];
            }
            return;
        }
        k -= part.rows;
    }
}

/// The bits of the nearest bf16 in the upper half, ties to even; not-a-number stays not-a-number.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    // The payload could be rounded away, which would leave an infinity.
    if x.is_nan() { bits | 0x0040_0000 } else { rounded }
}

#[inline(always)]
fn joined(even: f32, odd: f32) -> f32 {
    f32::from_bits(rounded(even) >> 16 | rounded(odd) & 0xffff_0000)
}

vectorised! {
    /// `into[r][p]` joins places `2 p` and `2 p + 1` of row `r`.
    fn join_neighbours(into: &mut [[f32; TILE]], from: &[f32], stride: usize) {
        for r in 0..TILE {
            let row: &[f32; SIDE] = from[r * stride..][..SIDE].try_into().expect("32 numbers");
            for p in 0..TILE {
                into[r][p] = joined(row[2 * p], row[2 * p + 1]);
            }
        }
    }
}

vectorised! {
    /// `into[p][c]` joins place `c` of rows `2 p` and `2 p + 1`.
    fn join_rows(into: &mut [[f32; TILE]], from: &[f32], stride: usize) {
        for p in 0..TILE {
            let even: &[f32; TILE] =
                from[2 * p * stride..][..TILE].try_into().expect("16 numbers");
            let odd: &[f32; TILE] =
                from[(2 * p + 1) * stride..][..TILE].try_into().expect("16 numbers");
            for c in 0..TILE {
                into[p][c] = joined(even[c], odd[c]);
            }
        }
    }
}
