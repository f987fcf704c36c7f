//! A product as tasks: blocks of rows and panels, each computed while its operands are in the cache.

use super::kernel::{self, HEIGHT, Tile, WIDTH};
use super::pack;
use super::right::{Panel, Right};
use super::view::{Mat, MatMut};
use crate::pool::Buffer;
use crate::thread_pool::{self, ThreadPool};
use std::ops::Range;

/// Depth that is packed and multiplied at once: a right panel of this depth stays in the L1/L2 cache.
/// (Miri is slow: blocks are small there, so that small products have several too.)
pub(super) const DEPTH: usize = if cfg!(miri) { 8 } else { 384 };
/// Most rows in a task: a left block of this height and [`DEPTH`] stays in the L2 cache.
pub(super) const BLOCK_ROWS: usize = if cfg!(miri) { 2 * HEIGHT } else { 252 };
/// Fewest rows worth a task of their own.
const LOWEST_BLOCK: usize = if cfg!(miri) { HEIGHT } else { 4 * HEIGHT };
/// Tasks per thread, so that a slow core does not hold up the others.
const TASKS_PER_THREAD: usize = 4;

/// Panels after which a block is finished: still in the cache, and long enough rows to be worth a call.
const FINISH_PANELS: usize = 8;

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

/// What a product may do besides.
#[derive(Default)]
pub struct Extras<'a> {
    /// Applied to each finished row segment.
    pub finish: Option<Finish<'a>>,
    /// Receives (adds) the sums of the left operand's rows.
    pub row_sums: Option<&'a mut [f32]>,
}

/// A product that waits to be carried out: `c = start + a * b`.
pub struct Product<'a> {
    c: MatMut<'a>,
    a: Mat<'a>,
    b: &'a Right<'a>,
    start: Start<'a>,
    finish: Option<Finish<'a>>,
    sums: Option<Destination>,
    /// Row blocks and column blocks.
    grid: (usize, usize),
}

// SAFETY: tasks write disjoint parts of `c` and of the sums, which stay mutably borrowed.
unsafe impl Sync for Product<'_> {}

impl<'a> Product<'a> {
    /// A product cut into tasks for the current thread pool.
    pub fn new(
        c: MatMut<'a>,
        a: Mat<'a>,
        b: &'a Right<'a>,
        start: Start<'a>,
        extras: Extras<'a>,
    ) -> Self {
        check(&c, a, b);
        check_start(&c, &start);
        let is_empty = c.rows == 0 || c.cols == 0;
        let grid = if is_empty { (0, 0) } else { grid(c.rows, b.panels.len()) };
        let sums = extras.row_sums.map(|sums| {
            assert_eq!(sums.len(), a.rows, "a sum for each row of the left operand");
            Destination { start: sums.as_mut_ptr(), stride: 1, cols: 1 }
        });
        Self { c, a, b, start, finish: extras.finish, sums, grid }
    }

    fn tasks(&self) -> usize {
        self.grid.0 * self.grid.1
    }

    fn run(&self, task: usize) {
        let (row_blocks, column_blocks) = self.grid;
        let rows = share(self.c.rows, row_blocks, task / column_blocks);
        let panels = share(self.b.panels.len(), column_blocks, task % column_blocks);
        let depth = self.a.cols.min(DEPTH);
        let packed = if in_place(self.a, panels.len()) { 0 } else { rows.len() * depth };
        let mut scratch = self.b.pool().take(packed);
        let out =
            Destination { start: self.c.as_ptr(), stride: self.c.row_stride, cols: self.c.cols };
        let sums = self.sums.filter(|_| panels.start == 0);
        let (a, b, start) = (self.a, self.b, &self.start);
        // SAFETY: tasks cover disjoint rows or disjoint columns of `c`, whose bounds `check`
        // has verified, and `c` stays mutably borrowed while the product lives. Row sums are
        // written by the one task of each row block that has the first panel.
        unsafe { block(out, a, b, start, self.finish, sums, rows, panels, &mut scratch) };
    }
}

