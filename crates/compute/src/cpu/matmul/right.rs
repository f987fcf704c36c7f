//! The right operand of a product, in panels of neighbouring columns.
//!
//! A panel is what the kernel streams through: packed, its rows follow each other; in place, they
//! are as far apart as the matrix has them. Packing costs a pass over the operand and pays as soon as
//! the operand is larger than the cache or its rows run the other way.

use super::kernel::WIDTH;
use super::pack;
use super::stored::Stored;
use super::tile::Block;
use super::view::Mat;
use crate::cpu::bf16_products::Products;
use crate::pool::{Buffer, Pool};
use crate::thread_pool::{self, ThreadPool};
use std::ops::Range;

/// A packed right operand, ready for any number of products.
#[derive(Debug)]
pub struct Right<'a> {
    source: Source<'a>,
    /// What the panels hold.
    pub(super) products: Products,
    pub(super) depth: usize,
    pub(super) panels: Vec<Panel>,
}

#[derive(Debug)]
enum Source<'a> {
    /// Panel after panel, each `depth` rows of [`WIDTH`], or [blocks](Block) of bf16.
    Packed(Buffer),
    /// Where the matrix is: whole panels of rows that are `row_stride` apart, in f32.
    InPlace(Mat<'a>, Pool),
}

/// Up to [`WIDTH`] neighbouring columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    pub(super) column: usize,
    pub(super) width: usize,
}

