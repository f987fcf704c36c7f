//! Products of few rows, which read every weight once, where it is.
//!
//! A decoder that writes one token multiplies one row with all its weights, so the time is that of
//! reading them. Packing them into panels first, as [`multiply`](super::multiply) does, would read
//! them twice and write them once. Here sixteen weight rows are turned in registers, sixteen numbers of each
//! at a time, on their way from memory to the multiply-add; bf16 is widened on the same way. Each
//! element is the same chain of multiply-adds in order of depth as in a packed product: the same bits.
//!
//! ```text
//! W[j .. j+16, k .. k+16]  --turned-->  columns;  c[r, j .. j+16] += x[r, k] * column k
//! ```

use super::task::{Destination, Finish, NOTHING, Start, check_start, share, starts};
use super::view::{Mat, MatMut};
use crate::cpu::bf16;
use crate::cpu::simd::{Level, level};
use crate::pool::{Buffer, Pool};
use crate::thread_pool::{self, ThreadPool};
use std::ops::Range;

/// Most rows for which turning weights in registers is cheaper than packing them.
pub const MOST_ROWS: usize = 16;
/// Weight rows that are turned together.
const GROUP: usize = 16;
/// Weights that are worth a task: some microseconds of reading.
const WORTH_A_TASK: usize = 1 << 14;
/// Tasks per thread, so that a slow core does not hold up the others.
const TASKS_PER_THREAD: usize = 4;

/// A weight `[outputs, inputs]` as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    numbers: Numbers<'a>,
    rows: usize,
    cols: usize,
    stride: usize,
}

#[derive(Clone, Copy, Debug)]
enum Numbers<'a> {
    F32(&'a [f32]),
    Bf16(&'a [u16]),
}

impl<'a> Stored<'a> {
    /// A row-major matrix of f32, of which rows may be further apart than they are long.
    pub fn f32(mat: Mat<'a>) -> Self {
        assert_eq!(mat.col_stride, 1, "a weight is row-major");
        let Mat { data, rows, cols, row_stride, .. } = mat;
        Self { numbers: Numbers::F32(data), rows, cols, stride: row_stride }
    }

    /// A dense row-major matrix of bf16.
    pub fn bf16(halves: &'a [u16], rows: usize, cols: usize) -> Self {
        assert_eq!(Some(halves.len()), rows.checked_mul(cols), "a matrix fills its slice");
        Self { numbers: Numbers::Bf16(halves), rows, cols, stride: cols }
    }

    /// Outputs of the product.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Its numbers as f32, unless they are.
    pub fn widened(&self, pool: &Pool) -> Option<Buffer> {
        match self.numbers {
            Numbers::F32(_) => None,
            Numbers::Bf16(halves) => {
                let mut numbers = pool.take(halves.len());
                bf16::widen(&mut numbers, halves);
                Some(numbers)
            }
        }
    }

    /// The matrix, over the numbers that [`Stored::widened`] gave.
    pub fn mat<'n>(&self, widened: Option<&'n [f32]>) -> Mat<'n>
    where
        'a: 'n,
    {
        match (self.numbers, widened) {
            (Numbers::F32(numbers), _) => Mat::strided(numbers, self.rows, self.cols, self.stride),
            (Numbers::Bf16(_), numbers) => {
                Mat::new(numbers.unwrap_or_default(), self.rows, self.cols)
            }
        }
    }
}

/// Whether a product of so many rows is to be carried out here.
pub fn applies(rows: usize) -> bool {
    match level() {
        Level::Avx512 => cfg!(target_arch = "x86_64") && rows <= MOST_ROWS,
        Level::Avx2 | Level::Baseline => false,
    }
}

