//! Matrix products: a packed right operand, row blocks packed on the way, a register-tile kernel.
//!
//! Everything a Transformer adds around a product happens while the numbers are at hand: sums start
//! from a bias, a residual or what the destination already holds; an activation or a mask of
//! derivatives is applied to a block before it leaves the cache; bias gradients fall out of packing.
//! The order of additions for one element depends only on the depth, never on the thread count.

mod kernel;
mod pack;
mod transpose;
mod view;

pub use view::{Mat, MatMut};

use crate::pool::{Buffer, Pool};
use kernel::{HEIGHT, Tile, WIDTH};
use rayon::prelude::*;
use std::ops::Range;

/// Depth that is packed and multiplied at once: a right panel of this depth stays in the L1/L2 cache.
const DEPTH: usize = 384;
/// Most rows in a task: a left block of this height and [`DEPTH`] stays in the L2 cache.
const BLOCK_ROWS: usize = 252;
/// Tasks per thread, so that a slow core does not hold up the others.
const TASKS_PER_THREAD: usize = 4;

/// A packed right operand, ready for any number of products.
#[derive(Debug)]
pub struct Right {
    packed: Buffer,
    depth: usize,
    panels: Vec<Panel>,
}

#[derive(Clone, Copy, Debug)]
struct Panel {
    column: usize,
    width: usize,
}