impl<'a> Right<'a> {
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
        let products = pool.products();
        let cols = parts.iter().map(|part| part.cols);
        let mut packed = pool.take(Self::beside_len(products, depth, cols));
        fill_panels(&mut packed, pack::panel_len(products, depth), |number, into| {
            let (part, index, _) = jobs[number];
            pack::stacked_panel(products, into, &[part], index);
        });
        let panels = jobs.into_iter().map(|(_, _, panel)| panel).collect();
        Self { source: Source::Packed(packed), products, depth, panels }
    }

    /// Floats that [`Right::beside`] packs, of matrices of this depth and so many columns each.
    pub fn beside_len(
        products: Products,
        depth: usize,
        cols: impl IntoIterator<Item = usize>,
    ) -> usize {
        cols.into_iter().map(|cols| pack::right_len(products, depth, cols)).sum()
    }

    /// Packs matrices of equal width on top of each other: the depth is the sum of theirs.
    pub fn stacked(pool: &Pool, parts: &[Mat<'_>]) -> Self {
        let cols = parts.first().map_or(0, |part| part.cols);
        assert!(parts.iter().all(|part| part.cols == cols), "stacked matrices share their width");
        let depth: usize = parts.iter().map(|part| part.rows).sum();
        let products = pool.products();
        let mut packed = pool.take(pack::right_len(products, depth, cols));
        fill_panels(&mut packed, pack::panel_len(products, depth), |index, into| {
            pack::stacked_panel(products, into, parts, index);
        });
        Self { source: Source::Packed(packed), products, depth, panels: panels_of(cols) }
    }

    /// The transposes of weights side by side, [`Right::beside`] of what they stand for: those that are not f32
    /// become so a panel at a time.
    pub fn beside_stored(pool: &Pool, parts: &[Stored<'_>]) -> Self {
        let mats: Option<Vec<_>> = parts.iter().map(|part| Some(part.mat()?.t())).collect();
        if let Some(mats) = mats {
            return Self::beside(pool, &mats);
        }
        let depth = parts.first().map_or(0, |part| part.cols);
        let mut jobs = Vec::new();
        let mut column = 0;
        for part in parts {
            assert_eq!(part.cols, depth, "matrices side by side share their depth");
            for first in (0..part.rows).step_by(WIDTH) {
                let width = WIDTH.min(part.rows - first);
                jobs.push((*part, first, Panel { column: column + first, width }));
            }
            column += part.rows;
        }
        let products = pool.products();
        let cols = parts.iter().map(|part| part.rows);
        let mut packed = pool.take(Self::beside_len(products, depth, cols));
        fill_panels(&mut packed, pack::panel_len(products, depth), |number, into| {
            let (part, first, Panel { width, .. }) = jobs[number];
            let mut rows = pool.take(WIDTH * depth);
            for (row, into) in rows.chunks_exact_mut(depth.max(1)).take(width).enumerate() {
                part.read_row(first + row, 0..depth, into);
            }
            let rows = Mat::new(&rows[..width * depth], width, depth);
            pack::stacked_panel(products, into, &[rows.t()], 0);
        });
        let panels = jobs.into_iter().map(|(_, _, panel)| panel).collect();
        Self { source: Source::Packed(packed), products, depth, panels }
    }

    /// Weights on top of each other, [`Right::stacked`] of what they stand for; a single one of f32 may be read in
    /// place.
    pub fn stacked_stored(pool: &Pool, parts: &[Stored<'a>]) -> Self {
        let mats: Option<Vec<Mat<'a>>> = parts.iter().map(Stored::mat).collect();
        match mats.as_deref() {
            Some([only]) => return Self::rows(pool, *only),
            Some(mats) => return Self::stacked(pool, mats),
            None => {}
        }
        let cols = parts.first().map_or(0, |part| part.cols);
        assert!(parts.iter().all(|part| part.cols == cols), "stacked matrices share their width");
        let depth: usize = parts.iter().map(|part| part.rows).sum();
        let products = pool.products();
        let mut packed = pool.take(pack::right_len(products, depth, cols));
        let read = |index: usize, into: &mut [f32]| {
            let columns = index * WIDTH..cols.min((index + 1) * WIDTH);
            let mut into = into.chunks_exact_mut(WIDTH);
            for part in parts {
                for (row, into) in (0..part.rows).zip(&mut into) {
                    part.read_row(row, columns.clone(), into);
                    into[columns.len()..].fill(0.0);
                }
            }
        };
        fill_panels(&mut packed, pack::panel_len(products, depth), |index, into| match products {
            Products::F32 => read(index, into),
            Products::Bf16(_) => {
                let mut panel = pool.take(WIDTH * depth);
                read(index, &mut panel);
                pack::stacked_panel(products, into, &[Mat::new(&panel, depth, WIDTH)], 0);
            }
        });
        Self { source: Source::Packed(packed), products, depth, panels: panels_of(cols) }
    }

    /// How many pieces of f32, and of how many floats, weights become on their way into panels: of what
    /// [`Right::beside_stored`] packs, and of what [`Right::stacked_stored`] packs.
    pub fn unpacked_len(packed: usize, panels: usize, depth: usize) -> (usize, usize) {
        let at_once = if packed <= WORTH_A_TASK { 1 } else { ThreadPool::current_threads() };
        (at_once.min(panels), WIDTH * depth)
    }

    /// One row-major matrix: read where it is if it is small and whole panels wide, else packed.
    /// (A large one is read faster from panels, which cross fewer pages.)
    pub fn rows(pool: &Pool, b: Mat<'a>) -> Self {
        let strides = (b.row_stride, b.col_stride);
        if Self::rows_len(pool.products(), (b.rows, b.cols), strides) == 0 {
            return Self::in_place(pool, b);
        }
        Self::stacked(pool, &[b])
    }

    /// Floats that [`Right::rows`] packs of a matrix of this shape whose rows and columns are so far
    /// apart: none where it is read in place.
    pub fn rows_len(
        products: Products,
        (rows, cols): (usize, usize),
        (row_stride, col_stride): (usize, usize),
    ) -> usize {
        const SMALL: usize = (1 << 20) / size_of::<f32>();
        let small = rows * row_stride <= SMALL && products == Products::F32;
        if small && col_stride == 1 && cols.is_multiple_of(WIDTH) {
            return 0;
        }
        pack::right_len(products, rows, cols)
    }

    fn in_place(pool: &Pool, b: Mat<'a>) -> Self {
        let source = Source::InPlace(b, pool.clone());
        Self { source, products: Products::F32, depth: b.rows, panels: panels_of(b.cols) }
    }

    /// One row-major matrix, each row multiplied on its way into the panels; a factor of zero makes
    /// zeros, whatever the row holds. Always in f32: factors bound norms, which bf16 would round.
    pub fn scaled_rows(pool: &Pool, b: Mat<'_>, factors: &[f32]) -> Self {
        assert_eq!(factors.len(), b.rows, "a factor for each row");
        let products = Products::F32;
        let mut packed = pool.take(pack::right_len(products, b.rows, b.cols));
        fill_panels(&mut packed, WIDTH * b.rows, |index, into| {
            pack::right_panel(into, b, index);
            for (row, &factor) in into.chunks_exact_mut(WIDTH).zip(factors) {
                if factor == 0.0 {
                    row.fill(0.0);
                } else if factor != 1.0 {
                    for x in row {
                        *x *= factor;
                    }
                }
            }
        });
        Self { source: Source::Packed(packed), products, depth: b.rows, panels: panels_of(b.cols) }
    }

    /// One row-major matrix that a single product of few rows reads: where it is if it is whole
    /// panels wide, because a copy would be read only once too; else packed.
    pub fn streamed(pool: &Pool, b: Mat<'a>) -> Self {
        if b.col_stride == 1 && b.cols.is_multiple_of(WIDTH) && pool.products() == Products::F32 {
            return Self::in_place(pool, b);
        }
        let mut packed = Self::empty(pool, 0);
        packed.repack(b);
        packed
    }

    /// Nothing yet, and room for so many floats; see [`Right::repack`].
    pub fn empty(pool: &Pool, room: usize) -> Self {
        let (source, products) = (Source::Packed(pool.take(room)), pool.products());
        Self { source, products, depth: 0, panels: Vec::new() }
    }

    /// Packs one small matrix on the calling thread, into memory that is used again.
    pub fn repack(&mut self, b: Mat<'_>) {
        let products = self.products;
        let len = pack::right_len(products, b.rows, b.cols);
        let fits = matches!(&self.source, Source::Packed(packed) if packed.len() >= len);
        if !fits {
            self.source = Source::Packed(self.pool().take(len));
        }
        if let Source::Packed(packed) = &mut self.source {
            let panel_len = pack::panel_len(products, b.rows).max(1);
            for (index, into) in packed[..len].chunks_exact_mut(panel_len).enumerate() {
                pack::stacked_panel(products, into, &[b], index);
            }
        }
        (self.depth, self.panels) = (b.rows, panels_of(b.cols));
    }

    /// Columns of the product.
    pub fn cols(&self) -> usize {
        self.panels.last().map_or(0, |panel| panel.column + panel.width)
    }

    /// Rows `depth` of a panel, and the distance between them.
    pub(super) fn panel(&self, index: usize, depth: &Range<usize>) -> (&[f32], usize) {
        match &self.source {
            Source::Packed(packed) => {
                let panel = &packed[index * WIDTH * self.depth..][..WIDTH * self.depth];
                (&panel[depth.start * WIDTH..depth.end * WIDTH], WIDTH)
            }
            Source::InPlace(b, _) => {
                let column = self.panels[index].column;
                (&b.data[depth.start * b.row_stride + column..], b.row_stride)
            }
        }
    }

    /// Some blocks of a panel of bf16.
    pub(super) fn blocks(&self, index: usize, blocks: &Range<usize>) -> &[Block] {
        let Source::Packed(packed) = &self.source else { return &[] };
        let len = pack::panel_len(self.products, self.depth);
        &packed[index * len..][..len].as_chunks().0[blocks.clone()]
    }

    pub(super) fn pool(&self) -> &Pool {
        match &self.source {
            Source::Packed(packed) => packed.pool(),
            Source::InPlace(_, pool) => pool,
        }
    }
}

/// Columns `0 .. cols` in panels.
fn panels_of(cols: usize) -> Vec<Panel> {
    let panel = |index| Panel { column: index * WIDTH, width: WIDTH.min(cols - index * WIDTH) };
    (0..cols.div_ceil(WIDTH)).map(panel).collect()
}

/// Floats from which on panels are filled by several tasks.
const WORTH_A_TASK: usize = 1 << 15;

/// Fills panels of `len` floats, in parallel when there is enough to do to be worth it.
fn fill_panels(packed: &mut [f32], len: usize, fill: impl Fn(usize, &mut [f32]) + Sync) {
    if len == 0 {
        return;
    }
    if packed.len() <= WORTH_A_TASK {
        packed.chunks_exact_mut(len).enumerate().for_each(|(index, into)| fill(index, into));
    } else {
        thread_pool::each_chunk(packed, len, fill);
    }
}
