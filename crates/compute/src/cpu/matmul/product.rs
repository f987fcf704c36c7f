//! A product as tasks: blocks of rows and panels, each computed while its operands are in the cache.

use super::kernel::{self, HEIGHT, Tile, WIDTH};
use super::pack;
use super::right::{Panel, Right};
use super::task::{
    Destination, FINISH_PANELS, Finish, NOTHING, Start, check_start, finish_rows, share, starts,
};
use super::tile_product::{self, Operands};
use super::view::{Mat, MatMut};
use crate::cpu::bf16_products::Products;
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
        let grid = match b.products {
            _ if is_empty => (0, 0),
            Products::F32 => grid(c.rows, b.panels.len()),
            Products::Bf16(_) => tile_product::grid(c.rows, b.panels.len()),
        };
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
        let (row_block, column_block) = (task / column_blocks, task % column_blocks);
        let panels = share(self.b.panels.len(), column_blocks, column_block);
        let (rows, packed) = match self.b.products {
            Products::F32 => {
                let rows = share(self.c.rows, row_blocks, row_block);
                let depth = self.a.cols.min(DEPTH);
                let packed = if in_place(self.a, panels.len()) { 0 } else { rows.len() * depth };
                (rows, packed)
            }
            Products::Bf16(_) => {
                let rows = tile_product::rows_of(self.c.rows, row_blocks, row_block);
                let packed = tile_product::strips_len(rows.len(), self.a.cols);
                (rows, packed)
            }
        };
        let mut scratch = self.b.pool().take(packed);
        let out =
            Destination { start: self.c.as_ptr(), stride: self.c.row_stride, cols: self.c.cols };
        let sums = self.sums.filter(|_| panels.start == 0);
        let given = Operands { a: self.a, b: self.b, start: &self.start, finish: self.finish };
        // SAFETY: tasks cover disjoint rows or disjoint columns of `c`, whose bounds `check`
        // has verified, and `c` stays mutably borrowed while the product lives. Row sums are
        // written by the one task of each row block that has the first panel.
        unsafe { block(out, given, sums, (rows, panels), &mut scratch) };
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
    let (need, most) = match b.products {
        Products::F32 if in_place(a, panels) => (0, BLOCK_ROWS),
        Products::F32 => (strip_len(c.rows, a.cols), BLOCK_ROWS),
        Products::Bf16(_) => (tile_product::serial_len(c.rows, a.cols), tile_product::ROWS),
    };
    if scratch.len() < need {
        *scratch = scratch.pool().take(need);
    }
    let given = Operands { a, b, start: &start, finish: None };
    let row_blocks = c.rows.div_ceil(most);
    for index in 0..row_blocks {
        let rows = match b.products {
            Products::F32 => share(c.rows, row_blocks, index),
            Products::Bf16(_) => index * most..c.rows.min((index + 1) * most),
        };
        // SAFETY: `check` has verified the bounds and `c` is mutably borrowed here.
        unsafe { block(out, given, None, (rows, 0..panels), scratch) };
    }
}

fn check(c: &MatMut<'_>, a: Mat<'_>, b: &Right<'_>) {
    assert_eq!(
        (c.rows, a.cols, c.cols),
        (a.rows, b.depth, b.cols()),
        "a product's shapes must agree"
    );
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
/// the depth; in bf16, for any.
pub fn serial_len(products: Products, rows: usize, depth: usize, cols: usize) -> usize {
    match products {
        Products::F32 if cols.div_ceil(WIDTH) < PANELS_WORTH_A_COPY => 0,
        Products::F32 => strip_len(rows, depth),
        Products::Bf16(_) => tile_product::serial_len(rows, depth),
    }
}

/// Floats that the tasks of a product pack at a time of a left operand whose rows do not run along
/// the depth; in bf16, of any.
pub fn left_len(products: Products, rows: usize, depth: usize, cols: usize) -> usize {
    let panels = cols.div_ceil(WIDTH);
    if rows == 0 || panels == 0 {
        return 0;
    }
    if let Products::Bf16(_) = products {
        return tile_product::left_len(rows, depth, panels);
    }
    let (row_blocks, column_blocks) = grid(rows, panels);
    if panels.div_ceil(column_blocks) < PANELS_WORTH_A_COPY {
        return 0;
    }
    let at_once = ThreadPool::current_threads().min(row_blocks * column_blocks);
    at_once * rows.div_ceil(row_blocks) * depth.min(DEPTH)
}

/// Rows x panels of a product.
///
/// # Safety
/// The rows and the panels' columns must be inside the destination and written by nobody else, and so
/// must the sums of these rows.
unsafe fn block(
    c: Destination,
    given: Operands<'_>,
    sums: Option<Destination>,
    (rows, panels): (Range<usize>, Range<usize>),
    scratch: &mut [f32],
) {
    let Operands { a, b, start, finish } = given;
    // SAFETY: the caller makes this task the only writer of these sums.
    let mut sums = sums.map(|sums| unsafe {
        std::slice::from_raw_parts_mut(sums.start.add(rows.start), rows.len())
    });
    if let Products::Bf16(kernel) = b.products {
        // SAFETY: the caller's promise.
        return unsafe { tile_product::block(kernel, c, given, sums, (rows, panels), scratch) };
    }
    let count = rows.len().div_ceil(HEIGHT);
    let strips: Vec<usize> = (0..=count).map(|i| share(rows.len(), count, i).start).collect();
    let in_place = in_place(a, panels.len());
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
                let columns = b.panels[finished].column..column + width;
                finished = index + 1;
                // SAFETY: these columns of these rows belong to this task alone.
                unsafe { finish_rows(finish, c, rows.clone(), columns) };
            }
        }
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
