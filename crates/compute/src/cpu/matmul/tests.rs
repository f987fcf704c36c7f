//! Products against a plain triple loop, at every awkward size, and the kernels against each other.

#[cfg(target_arch = "x86_64")]
use super::kernel::x86::{narrow, wide};
use super::kernel::{HEIGHT, Tile, WIDTH, plain};
use super::product::{BLOCK_ROWS, DEPTH};
use super::task::NOTHING;
use super::*;
use crate::{Pool, Seed};
use std::sync::atomic::{AtomicU32, Ordering};

/// Columns of several panels, or just two where Miri counts them.
pub(super) const LARGE: usize = if cfg!(miri) { 33 } else { 100 };
/// What no product may leave behind or overwrite.
pub(super) const UNTOUCHED: f32 = -77.5;
/// A sum of `k` terms in f32 errs by at most about `k` roundings of the sum of magnitudes.
const ROUNDING: f64 = 1.2e-7;

#[test]
fn products_at_odd_sizes_strides_and_transposes_match_a_triple_loop() {
    for rows in sizes(1..=40, [1, 15]) {
        for cols in sizes([1, 7, 16, 31, 32, 33, 40], [1, 33]) {
            for depth in sizes([1, 2, 9, 16, 17, 40], [1, 5]) {
                for variant in 0..8 {
                    let gap = (variant & 1) * 3;
                    let a = Operand::new((rows, depth), gap, variant & 2 != 0, 1);
                    let b = Operand::new((depth, cols), gap, variant & 4 != 0, 2);
                    check(&a, &b, gap);
                }
            }
        }
    }
}

#[test]
fn products_larger_than_one_task_and_one_depth_block_match_a_triple_loop() {
    let more: &[_] = if cfg!(miri) { &[] } else { &[(611, 33, 5), (3, 130, 1000)] };
    for &(rows, cols, depth) in [(BLOCK_ROWS + 1, LARGE - 30, DEPTH + 1)].iter().chain(more) {
        for (turn_a, turn_b) in [(false, true), (true, false)] {
            let a = Operand::new((rows, depth), 1, turn_a, 3);
            let b = Operand::new((depth, cols), 1, turn_b, 4);
            check(&a, &b, 2);
        }
    }
}

#[test]
fn sums_start_from_whatever_they_are_told_to() {
    for (rows, cols, depth) in [(1, 1, 1), (15, 33, 7), (29, 45, 2 * DEPTH + 3)] {
        let a = Operand::new((rows, depth), 0, false, 5);
        let b = Operand::new((depth, cols), 0, true, 6);
        let (bias, there) = (draw(cols, 7), draw(rows * cols, 8));
        let wide = draw(rows * (cols + 5), 9);
        let residual = Mat::strided(&wide, rows, cols, cols + 5);
        for (start, first) in [
            (Start::Zero, None),
            (Start::Keep, Some(1)),
            (Start::Bias(&bias), Some(2)),
            (Start::Residual(residual), Some(4)),
            (Start::BiasAndResidual(&bias, residual), Some(6)),
        ] {
            let from = |row: usize, col: usize| {
                let sources = [there[row * cols + col], bias[col], at(residual, row, col)];
                let chosen = |i: &usize| first.unwrap_or(0) >> i & 1 == 1;
                (0..3).filter(chosen).map(|i| f64::from(sources[i])).sum::<f64>()
            };
            let pool = Pool::new();
            let right = Right::beside(&pool, &[b.mat()]);
            let mut parallel = there.clone();
            let into = MatMut::new(&mut parallel, rows, cols);
            multiply(into, a.mat(), &right, start, Extras::default());
            compare(&parallel, cols, &a, &b, from);
            let (mut serial, mut scratch) = (there.clone(), pool.take(0));
            let into = MatMut::new(&mut serial, rows, cols);
            multiply_serial(into, a.mat(), &right, start, &mut scratch);
            assert_eq!(bits(&parallel), bits(&serial), "{start:?}");
        }
    }
}

