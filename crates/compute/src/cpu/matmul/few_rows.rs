//! Products of few rows, which read every weight once, where it is.
//!
//! A decoder that writes one token multiplies one row with all its weights, so the time is that of
//! reading them. Packing them into panels first, as [`multiply`](super::multiply) does, would read
//! them twice and write them once. Here sixteen weight rows are turned in registers, sixteen numbers of each
//! at a time, on their way from memory to the multiply-add; bf16 and quantised blocks become f32 on the same way. Each
//! element is the same chain of multiply-adds in order of depth as in a packed product: the same bits.
//!
//! ```text
//! W[j .. j+16, k .. k+16]  --turned-->  columns;  c[r, j .. j+16] += x[r, k] * column k
//! ```

use super::stored::{Numbers, Stored};
use super::task::{Destination, Finish, NOTHING, Start, check_start, share, starts};
use super::view::{Mat, MatMut};
use crate::cpu::simd::{Level, level};
use crate::quantisation::{BLOCK, Quantisation};
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
            outputs: rows.len(),
            // SAFETY: rows `first ..` are inside the destination.
            c: unsafe { c.add(first * c_stride) },
            c_stride,
            starts: starts.map(|(start, stride)| (start.wrapping_add(first * stride), stride)),
        };
        let stride = weight.stride;
        let from = |len: usize| (rows.start * stride).min(len);
        // SAFETY: the caller vouches for destination and starts, the constructors of `Mat` and
        // `Stored` for the operands, and `applies` for the instructions.
        unsafe {
            match weight.numbers {
                Numbers::F32(all) => {
                    let start = all[from(all.len())..].as_ptr();
                    x86::run(height, &tile, x86::Plain { start, stride });
                }
                Numbers::Bf16(all) => {
                    let start = all[from(all.len())..].as_ptr();
                    x86::run(height, &tile, x86::Plain { start, stride });
                }
                Numbers::Quantised(view) => {
                    let (kind, quants, scales) = view.rows_behind(rows.start);
                    let blocks = view.cols().div_ceil(BLOCK);
                    let (quants, scales) = (quants.as_ptr(), scales.as_ptr());
                    match kind {
                        Quantisation::Int8 => {
                            x86::run(height, &tile, x86::Int8 { quants, scales, blocks });
                        }
                        Quantisation::Int4 => {
                            x86::run(height, &tile, x86::Int4 { quants, scales, blocks });
                        }
                    }
                }
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (weight.numbers, weight.stride, c, c_stride, starts, BLOCK, Quantisation::Int8);
        unreachable!("`applies` is false without the instructions");
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::cpu::matmul::few_rows::GROUP;
    use crate::cpu::matmul::moves::x86::sixteen;
    use crate::quantisation::BLOCK;
    use core::arch::x86_64::{
        __m512, _MM_HINT_T0, _mm_and_si128, _mm_loadu_si128, _mm_prefetch, _mm_set1_epi8,
        _mm_srli_epi16, _mm256_maskz_loadu_epi16, _mm256_set1_epi16, _mm512_add_ps,
        _mm512_castsi512_ps, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32,
        _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_fmadd_ps, _mm512_mask_storeu_ps,
        _mm512_maskz_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32,
    };

    /// Rows whose sums are in registers beside the sixteen columns.
    pub const HEIGHT: usize = 8;

    /// What one run reads and writes, but for the weights.
    pub struct Tile {
        pub depth: usize,
        pub x: *const f32,
        pub x_stride: usize,
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

    /// Weights that become f32 on their way into a register.
    pub trait Weights: Copy {
        /// Sixteen numbers of a row from a column on, which is a multiple of sixteen; those that the mask
        /// leaves out may be anything.
        ///
        /// # Safety
        /// AVX-512 must be present and the masked numbers inside the weight.
        unsafe fn load(self, row: usize, column: usize, mask: u16) -> __m512;

        /// Where these numbers are, which may be behind the end.
        fn address(self, row: usize, column: usize) -> *const i8;
    }

    /// Numbers in rows.
    #[derive(Clone, Copy)]
    pub struct Plain<N> {
        pub start: *const N,
        /// Distance between rows.
        pub stride: usize,
    }

    impl<N: Number> Weights for Plain<N> {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn load(self, row: usize, column: usize, mask: u16) -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { N::load(self.start.add(row * self.stride + column), mask) }
        }

        #[inline]
        fn address(self, row: usize, column: usize) -> *const i8 {
            self.start.wrapping_add(row * self.stride + column).cast()
        }
    }

    /// Blocks of 8 bits under a scale.
    #[derive(Clone, Copy)]
    pub struct Int8 {
        pub quants: *const u8,
        pub scales: *const u16,
        /// Of a row.
        pub blocks: usize,
    }

    impl Weights for Int8 {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn load(self, row: usize, column: usize, _: u16) -> __m512 {
            let block = row * self.blocks + column / BLOCK;
            // SAFETY: a block is there whole, wherever its row ends.
            let (bytes, scale) = unsafe {
                let from = self.quants.add(block * BLOCK + column % BLOCK);
                (_mm_loadu_si128(from.cast()), *self.scales.add(block))
            };
            _mm512_mul_ps(widened(scale), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)))
        }

        #[inline]
        fn address(self, row: usize, column: usize) -> *const i8 {
            self.quants.wrapping_add(row * self.blocks * BLOCK + column).cast()
        }
    }

    /// Blocks of 4 bits with a scale and a minimum.
    #[derive(Clone, Copy)]
    pub struct Int4 {
        pub quants: *const u8,
        pub scales: *const u16,
        /// Of a row.
        pub blocks: usize,
    }

    impl Weights for Int4 {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn load(self, row: usize, column: usize, _: u16) -> __m512 {
            let block = row * self.blocks + column / BLOCK;
            // SAFETY: a block is there whole, wherever its row ends.
            let (bytes, [scale, least]) = unsafe {
                let bytes = _mm_loadu_si128(self.quants.add(block * (BLOCK / 2)).cast());
                (bytes, *self.scales.add(2 * block).cast::<[u16; 2]>())
            };
            let upper = !column.is_multiple_of(BLOCK);
            let bytes = if upper { _mm_srli_epi16::<4>(bytes) } else { bytes };
            let quants = _mm512_cvtepu8_epi32(_mm_and_si128(bytes, _mm_set1_epi8(15)));
            // The product is exact, so that fusing it changes no bit.
            _mm512_fmadd_ps(widened(scale), _mm512_cvtepi32_ps(quants), widened(least))
        }

        #[inline]
        fn address(self, row: usize, column: usize) -> *const i8 {
            self.quants.wrapping_add(row * self.blocks * (BLOCK / 2) + column / 2).cast()
        }
    }

    /// An f16 in every lane.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn widened(half: u16) -> __m512 {
        _mm512_cvtph_ps(_mm256_set1_epi16(half.cast_signed()))
    }

    /// # Safety
    /// AVX-512 must be present and all pointers valid for the tile's sizes.
    pub unsafe fn run<W: Weights>(height: usize, tile: &Tile, weight: W) {
        // SAFETY: the caller's promise.
        unsafe {
            match height {
                1 => rows::<1, W>(tile, weight),
                2 => rows::<2, W>(tile, weight),
                3 => rows::<3, W>(tile, weight),
                4 => rows::<4, W>(tile, weight),
                5 => rows::<5, W>(tile, weight),
                6 => rows::<6, W>(tile, weight),
                7 => rows::<7, W>(tile, weight),
                8 => rows::<8, W>(tile, weight),
                _ => unreachable!("a run has 1 to {HEIGHT} rows, not {height}"),
            }
        }
    }

    /// # Safety
    /// As for [`run`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn rows<const H: usize, W: Weights>(tile: &Tile, weight: W) {
        // SAFETY: the caller's promise.
        unsafe {
            if tile.outputs == GROUP {
                chains::<H, true, W>(tile, weight);
            } else {
                chains::<H, false, W>(tile, weight);
            }
        }
    }

    /// # Safety
    /// As for [`run`]; `FULL` only where there are sixteen outputs.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn chains<const H: usize, const FULL: bool, W: Weights>(tile: &Tile, weight: W) {
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
                let columns = turned::<FULL, W>(tile, weight, k, u16::MAX);
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
                let columns = turned::<FULL, W>(tile, weight, whole, mask(rest));
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
    unsafe fn turned<const FULL: bool, W: Weights>(
        tile: &Tile,
        weight: W,
        k: usize,
        lanes: u16,
    ) -> [__m512; GROUP] {
        let mut block = [_mm512_setzero_ps(); GROUP];
        for (row, into) in block.iter_mut().enumerate() {
            // Rows that are not there are the last one again; their sums are not stored.
            let row = if FULL { row } else { row.min(tile.outputs - 1) };
            // SAFETY: the caller's promise; a prefetch may name any address.
            unsafe {
                *into = weight.load(row, k, lanes);
                if FULL {
                    _mm_prefetch::<_MM_HINT_T0>(weight.address(row + GROUP, k));
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
    use crate::cpu::bf16;
    use crate::cpu::matmul::{Extras, Right, multiply};
    use crate::cpu::quantised::View;
    use crate::pool::Pool;
    use crate::quantised_matrix::QuantisedMatrix;

    const UNTOUCHED: f32 = -77.5;

    fn draw(len: usize, seed: u64) -> Vec<f32> {
        let mut draw = Seed(seed).generator();
        (0..len).map(|_| draw.normal() as f32).collect()
    }

    fn bits(numbers: &[f32]) -> Vec<u32> {
        numbers.iter().map(|x| x.to_bits()).collect()
    }

    /// Compares with the packed product of the numbers that the weights stand for, whatever the sums start from.
    fn check(rows: usize, outputs: [usize; 2], depth: usize) {
        if !applies(rows) {
            return;
        }
        let numbers = [draw(outputs[0] * depth, 2), draw(outputs[1] * depth, 3)];
        let mut halves = vec![0; numbers[1].len()];
        bf16::narrow(&mut halves, &numbers[1]);
        let mut widened = vec![0.0; halves.len()];
        bf16::widen(&mut widened, &halves);
        let first = Stored::f32(Mat::new(&numbers[0], outputs[0], depth));
        let second = Stored::bf16(&halves, outputs[1], depth);
        compare(rows, outputs, ([first, second], [&numbers[0], &widened]), depth);
        let kinds = [Quantisation::Int8, Quantisation::Int4];
        let made = [0, 1]
            .map(|i| QuantisedMatrix::of(kinds[i], (outputs[i], depth), &numbers[i]).unwrap());
        let stored = made.each_ref().map(|matrix| {
            Stored::quantised(View::of(matrix.shape, &matrix.quants, &matrix.scales))
        });
        let f32s = made.each_ref().map(QuantisedMatrix::to_f32);
        compare(rows, outputs, (stored, [&f32s[0], &f32s[1]]), depth);
    }

    fn compare(
        rows: usize,
        outputs: [usize; 2],
        (weights, f32s): ([Stored<'_>; 2], [&[f32]; 2]),
        depth: usize,
    ) {
        let pool = Pool::new();
        let total = outputs[0] + outputs[1];
        let (x, stride) = (draw(rows * (depth + 2), 1), depth + 2);
        let x = Mat::strided(&x, rows, depth, stride);
        let turned = [0, 1].map(|i| Mat::new(f32s[i], outputs[i], depth).t());
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