/// Carries out products that do not depend on each other: no thread waits between them.
pub fn multiply_together(products: &[Product<'_>]) {
    let tasks = products.iter().map(Product::tasks).sum();
    thread_pool::each(tasks, |mut task| {
        for product in products {
            match task.checked_sub(product.tasks()) {
                None => return product.run(task),
                Some(later) => task = later,
            }
        }
    });
}

/// `c = start + a * b` on the current thread pool.
pub fn multiply(c: MatMut<'_>, a: Mat<'_>, b: &Right<'_>, start: Start<'_>, extras: Extras<'_>) {
    multiply_together(&[Product::new(c, a, b, start, extras)]);
}

/// `c = start + a * b` on the calling thread, with scratch memory that the caller keeps.
///
/// Fewer columns in `a` than the right operand is deep, or fewer in `c` than it is wide, use the
/// leading part of it: a causal tile sees only the keys up to its last query.
pub fn multiply_serial(
    mut c: MatMut<'_>,
    a: Mat<'_>,
    b: &Right<'_>,
    start: Start<'_>,
    scratch: &mut Buffer,
) {
    assert_eq!(c.rows, a.rows, "a product's rows are its left operand's");
    assert!(a.cols <= b.depth && c.cols <= b.cols(), "a product reaches past its right operand");
    check_start(&c, &start);
    if c.rows == 0 || c.cols == 0 {
        return;
    }
    let out = Destination { start: c.as_mut_ptr(), stride: c.row_stride, cols: c.cols };
    let panels = b.panels.iter().take_while(|panel| panel.column < c.cols).count();
    let need = if in_place(a, panels) { 0 } else { strip_len(c.rows, a.cols) };
    if scratch.len() < need {
        *scratch = scratch.pool().take(need);
    }
    let row_blocks = c.rows.div_ceil(BLOCK_ROWS);
    for index in 0..row_blocks {
        let rows = share(c.rows, row_blocks, index);
        // SAFETY: `check` has verified the bounds and `c` is mutably borrowed here.
        unsafe { block(out, a, b, &start, None, None, rows, 0..panels, scratch) };
    }
}

fn check(c: &MatMut<'_>, a: Mat<'_>, b: &Right<'_>) {
    assert_eq!(
        (c.rows, a.cols, c.cols),
        (a.rows, b.depth, b.cols()),
        "a product's shapes must agree"
    );
}

/// The kernel reads what sums start from without checking bounds, so they are checked here.
pub(super) fn check_start(c: &MatMut<'_>, start: &Start<'_>) {
    let (bias, residual) = match *start {
        Start::Zero | Start::Keep => (None, None),
        Start::Bias(bias) => (Some(bias), None),
        Start::Residual(residual) => (None, Some(residual)),
        Start::BiasAndResidual(bias, residual) => (Some(bias), Some(residual)),
    };
    assert!(bias.is_none_or(|bias| bias.len() >= c.cols), "a bias has one number per column");
    let covers = |from: Mat<'_>| {
        from.rows >= c.rows && from.cols >= c.cols && (from.col_stride == 1 || c.cols <= 1)
    };
    assert!(residual.is_none_or(covers), "a residual covers the destination");
}

/// Rows that run along the depth are read where they are. Others are packed into strips if enough
/// panels will read the copy to pay for it.
const PANELS_WORTH_A_COPY: usize = 6;

fn in_place(a: Mat<'_>, panels: usize) -> bool {
    a.col_stride == 1 || panels < PANELS_WORTH_A_COPY
}

/// Floats of a block of a left operand that is packed.
fn strip_len(rows: usize, depth: usize) -> usize {
    rows.min(BLOCK_ROWS) * depth.min(DEPTH)
}

/// Floats of scratch memory that [`multiply_serial`] takes for a left operand whose rows do not run along
/// the depth.
pub fn serial_len(rows: usize, depth: usize, cols: usize) -> usize {
    if cols.div_ceil(WIDTH) < PANELS_WORTH_A_COPY { 0 } else { strip_len(rows, depth) }
}

/// Floats that the tasks of a product pack at a time of a left operand whose rows do not run along
/// the depth.
pub fn left_len(rows: usize, depth: usize, cols: usize) -> usize {
    let panels = cols.div_ceil(WIDTH);
    if rows == 0 || panels == 0 {
        return 0;
    }
    let (row_blocks, column_blocks) = grid(rows, panels);
    if panels.div_ceil(column_blocks) < PANELS_WORTH_A_COPY {
        return 0;
    }
    let at_once = ThreadPool::current_threads().min(row_blocks * column_blocks);
    at_once * rows.div_ceil(row_blocks) * depth.min(DEPTH)
}