#[test]
fn every_element_is_finished_exactly_once_and_last() {
    for (rows, cols, depth) in [(1, 1, 1), (30, 67, 9), (BLOCK_ROWS + 5, LARGE, 2 * DEPTH + 1)] {
        let a = Operand::new((rows, depth), 0, false, 10);
        let b = Operand::new((depth, cols), 0, true, 11);
        let right = Right::beside(&Pool::new(), &[b.mat()]);
        let product = |finish: Option<Finish<'_>>| {
            let mut c = vec![UNTOUCHED; rows * cols];
            let into = MatMut::new(&mut c, rows, cols);
            multiply(into, a.mat(), &right, Start::Zero, Extras { finish, row_sums: None });
            c
        };
        let counts: Vec<AtomicU32> = (0..rows * cols).map(|_| AtomicU32::new(0)).collect();
        let finish = |row: usize, column: usize, segment: &mut [f32]| {
            for (i, x) in segment.iter_mut().enumerate() {
                counts[row * cols + column + i].fetch_add(1, Ordering::Relaxed);
                *x *= 2.0;
            }
        };
        let doubled: Vec<f32> = product(None).iter().map(|x| x * 2.0).collect();
        assert_eq!(bits(&product(Some(&finish))), bits(&doubled));
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }
}

#[test]
fn row_sums_are_added_once_whatever_the_number_of_tasks() {
    let more: &[_] = if cfg!(miri) { &[] } else { &[(33, 400, 17), (600, 40, DEPTH + 9)] };
    for &(rows, cols, depth) in [(1, 3, 1), (1, 1, 50), (15, 200, 3)].iter().chain(more) {
        for gap in [0, 2] {
            let a = Operand::new((rows, depth), gap, true, 12);
            let b = Operand::new((depth, cols), gap, false, 13);
            let right = Right::stacked(&Pool::new(), &[b.mat()]);
            let (mut c, mut sums) = (vec![0.0; rows * cols], vec![100.0; rows]);
            let extras = Extras { finish: None, row_sums: Some(&mut sums) };
            multiply(MatMut::new(&mut c, rows, cols), a.mat(), &right, Start::Zero, extras);
            compare(&c, cols, &a, &b, |_, _| 0.0);
            for (row, sum) in sums.iter().enumerate() {
                let terms = (0..depth).map(|k| f64::from(at(a.mat(), row, k)));
                let expected = 100.0 + terms.sum::<f64>();
                let allowed = ROUNDING * depth as f64 * (100.0 + depth as f64);
                let error = (f64::from(*sum) - expected).abs();
                assert!(error <= allowed, "row {row} of {rows}: {sum} instead of {expected}");
            }
        }
    }
}

#[test]
fn operands_side_by_side_and_stacked_are_one_operand() {
    let pool = Pool::new();
    let a = Operand::new((17, 12), 0, false, 14);
    let parts = [5, 33, 1].map(|cols| Operand::new((12, cols), 2, true, cols as u64));
    let right = Right::beside(&pool, &parts.each_ref().map(Operand::mat));
    assert_eq!(right.cols(), 39);
    let (mut c, mut serial, mut scratch) = (vec![0.0; 17 * 39], vec![0.0; 17 * 39], pool.take(0));
    multiply(MatMut::new(&mut c, 17, 39), a.mat(), &right, Start::Zero, Extras::default());
    let into = MatMut::new(&mut serial, 17, 39);
    multiply_serial(into, a.mat(), &right, Start::Zero, &mut scratch);
    assert_eq!(bits(&c), bits(&serial));
    let mut column = 0;
    for part in &parts {
        let cols = part.shape.1;
        let own: Vec<f32> =
            c.chunks_exact(39).flat_map(|row| &row[column..][..cols]).copied().collect();
        compare(&own, cols, &a, part, |_, _| 0.0);
        column += cols;
    }

    let parts = [5, 1, 6].map(|rows| Operand::new((rows, 35), 2, rows == 5, rows as u64));
    let right = Right::stacked(&pool, &parts.each_ref().map(Operand::mat));
    let mut c = vec![0.0; 17 * 35];
    multiply(MatMut::new(&mut c, 17, 35), a.mat(), &right, Start::Zero, Extras::default());
    let joined = parts.iter().flat_map(|part| (0..part.shape.0).map(move |row| (part, row)));
    let joined = joined.flat_map(|(part, row)| (0..35).map(move |col| at(part.mat(), row, col)));
    let whole = Operand { numbers: joined.collect(), shape: (12, 35), stride: 35, turned: false };
    compare(&c, 35, &a, &whole, |_, _| 0.0);
}