impl Right {
    /// Packs matrices of equal depth side by side: the product's columns are theirs in order.
    pub fn beside(pool: &Pool, parts: &[Mat<'_>]) -> Self {
        let depth = parts.first().map_or(0, |part| part.rows);
        let mut jobs = Vec::new();
        let mut column = 0;
        for part in parts {
            assert_eq!(part.rows, depth, "matrices side by side share their depth");
            for index in 0..part.cols.div_ceil(WIDTH) {
                let first = index * WIDTH;
                let width = WIDTH.min(part.cols - first);
                jobs.push((*part, index, Panel { column: column + first, width }));
            }
            column += part.cols;
        }
        let mut packed = pool.take(jobs.len() * WIDTH * depth);
        if depth > 0 {
            packed
                .par_chunks_mut(WIDTH * depth)
                .zip(&jobs)
                .for_each(|(into, (part, index, _))| pack::right_panel(into, *part, *index));
        }
        Self { packed, depth, panels: jobs.into_iter().map(|(_, _, panel)| panel).collect() }
    }

    /// Packs matrices of equal width on top of each other: the depth is the sum of theirs.
    pub fn stacked(pool: &Pool, parts: &[Mat<'_>]) -> Self {
        let cols = parts.first().map_or(0, |part| part.cols);
        assert!(parts.iter().all(|part| part.cols == cols), "stacked matrices share their width");
        let depth: usize = parts.iter().map(|part| part.rows).sum();
        let mut packed = pool.take(pack::right_len(depth, cols));
        if depth > 0 {
            packed.par_chunks_mut(WIDTH * depth).enumerate().for_each(|(index, into)| {
                let mut rest = into;
                for part in parts {
                    let (now, later) = rest.split_at_mut(part.rows * WIDTH);
                    pack::right_panel(now, *part, index);
                    rest = later;
                }
            });
        }
        let panels = (0..cols.div_ceil(WIDTH))
            .map(|index| Panel { column: index * WIDTH, width: WIDTH.min(cols - index * WIDTH) })
            .collect();
        Self { packed, depth, panels }
    }

    /// Nothing yet; see [`Right::repack`].
    pub fn empty(pool: &Pool) -> Self {
        Self { packed: pool.take(0), depth: 0, panels: Vec::new() }
    }

    /// Packs one small matrix on the calling thread, into memory that is used again.
    pub fn repack(&mut self, b: Mat<'_>) {
        let len = pack::right_len(b.rows, b.cols);
        if self.packed.len() < len {
            self.packed = self.packed.pool().take(len);
        }
        self.depth = b.rows;
        self.panels.clear();
        for (index, into) in
            self.packed[..len].chunks_exact_mut((WIDTH * b.rows).max(1)).enumerate()
        {
            let column = index * WIDTH;
            self.panels.push(Panel { column, width: WIDTH.min(b.cols - column) });
            pack::right_panel(into, b, index);
        }
    }

    /// Columns of the product.
    pub fn cols(&self) -> usize {
        self.panels.last().map_or(0, |panel| panel.column + panel.width)
    }

    fn panel(&self, index: usize) -> &[f32] {
        &self.packed[index * WIDTH * self.depth..][..WIDTH * self.depth]
    }
}

/// What the sums of a product start from.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// Zero: the destination is overwritten.
    Zero,
    /// What the destination holds: the product is added to it.
    Keep,
    /// One row, the same for all.
    Bias(&'a [f32]),
    /// A matrix of the destination's shape.
    Residual(Mat<'a>),
    /// Both.
    BiasAndResidual(&'a [f32], Mat<'a>),
}

/// What happens to a finished block while it is still in the cache: called with the first row, the
/// first column, and one row's segment at a time.
pub type Finish<'a> = &'a (dyn Fn(usize, usize, &mut [f32]) + Sync);

/// A product's optional trimmings.
#[derive(Default)]
pub struct Extras<'a> {
    /// Applied to each finished row segment.
    pub finish: Option<Finish<'a>>,
    /// Receives (adds) the sums of the left operand's rows.
    pub row_sums: Option<&'a mut [f32]>,
}

/// `c = start + a * b`, in parallel on the current rayon pool.
pub fn multiply(mut c: MatMut<'_>, a: Mat<'_>, b: &Right, start: Start<'_>, extras: Extras<'_>) {
    check(&c, a, b);
    if c.rows == 0 || c.cols == 0 {
        return;
    }
    let pool = b.packed.pool();
    let wanted = TASKS_PER_THREAD * rayon::current_num_threads();
    let row_blocks = c.rows.div_ceil(BLOCK_ROWS).max(wanted.min(c.rows.div_ceil(HEIGHT * 4)));
    let column_blocks = wanted.div_ceil(row_blocks).min(b.panels.len().div_ceil(2)).max(1);
    let out = Destination { start: c.as_mut_ptr(), stride: c.row_stride, cols: c.cols };
    let sums = extras.row_sums.map(|sums| {
        assert_eq!(sums.len(), a.rows);
        Destination { start: sums.as_mut_ptr(), stride: 1, cols: 1 }
    });
    (0..row_blocks * column_blocks).into_par_iter().for_each(|task| {
        let rows = share(c.rows, row_blocks, task / column_blocks);
        let panels = share(b.panels.len(), column_blocks, task % column_blocks);
        let mut scratch = pool.take(rows.len() * a.cols.min(DEPTH));
        let sums = sums.filter(|_| panels.start == 0);
        // SAFETY: tasks cover disjoint rows or disjoint columns of `c`, whose bounds `check`
        // has verified, and `c` stays mutably borrowed for the whole call. Row sums are
        // written by the one task of each row block that has the first panel.
        unsafe { block(out, a, b, &start, extras.finish, sums, rows, panels, &mut scratch) };
    });
}

/// `c = start + a * b` on the calling thread, with scratch memory that the caller keeps.
///
/// Fewer columns in `a` than the right operand is deep, or fewer in `c` than it is wide, use the
/// leading part of it: a causal tile sees only the keys up to its last query.
pub fn multiply_serial(
    mut c: MatMut<'_>,
    a: Mat<'_>,
    b: &Right,
    start: Start<'_>,
    scratch: &mut Buffer,
) {
    assert_eq!(c.rows, a.rows, "a product's rows are its left operand's");
    assert!(a.cols <= b.depth && c.cols <= b.cols(), "a product reaches past its right operand");
    if c.rows == 0 || c.cols == 0 {
        return;
    }
    let out = Destination { start: c.as_mut_ptr(), stride: c.row_stride, cols: c.cols };
    let need = c.rows.min(BLOCK_ROWS) * a.cols.min(DEPTH);
    if scratch.len() < need {
        *scratch = scratch.pool().take(need);
    }
    let row_blocks = c.rows.div_ceil(BLOCK_ROWS);
    let panels = c.cols.div_ceil(WIDTH);
    for index in 0..row_blocks {
        let rows = share(c.rows, row_blocks, index);
        // SAFETY: `check` has verified the bounds and `c` is mutably borrowed here.
        unsafe { block(out, a, b, &start, None, None, rows, 0..panels, scratch) };
    }
}

fn check(c: &MatMut<'_>, a: Mat<'_>, b: &Right) {
    assert_eq!((c.rows, a.cols, c.cols), (a.rows, b.depth, b.cols()), "a product's shapes must agree");
}

/// The destination's first element and row distance, shared between tasks that write disjoint parts.
#[derive(Clone, Copy)]
struct Destination {
    start: *mut f32,
    stride: usize,
    cols: usize,
}

// SAFETY: tasks write disjoint elements; see `multiply`.
unsafe impl Send for Destination {}
// SAFETY: as above.
unsafe impl Sync for Destination {}

/// Rows x panels of a product.
///
/// # Safety
/// The rows and the panels' columns must be inside the destination and written by nobody else.
#[expect(clippy::too_many_arguments, reason = "one private function with two callers")]
unsafe fn block(
    c: Destination,
    a: Mat<'_>,
    b: &Right,
    start: &Start<'_>,
    finish: Option<Finish<'_>>,
    sums: Option<Destination>,
    rows: Range<usize>,
    panels: Range<usize>,
    scratch: &mut [f32],
) {
    let strips = rows.len().div_ceil(HEIGHT);
    let slices = a.cols.div_ceil(DEPTH).max(1);
    for slice in 0..slices {
        let depth = share(a.cols, slices, slice);
        let (at_start, at_end) = (slice == 0, slice + 1 == slices);
        let mut offset = 0;
        for index in 0..strips {
            let strip = share(rows.len(), strips, index);
            let strip = rows.start + strip.start..rows.start + strip.end;
            let into = &mut scratch[offset..offset + strip.len() * depth.len()];
            offset += into.len();
            // SAFETY: the caller makes this task the only writer of these sums.
            let sums = sums.map(|sums| unsafe {
                std::slice::from_raw_parts_mut(sums.start.add(strip.start), strip.len())
            });
            pack::left_panel(into, a, strip, depth.clone(), sums);
        }
        for index in panels.clone() {
            let Panel { column, width } = b.panels[index];
            let width = width.min(c.cols - column);
            let right = &b.panel(index)[depth.start * WIDTH..depth.end * WIDTH];
            let mut offset = 0;
            for index in 0..strips {
                let strip = share(rows.len(), strips, index);
                let row = rows.start + strip.start;
                // SAFETY: `row` and `column` are inside the destination (caller's promise).
                let into = unsafe { c.start.add(row * c.stride + column) };
                let starts = if at_start {
                    starts(start, row, column, (into, c.stride))
                } else {
                    [(into.cast_const(), c.stride), NOTHING]
                };
                let tile = Tile {
                    depth: depth.len(),
                    a: scratch[offset..].as_ptr(),
                    b: right.as_ptr(),
                    c: into,
                    c_stride: c.stride,
                    cols: width,
                    starts,
                };
                // SAFETY: the panels were packed for exactly this height and depth, and the
                // destination and start rows lie inside their matrices.
                unsafe { kernel::run(strip.len(), &tile) };
                offset += strip.len() * depth.len();
            }
            if let Some(finish) = finish.filter(|_| at_end) {
                for row in rows.clone() {
                    // SAFETY: this segment belongs to this task alone.
                    let segment = unsafe {
                        std::slice::from_raw_parts_mut(c.start.add(row * c.stride + column), width)
                    };
                    finish(row, column, segment);
                }
            }
        }
    }
}

const NOTHING: (*const f32, usize) = (std::ptr::null(), 0);

fn starts(
    start: &Start<'_>,
    row: usize,
    column: usize,
    destination: (*mut f32, usize),
) -> [(*const f32, usize); 2] {
    let bias = |bias: &[f32]| (bias[column..].as_ptr(), 0);
    let residual =
        |from: &Mat<'_>| (from.data[row * from.row_stride + column..].as_ptr(), from.row_stride);
    match start {
        Start::Zero => [NOTHING, NOTHING],
        Start::Keep => [(destination.0.cast_const(), destination.1), NOTHING],
        Start::Bias(row) => [bias(row), NOTHING],
        Start::Residual(from) => [residual(from), NOTHING],
        Start::BiasAndResidual(row, from) => [bias(row), residual(from)],
    }
}

/// Part `index` of `total` items cut into `parts` nearly equal runs.
fn share(total: usize, parts: usize, index: usize) -> Range<usize> {
    let (base, extra) = (total / parts, total % parts);
    let start = index * base + index.min(extra);
    start..start + base + usize::from(index < extra)
}