/// `c = start + x * W^T` for weights whose results are side by side, on the current thread pool.
pub fn multiply_stored(
    mut c: MatMut<'_>,
    x: Mat<'_>,
    weights: &[Stored<'_>],
    start: Start<'_>,
    finish: Option<Finish<'_>>,
) {
    let outputs: usize = weights.iter().map(|weight| weight.rows).sum();
    assert!(applies(x.rows), "a product of few rows has few");
    assert!(weights.iter().all(|weight| weight.cols == x.cols), "weights share the depth");
    assert_eq!((c.rows, c.cols), (x.rows, outputs), "a product's shapes must agree");
    assert_eq!(x.col_stride, 1, "rows of a product run along its depth");
    check_start(&c, &start);
    if c.rows == 0 {
        return;
    }
    let mut groups = Vec::new();
    let mut column = 0;
    for weight in weights {
        let firsts = (0..weight.rows).step_by(GROUP);
        groups.extend(firsts.map(|first| (*weight, first, column + first)));
        column += weight.rows;
    }
    let tasks = TASKS_PER_THREAD * ThreadPool::current_threads();
    let tasks = tasks.min(outputs * x.cols / WORTH_A_TASK).min(groups.len()).max(1);
    let out = Destination { start: c.as_mut_ptr(), stride: c.row_stride, cols: c.cols };
    thread_pool::each(tasks, |task| {
        // The closure has to capture the whole destination, which is what may be shared.
        let out: &Destination = &out;
        for &(weight, first, column) in &groups[share(groups.len(), tasks, task)] {
            let rows = first..weight.rows.min(first + GROUP);
            // SAFETY: `c` is mutably borrowed, and each group has columns of its own; `starts` gives
            // rows that `check_start` has verified.
            unsafe {
                let into = out.start.add(column);
                let starts = starts(&start, 0, column, (into, out.stride));
                group(x, weight, rows.clone(), (into, out.stride), starts);
                let Some(finish) = finish else { continue };
                for row in 0..x.rows {
                    let segment = into.add(row * out.stride);
                    finish(row, column, std::slice::from_raw_parts_mut(segment, rows.len()));
                }
            }
        }
    });
}

/// `into[r, j] = x[r] * keys[j]` for some rows of keys, on the calling thread; `into` has a row for
/// each of `x` and a column for each key. The scores of a few queries over part of a cache.
///
/// # Safety
/// `into` must point to `x.rows` rows, `stride` apart, in which the columns `keys` are valid and
/// written by nobody else.
pub unsafe fn multiply_keys(into: (*mut f32, usize), x: Mat<'_>, all: Mat<'_>, keys: Range<usize>) {
    assert!(applies(x.rows) && x.cols == all.cols && keys.end <= all.rows);
    assert_eq!(x.col_stride, 1, "rows of a product run along its depth");
    let all = Stored::f32(all);
    for first in keys.clone().step_by(GROUP) {
        let rows = first..keys.end.min(first + GROUP);
        // SAFETY: the caller's promise.
        unsafe { group(x, all, rows, (into.0.add(first), into.1), [NOTHING; 2]) };
    }
}

/// Up to [`GROUP`] outputs for all rows of `x`.
///
/// # Safety
/// `c` has a column for each of `rows` in every row of `x`, written by nobody else; `starts` are
/// null or just as large.
unsafe fn group(
    x: Mat<'_>,
    weight: Stored<'_>,
    rows: Range<usize>,
    (c, c_stride): (*mut f32, usize),
    starts: [(*const f32, usize); 2],
) {
    if x.rows == 0 || rows.is_empty() {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    for first in (0..x.rows).step_by(x86::HEIGHT) {
        let height = x86::HEIGHT.min(x.rows - first);
        // Of no depth there is nothing to point at.
        let at = (first * x.row_stride).min(x.data.len());
        let tile = x86::Tile {
            depth: x.cols,
            x: x.data[at..].as_ptr(),
            x_stride: x.row_stride,
            stride: weight.stride,
            outputs: rows.len(),
            // SAFETY: rows `first ..` are inside the destination.
            c: unsafe { c.add(first * c_stride) },
            c_stride,
            starts: starts.map(|(start, stride)| (start.wrapping_add(first * stride), stride)),
        };
        let from = |len: usize| (rows.start * weight.stride).min(len);
        // SAFETY: the caller vouches for destination and starts, the constructors of `Mat` and
        // `Stored` for the operands, and `applies` for the instructions.
        unsafe {
            match weight.numbers {
                Numbers::F32(all) => x86::run(height, &tile, all[from(all.len())..].as_ptr()),
                Numbers::Bf16(all) => x86::run(height, &tile, all[from(all.len())..].as_ptr()),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (weight.numbers, weight.stride, c, c_stride, starts);
        unreachable!("`applies` is false without the instructions");
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::cpu::matmul::few_rows::GROUP;
    use crate::cpu::matmul::moves::x86::sixteen;
    use core::arch::x86_64::{
        __m512, _MM_HINT_T0, _mm_prefetch, _mm256_maskz_loadu_epi16, _mm512_add_ps,
        _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_fmadd_ps, _mm512_mask_storeu_ps,
        _mm512_maskz_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32,
    };

    /// Rows whose sums are in registers beside the sixteen columns.
    pub const HEIGHT: usize = 8;

    /// What one run reads and writes, but for the weights.
    pub struct Tile {
        pub depth: usize,
        pub x: *const f32,
        pub x_stride: usize,
        /// Distance between rows of the weight.
        pub stride: usize,
        /// At most [`GROUP`].
        pub outputs: usize,
        pub c: *mut f32,
        pub c_stride: usize,
        /// Row sources that the sums start from; null means zero, stride 0 repeats one row.
        pub starts: [(*const f32, usize); 2],
    }

    /// A stored number that becomes f32 on its way into a register.
    pub trait Number: Copy {
        /// # Safety
        /// AVX-512 must be present and the masked lanes readable.
        unsafe fn load(from: *const Self, mask: u16) -> __m512;
    }

    impl Number for f32 {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn load(from: *const Self, mask: u16) -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { _mm512_maskz_loadu_ps(mask, from) }
        }
    }

    impl Number for u16 {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn load(from: *const Self, mask: u16) -> __m512 {
            // SAFETY: the caller's promise.
            let halves = unsafe { _mm256_maskz_loadu_epi16(mask, from.cast()) };
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
        }
    }

    /// # Safety
    /// AVX-512 must be present and all pointers valid for the tile's sizes.
    pub unsafe fn run<N: Number>(height: usize, tile: &Tile, weight: *const N) {
        // SAFETY: the caller's promise.
        unsafe {
            match height {
                1 => rows::<1, N>(tile, weight),
                2 => rows::<2, N>(tile, weight),
                3 => rows::<3, N>(tile, weight),
                4 => rows::<4, N>(tile, weight),
                5 => rows::<5, N>(tile, weight),
                6 => rows::<6, N>(tile, weight),
                7 => rows::<7, N>(tile, weight),
                8 => rows::<8, N>(tile, weight),
                _ => unreachable!("a run has 1 to {HEIGHT} rows, not {height}"),
            }
        }
    }

    /// # Safety
    /// As for [`run`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn rows<const H: usize, N: Number>(tile: &Tile, weight: *const N) {
        // SAFETY: the caller's promise.
        unsafe {
            if tile.outputs == GROUP {
                chains::<H, true, N>(tile, weight);
            } else {
                chains::<H, false, N>(tile, weight);
            }
        }
    }

    /// # Safety
    /// As for [`run`]; `FULL` only where there are sixteen outputs.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn chains<const H: usize, const FULL: bool, N: Number>(tile: &Tile, weight: *const N) {
        let valid = mask(tile.outputs);
        let mut sums = [_mm512_setzero_ps(); H];
        // SAFETY: masks keep loads and stores inside the rows that the caller vouches for.
        unsafe {
            for (start, stride) in tile.starts {
                if !start.is_null() {
                    for (r, sum) in sums.iter_mut().enumerate() {
                        let row = _mm512_maskz_loadu_ps(valid, start.add(r * stride));
                        *sum = _mm512_add_ps(*sum, row);
                    }
                }
            }
            let whole = tile.depth - tile.depth % GROUP;
            for k in (0..whole).step_by(GROUP) {
                let columns = turned::<FULL, N>(tile, weight, k, u16::MAX);
                let x = tile.x.add(k);
                for (c, column) in columns.iter().enumerate() {
                    for (r, sum) in sums.iter_mut().enumerate() {
                        let x = _mm512_set1_ps(*x.add(r * tile.x_stride + c));
                        *sum = _mm512_fmadd_ps(x, *column, *sum);
                    }
                }
            }
            if whole < tile.depth {
                let rest = tile.depth - whole;
                let columns = turned::<FULL, N>(tile, weight, whole, mask(rest));
                let x = tile.x.add(whole);
                for (c, column) in columns[..rest].iter().enumerate() {
                    for (r, sum) in sums.iter_mut().enumerate() {
                        let x = _mm512_set1_ps(*x.add(r * tile.x_stride + c));
                        *sum = _mm512_fmadd_ps(x, *column, *sum);
                    }
                }
            }
            for (r, sum) in sums.iter().enumerate() {
                _mm512_mask_storeu_ps(tile.c.add(r * tile.c_stride), valid, *sum);
            }
        }
    }

    /// Sixteen columns of the group, from `k` on.
    ///
    /// # Safety
    /// As for [`chains`]; the masked lanes are inside the weight's rows.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn turned<const FULL: bool, N: Number>(
        tile: &Tile,
        weight: *const N,
        k: usize,
        lanes: u16,
    ) -> [__m512; GROUP] {
        let mut block = [_mm512_setzero_ps(); GROUP];
        for (row, into) in block.iter_mut().enumerate() {
            // Rows that are not there are the last one again; their sums are not stored.
            let row = if FULL { row } else { row.min(tile.outputs - 1) };
            // SAFETY: the caller's promise; a prefetch may name any address.
            unsafe {
                let from = weight.add(row * tile.stride + k);
                *into = N::load(from, lanes);
                if FULL {
                    let next = from.wrapping_add(GROUP * tile.stride);
                    _mm_prefetch::<_MM_HINT_T0>(next.cast());
                }
            }
        }
        sixteen(block)
    }

    /// The low `lanes` lanes.
    fn mask(lanes: usize) -> u16 {
        if lanes >= GROUP { u16::MAX } else { (1 << lanes) - 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;
    use crate::cpu::matmul::{Extras, Right, multiply};

    const UNTOUCHED: f32 = -77.5;

    fn draw(len: usize, seed: u64) -> Vec<f32> {
        let mut draw = Seed(seed).generator();
        (0..len).map(|_| draw.normal() as f32).collect()
    }

    fn bits(numbers: &[f32]) -> Vec<u32> {
        numbers.iter().map(|x| x.to_bits()).collect()
    }

    /// Compares with the packed product, whatever the sums start from.
    fn check(rows: usize, outputs: [usize; 2], depth: usize) {
        if !applies(rows) {
            return;
        }
        let pool = Pool::new();
        let total = outputs[0] + outputs[1];
        let (x, stride) = (draw(rows * (depth + 2), 1), depth + 2);
        let x = Mat::strided(&x, rows, depth, stride);
        let numbers = [draw(outputs[0] * depth, 2), draw(outputs[1] * depth, 3)];
        let mut halves = vec![0; numbers[1].len()];
        bf16::narrow(&mut halves, &numbers[1]);
        let weights = [
            Stored::f32(Mat::new(&numbers[0], outputs[0], depth)),
            Stored::bf16(&halves, outputs[1], depth),
        ];
        let widened = weights.map(|weight| weight.widened(&pool));
        let turned: Vec<_> =
            weights.iter().zip(&widened).map(|(w, f32s)| w.mat(f32s.as_deref()).t()).collect();
        let right = Right::beside(&pool, &turned);
        let (bias, residual) = (draw(total, 4), draw(rows * (total + 3), 5));
        let residual = Mat::strided(&residual, rows, total, total + 3);
        for start in [
            Start::Zero,
            Start::Keep,
            Start::Bias(&bias),
            Start::Residual(residual),
            Start::BiasAndResidual(&bias, residual),
        ] {
            let mut expected = vec![UNTOUCHED; rows * (total + 1)];
            let mut found = expected.clone();
            let into = MatMut::strided(&mut expected, rows, total, total + 1);
            let double = |_: usize, _: usize, segment: &mut [f32]| {
                for x in segment {
                    *x *= 2.0;
                }
            };
            let extras = Extras { finish: Some(&double), row_sums: None };
            multiply(into, x, &right, start, extras);
            let into = MatMut::strided(&mut found, rows, total, total + 1);
            multiply_stored(into, x, &weights, start, Some(&double));
            assert_eq!(bits(&found), bits(&expected), "{rows} x {outputs:?} x {depth}, {start:?}");
        }
    }

    #[test]
    fn a_product_of_few_rows_has_the_bits_of_a_packed_one() {
        for rows in [1, 2, 3, 7, 8, 9, MOST_ROWS] {
            for outputs in [[1, 1], [16, 15], [33, 5], [48, 32]] {
                for depth in [1, 8, 15, 16, 17, 40, 576] {
                    check(rows, outputs, depth);
                }
            }
        }
        check(1, [700, 300], 401);
    }

    #[test]
    fn a_product_of_no_rows_or_no_depth_is_what_it_starts_from() {
        check(0, [3, 2], 4);
        check(2, [3, 2], 0);
    }
}
