//! A task of a bf16 product: its left rows are packed into blocks once, and every right panel passes by.
//!
//! Panels and destinations are those of an f32 product, and so are bias, residual and what finishes a
//! block. The order of additions for one element follows from the depth alone.

use super::right::{Panel, Right};
use super::task::{Destination, FINISH_PANELS, Finish, NOTHING, Start, finish_rows, share, starts};
use super::tile::{Block, Ready, SIDE, Sums, WORDS};
use super::tile_pack::{blocks, left_strips};
use super::view::Mat;
use crate::cpu::bf16_products::TileKernel;
use crate::thread_pool::ThreadPool;
use std::ops::Range;

/// Blocks of depth that are multiplied at once: a right panel of so many stays in the L1 cache.
/// (Miri is slow: few there, so that small products have several slices too.)
const DEPTH: usize = if cfg!(miri) { 1 } else { 16 };
/// Most strips of 32 rows in a task: so many of [`DEPTH`] stay in the L2 cache beside the panels.
const STRIPS: usize = if cfg!(miri) { 2 } else { 8 };
/// Rows of so many strips.
pub(super) const ROWS: usize = STRIPS * SIDE;
/// Fewest strips worth a task of their own.
const FEWEST_STRIPS: usize = if cfg!(miri) { 1 } else { 2 };
/// Tasks per thread: fewer than in f32, because every task reads all panels.
const TASKS_PER_THREAD: usize = 2;

/// Floats of packed rows.
pub(super) fn strips_len(rows: usize, depth: usize) -> usize {
    blocks(rows) * deepest(depth) * WORDS
}

/// Floats of packed rows, if at most [`ROWS`] are packed at a time.
pub(super) fn serial_len(rows: usize, depth: usize) -> usize {
    strips_len(rows.min(ROWS), depth)
}

/// Blocks of the longest slice of a depth.
fn deepest(depth: usize) -> usize {
    let deep = blocks(depth);
    deep.div_ceil(slices(deep))
}

/// Slices into which so many blocks of depth are cut.
fn slices(deep: usize) -> usize {
    deep.div_ceil(DEPTH).max(1)
}

/// The rows of a block of strips.
pub(super) fn rows_of(rows: usize, row_blocks: usize, index: usize) -> Range<usize> {
    let strips = share(blocks(rows), row_blocks, index);
    strips.start * SIDE..rows.min(strips.end * SIDE)
}

/// Floats that the tasks of a product pack at a time of their left operand.
pub(super) fn left_len(rows: usize, depth: usize, panels: usize) -> usize {
    let (row_blocks, column_blocks) = grid(rows, panels);
    let at_once = ThreadPool::current_threads().min(row_blocks * column_blocks);
    at_once * strips_len(rows_of(rows, row_blocks, 0).len(), depth)
}

/// How many row blocks and column blocks a product is cut into: at least one task for every thread,
/// as many for each where that is possible, none too tall for the cache.
pub(super) fn grid(rows: usize, panels: usize) -> (usize, usize) {
    let (threads, strips) = (ThreadPool::current_threads(), blocks(rows));
    let wanted = TASKS_PER_THREAD * threads;
    let row_blocks = wanted.min(strips.div_ceil(FEWEST_STRIPS)).max(strips.div_ceil(STRIPS));
    let column_blocks = threads.div_ceil(row_blocks).min(panels.div_ceil(2)).max(1);
    let even = (row_blocks..row_blocks + threads)
        .find(|rows| (rows * column_blocks).is_multiple_of(threads));
    (even.unwrap_or(row_blocks).min(strips), column_blocks)
}

/// What a task reads.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub a: Mat<'a>,
    pub b: &'a Right<'a>,
    pub start: &'a Start<'a>,
    pub finish: Option<Finish<'a>>,
}