#[test]
fn a_serial_product_may_use_the_leading_part_of_its_right_operand() {
    let pool = Pool::new();
    let mut right = Right::empty(&pool, 0);
    let mut scratch = pool.take(0);
    for (depth, cols) in [(70, 90), (7, 3), (DEPTH + 20, 65)] {
        for turned in [false, true] {
            let b = Operand::new((depth, cols), 1, turned, 15);
            right.repack(b.mat());
            for (used_depth, used_cols) in
                [(depth, cols), (1, 1), (depth - 1, cols), (depth, cols - 1), (depth / 2, cols / 2)]
            {
                let rows = if cfg!(miri) { 3 } else { 19 };
                let a = Operand::new((rows, used_depth), 0, false, 16);
                let leading = Operand { shape: (used_depth, used_cols), ..b.clone() };
                let stride = used_cols + 2;
                let mut c = vec![UNTOUCHED; rows * stride];
                let into = MatMut::strided(&mut c, rows, used_cols, stride);
                multiply_serial(into, a.mat(), &right, Start::Zero, &mut scratch);
                compare(&c, stride, &a, &leading, |_, _| 0.0);
            }
        }
    }
}

#[test]
fn every_kernel_gives_the_same_bits() {
    for height in sizes(1..=HEIGHT, [1, HEIGHT]) {
        for cols in sizes(1..=WIDTH, [1, 17, WIDTH]) {
            for (depth, sources) in [(1, 0), (5, 1), (67, 2), (0, 2)] {
                let expected = run(Kernel::Plain, height, cols, depth, sources);
                for kernel in vector_kernels() {
                    let found = run(kernel, height, cols, depth, sources);
                    assert_eq!(found, expected, "{kernel:?} {height} x {cols} x {depth}");
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "a product's shapes must agree")]
fn a_destination_of_another_shape_is_refused() {
    let right = Right::beside(&Pool::new(), &[Mat::new(&[1.0; 6], 2, 3)]);
    let mut c = [0.0; 4];
    let into = MatMut::new(&mut c, 2, 2);
    multiply(into, Mat::new(&[1.0; 4], 2, 2), &right, Start::Zero, Extras::default());
}

#[test]
#[should_panic(expected = "a bias has one number per column")]
fn a_bias_that_is_too_short_is_refused() {
    let right = Right::beside(&Pool::new(), &[Mat::new(&[1.0; 6], 2, 3)]);
    let mut c = [0.0; 6];
    let into = MatMut::new(&mut c, 2, 3);
    multiply(into, Mat::new(&[1.0; 4], 2, 2), &right, Start::Bias(&[1.0; 2]), Extras::default());
}

#[test]
#[should_panic(expected = "a residual covers the destination")]
fn a_residual_that_is_too_small_is_refused() {
    let right = Right::beside(&Pool::new(), &[Mat::new(&[1.0; 6], 2, 3)]);
    let mut c = [0.0; 6];
    let start = Start::Residual(Mat::new(&[1.0; 3], 1, 3));
    let mut scratch = right.pool().take(0);
    multiply_serial(
        MatMut::new(&mut c, 2, 3),
        Mat::new(&[1.0; 4], 2, 2),
        &right,
        start,
        &mut scratch,
    );
}

#[derive(Clone, Copy, Debug)]
enum Kernel {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

fn vector_kernels() -> Vec<Kernel> {
    use crate::cpu::simd::{Level, level};
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => vec![Kernel::Avx2, Kernel::Avx512],
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => vec![Kernel::Avx2],
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx512 | Level::Avx2 => Vec::new(),
        Level::Baseline => Vec::new(),
    }
}

/// The bits of the destination, gaps included, after one tile: rows packed, then rows in place.
fn run(kernel: Kernel, height: usize, cols: usize, depth: usize, sources: usize) -> Vec<u32> {
    let (a, b) = (draw(height * depth, 20), draw(WIDTH * depth, 21));
    let (bias, residual) = (draw(cols, 22), draw(height * (cols + 3), 23));
    let stride = cols + 1;
    let mut seen = Vec::new();
    for a_strides in [(1, height), (depth, 1)] {
        let mut c = vec![UNTOUCHED; height * stride];
        let mut starts = [(bias.as_ptr(), 0), (residual.as_ptr(), cols + 3)];
        starts[sources..].fill(NOTHING);
        let tile = Tile {
            depth,
            a: a.as_ptr(),
            a_strides,
            b: b.as_ptr(),
            b_stride: WIDTH,
            c: c.as_mut_ptr(),
            c_stride: stride,
            cols,
            starts,
        };
        macro_rules! heights {
            ($kernel:ident: $($height:literal)*) => {
                // SAFETY: the operands above have the sizes that the tile states, and
                // `vector_kernels` names only kernels that the processor can run.
                unsafe {
                    match height {
                        $($height => $kernel::<$height>(&tile),)*
                        _ => unreachable!("heights go from 1 to {HEIGHT}"),
                    }
                }
            };
        }
        match kernel {
            Kernel::Plain => heights!(plain: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => heights!(narrow: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => heights!(wide: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        }
        assert!(c.chunks_exact(stride).all(|row| row[cols] == UNTOUCHED));
        seen.extend(bits(&c));
    }
    seen
}

/// All sizes, or the few for which Miri has the time.
pub(super) fn sizes<const FEW: usize>(
    all: impl IntoIterator<Item = usize>,
    few: [usize; FEW],
) -> Vec<usize> {
    if cfg!(miri) { few.to_vec() } else { all.into_iter().collect() }
}

/// A matrix with gaps between its rows, seen as it is or turned.
#[derive(Clone)]
pub(super) struct Operand {
    pub numbers: Vec<f32>,
    pub shape: (usize, usize),
    pub stride: usize,
    pub turned: bool,
}

impl Operand {
    pub fn new((rows, cols): (usize, usize), gap: usize, turned: bool, seed: u64) -> Self {
        let (outer, inner) = if turned { (cols, rows) } else { (rows, cols) };
        let stride = inner + gap;
        Self { numbers: draw(outer * stride, seed), shape: (rows, cols), stride, turned }
    }

    pub fn mat(&self) -> Mat<'_> {
        let (rows, cols) = self.shape;
        if self.turned {
            return Mat::strided(&self.numbers, cols, rows, self.stride).t();
        }
        Mat::strided(&self.numbers, rows, cols, self.stride)
    }
}

/// The product in parallel and serially, into a destination with gaps between its rows.
fn check(a: &Operand, b: &Operand, gap: usize) {
    let ((rows, _), (_, cols)) = (a.shape, b.shape);
    let pool = Pool::new();
    let right = Right::beside(&pool, &[b.mat()]);
    let stride = cols + gap;
    let mut c = vec![UNTOUCHED; rows * stride];
    let into = MatMut::strided(&mut c, rows, cols, stride);
    multiply(into, a.mat(), &right, Start::Zero, Extras::default());
    compare(&c, stride, a, b, |_, _| 0.0);
    let (mut serial, mut scratch) = (vec![UNTOUCHED; rows * stride], pool.take(0));
    let into = MatMut::strided(&mut serial, rows, cols, stride);
    multiply_serial(into, a.mat(), &right, Start::Zero, &mut scratch);
    assert_eq!(bits(&serial), bits(&c));
}

fn compare(
    c: &[f32],
    stride: usize,
    a: &Operand,
    b: &Operand,
    start: impl Fn(usize, usize) -> f64,
) {
    let ((rows, depth), (_, cols)) = (a.shape, b.shape);
    let (a, b) = (a.mat(), b.mat());
    for row in 0..rows {
        for col in 0..cols {
            let (mut expected, mut magnitude) = (start(row, col), start(row, col).abs());
            for k in 0..depth {
                let term = f64::from(at(a, row, k)) * f64::from(at(b, k, col));
                expected += term;
                magnitude += term.abs();
            }
            let found = f64::from(c[row * stride + col]);
            let allowed = ROUNDING * (depth + 2) as f64 * magnitude;
            let place = format!("({row}, {col}) of {rows} x {cols} x {depth}");
            assert!((found - expected).abs() <= allowed, "{place}: {found}, not {expected}");
        }
        assert!(c[row * stride + cols..(row + 1) * stride].iter().all(|x| *x == UNTOUCHED));
    }
}

pub(super) fn at(mat: Mat<'_>, row: usize, col: usize) -> f32 {
    mat.data[row * mat.row_stride + col * mat.col_stride]
}

pub(super) fn draw(count: usize, seed: u64) -> Vec<f32> {
    let mut generator = Seed(seed).generator();
    (0..count).map(|_| (2.0 * generator.uniform() - 1.0) as f32).collect()
}

pub(super) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_right_operand_read_in_place_gives_the_bits_of_a_packed_one() {
    let pool = Pool::new();
    let mut draw = Seed(11).generator();
    let large: &[_] = if cfg!(miri) { &[] } else { &[(37, 400, 96), (130, 33, 320)] };
    for &(rows, depth, cols) in [(1, 1, 32), (15, 40, 64)].iter().chain(large) {
        let stride = cols + 32;
        let left: Vec<f32> = (0..rows * depth).map(|_| draw.normal() as f32).collect();
        let right: Vec<f32> = (0..depth * stride).map(|_| draw.normal() as f32).collect();
        let (a, b) = (Mat::new(&left, rows, depth), Mat::strided(&right, depth, cols, stride));
        let mut results = Vec::new();
        for right in [Right::rows(&pool, b), Right::stacked(&pool, &[b])] {
            let mut c = vec![0.0; rows * cols];
            multiply(MatMut::new(&mut c, rows, cols), a, &right, Start::Zero, Extras::default());
            results.push(c);
        }
        assert_eq!(results[0], results[1], "{rows} x {depth} x {cols}");
    }
}

#[test]
fn a_left_operand_read_across_gives_the_bits_of_a_packed_one() {
    let pool = Pool::new();
    let mut draw = Seed(12).generator();
    let (rows, depth) = if cfg!(miri) { (3, 5) } else { (61, 130) };
    let left: Vec<f32> = (0..rows * depth).map(|_| draw.normal() as f32).collect();
    let right: Vec<f32> = (0..depth * 320).map(|_| draw.normal() as f32).collect();
    let a = Mat::new(&left, depth, rows).t();
    // Ten panels are worth a packed copy of the left operand, one is not.
    let mut wide = vec![0.0; rows * 320];
    let b = Right::stacked(&pool, &[Mat::new(&right, depth, 320)]);
    multiply(MatMut::new(&mut wide, rows, 320), a, &b, Start::Zero, Extras::default());
    let mut narrow = vec![0.0; rows * 32];
    let b = Right::stacked(&pool, &[Mat::strided(&right, depth, 32, 320)]);
    multiply(MatMut::new(&mut narrow, rows, 32), a, &b, Start::Zero, Extras::default());
    for (wide, narrow) in wide.chunks_exact(320).zip(narrow.chunks_exact(32)) {
        assert_eq!(wide[..32], *narrow);
    }
}