/// The destination's first element and row distance, shared between tasks that write disjoint parts.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    pub start: *mut f32,
    pub stride: usize,
    pub cols: usize,
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
    b: &Right<'_>,
    start: &Start<'_>,
    finish: Option<Finish<'_>>,
    sums: Option<Destination>,
    rows: Range<usize>,
    panels: Range<usize>,
    scratch: &mut [f32],
) {
    let count = rows.len().div_ceil(HEIGHT);
    let strips: Vec<usize> = (0..=count).map(|i| share(rows.len(), count, i).start).collect();
    let in_place = in_place(a, panels.len());
    // SAFETY: the caller makes this task the only writer of these sums.
    let mut sums = sums.map(|sums| unsafe {
        std::slice::from_raw_parts_mut(sums.start.add(rows.start), rows.len())
    });
    let slices = a.cols.div_ceil(DEPTH).max(1);
    for slice in 0..slices {
        let depth = share(a.cols, slices, slice);
        let (at_start, at_end) = (slice == 0, slice + 1 == slices);
        if depth.is_empty() {
            // A product of no depth is what its sums start from: neither operand has a number.
        } else if in_place {
            // Just before the kernel reads the same numbers again.
            if let Some(sums) = sums.as_deref_mut() {
                a.add_row_sums(rows.start, depth.clone(), sums);
            }
        } else {
            let sums = sums.as_deref_mut();
            pack::left_strips(scratch, a, rows.start, (&strips, depth.clone()), sums);
        }
        let mut finished = panels.start;
        for index in panels.clone() {
            let Panel { column, width } = b.panels[index];
            let width = width.min(c.cols - column);
            let (right, b_stride) =
                if depth.is_empty() { (&[][..], WIDTH) } else { b.panel(index, &depth) };
            for pair in strips.windows(2) {
                let row = rows.start + pair[0];
                let (left, a_strides) = if depth.is_empty() {
                    ([].as_ptr(), (1, 1))
                } else if in_place {
                    let first = row * a.row_stride + depth.start * a.col_stride;
                    (a.data[first..].as_ptr(), (a.row_stride, a.col_stride))
                } else {
                    (scratch[pair[0] * depth.len()..].as_ptr(), (1, pair[1] - pair[0]))
                };
                // SAFETY: `row` and `column` are inside the destination (caller's promise).
                let into = unsafe { c.start.add(row * c.stride + column) };
                let starts = if at_start {
                    starts(start, row, column, (into, c.stride))
                } else {
                    [(into.cast_const(), c.stride), NOTHING]
                };
                let tile = Tile {
                    depth: depth.len(),
                    a: left,
                    a_strides,
                    b: right.as_ptr(),
                    b_stride,
                    c: into,
                    c_stride: c.stride,
                    cols: width,
                    starts,
                };
                // SAFETY: left rows and right panel cover this height and depth, and the
                // destination and start rows lie inside their matrices.
                unsafe { kernel::run(pair[1] - pair[0], &tile) };
            }
            let last = index + 1 == panels.end;
            if let Some(finish) =
                finish.filter(|_| at_end && (last || index + 1 - finished == FINISH_PANELS))
            {
                let first = b.panels[finished].column;
                finished = index + 1;
                for row in rows.clone() {
                    // SAFETY: these columns of this row belong to this task alone.
                    let segment = unsafe {
                        let start = c.start.add(row * c.stride + first);
                        std::slice::from_raw_parts_mut(start, column + width - first)
                    };
                    finish(row, first, segment);
                }
            }
        }
    }
}

pub(super) const NOTHING: (*const f32, usize) = (std::ptr::null(), 0);

pub(super) fn starts(
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

/// How many row blocks and column blocks a product is cut into: enough tasks for every thread,
/// equally many for each, none too tall for the cache and none so low that packing dominates.
fn grid(rows: usize, panels: usize) -> (usize, usize) {
    let threads = ThreadPool::current_threads();
    let wanted = TASKS_PER_THREAD * threads;
    let row_blocks = wanted.min(rows.div_ceil(LOWEST_BLOCK)).max(rows.div_ceil(BLOCK_ROWS));
    let column_blocks = wanted.div_ceil(row_blocks).min(panels.div_ceil(2)).max(1);
    let even = (row_blocks..row_blocks + threads)
        .find(|rows| (rows * column_blocks).is_multiple_of(threads));
    (even.unwrap_or(row_blocks).min(rows), column_blocks)
}

/// Part `index` of `total` items cut into `parts` nearly equal runs.
pub(super) fn share(total: usize, parts: usize, index: usize) -> Range<usize> {
    let (base, extra) = (total / parts, total % parts);
    let start = index * base + index.min(extra);
    start..start + base + usize::from(index < extra)
}