/// Rows x panels of a product; `scratch` has room for the [packed rows](strips_len).
///
/// # Safety
/// The rows and the panels' columns must be inside the destination and written by nobody else, and so
/// must the sums of these rows.
pub(super) unsafe fn block(
    kernel: TileKernel,
    c: Destination,
    Operands { a, b, start, finish }: Operands<'_>,
    mut sums: Option<&mut [f32]>,
    (rows, panels): (Range<usize>, Range<usize>),
    scratch: &mut [f32],
) {
    let ready = Ready::new(kernel);
    let (scratch, _) = scratch.as_chunks_mut::<WORDS>();
    let deep = blocks(a.cols);
    let slices = slices(deep);
    for slice in 0..slices {
        let slice_blocks = share(deep, slices, slice);
        let depth = slice_blocks.start * SIDE..a.cols.min(slice_blocks.end * SIDE);
        let (at_start, at_end) = (slice == 0, slice + 1 == slices);
        if let Some(sums) = sums.as_deref_mut().filter(|_| !depth.is_empty()) {
            // Just before the same numbers are packed.
            a.add_row_sums(rows.start, depth.clone(), sums);
        }
        left_strips(scratch, a, &rows, &depth);
        let mut finished = panels.start;
        for index in panels.clone() {
            let Panel { column, width } = b.panels[index];
            let width = width.min(c.cols - column);
            let right = b.blocks(index, &slice_blocks);
            for (strip, row) in rows.clone().step_by(SIDE).enumerate() {
                let left = &scratch[strip * slice_blocks.len()..][..slice_blocks.len()];
                let shape = (SIDE.min(rows.end - row), width);
                // SAFETY: `row` and `column` are inside the destination (caller's promise).
                let into = unsafe { c.start.add(row * c.stride + column) };
                let from = if at_start {
                    starts(start, row, column, (into, c.stride))
                } else {
                    [(into.cast_const(), c.stride), NOTHING]
                };
                // SAFETY: destination and start rows lie inside their matrices.
                unsafe { sum_block(&ready, (left, right), shape, from, (into, c.stride)) };
            }
            let last = index + 1 == panels.end;
            if let Some(finish) =
                finish.filter(|_| at_end && (last || index + 1 - finished == FINISH_PANELS))
            {
                let columns = b.panels[finished].column..column + width;
                finished = index + 1;
                // SAFETY: these columns of these rows belong to this task alone.
                unsafe { finish_rows(finish, c, rows.clone(), columns) };
            }
        }
    }
}

/// One block of sums. What is not a whole block, or starts from two sources, goes through a block
/// on the stack.
///
/// # Safety
/// As many rows and columns as the shape says must be valid at `into` and at each source.
unsafe fn sum_block(
    ready: &Ready,
    operands: (&[Block], &[Block]),
    (height, width): (usize, usize),
    from: [(*const f32, usize); 2],
    (into, stride): (*mut f32, usize),
) {
    let is_whole = (height, width) == (SIDE, SIDE);
    if is_whole && from[1].0.is_null() {
        // SAFETY: the caller vouches for whole blocks.
        return unsafe { ready.multiply(operands, from[0], (into, stride)) };
    }
    let mut sums: Sums = [0.0; SIDE * SIDE];
    for (pointer, stride) in from.into_iter().filter(|(pointer, _)| !pointer.is_null()) {
        for (r, row) in sums.chunks_exact_mut(SIDE).take(height).enumerate() {
            // SAFETY: the caller vouches for this row of the source.
            let from = unsafe { std::slice::from_raw_parts(pointer.add(r * stride), width) };
            row.iter_mut().zip(from).for_each(|(sum, x)| *sum += x);
        }
    }
    let local = (sums.as_mut_ptr(), SIDE);
    if is_whole {
        // SAFETY: the block on the stack is whole, and so is the destination.
        return unsafe { ready.multiply(operands, (local.0.cast_const(), SIDE), (into, stride)) };
    }
    // SAFETY: the block on the stack is whole.
    unsafe { ready.multiply(operands, (local.0.cast_const(), SIDE), local) };
    for (r, row) in sums.chunks_exact(SIDE).take(height).enumerate() {
        // SAFETY: the caller vouches for this row of the destination, which nobody else uses.
        let into = unsafe { std::slice::from_raw_parts_mut(into.add(r * stride), width) };
        into.copy_from_slice(&row[..width]);
    }
}
