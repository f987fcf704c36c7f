//! Products in bf16 by every kernel that this processor has: against a triple loop over rounded
//! operands, at every awkward size, and the kernels against their definition.

use super::tests::{LARGE, Operand, UNTOUCHED, at, bits, draw, sizes};
use super::tile::{Block, Ready, SIDE, Sums, TILE, WORDS, plain};
use super::tile_pack::{left_strips, right_panel};
use super::tile_product::ROWS;
use super::*;
use crate::cpu::amx;
use crate::cpu::bf16;
use crate::cpu::bf16_products::{Products, TileKernel};
use crate::{Pool, Seed, ThreadPool};

/// Deeper than one slice of the depth.
const DEEP: usize = if cfg!(miri) { 70 } else { 1100 };
/// What `tile.rs` states, of the sum of magnitudes and for each term.
const ROUNDING: f64 = 1.2e-7;

/// The definition, and what the processor has.
fn kernels() -> Vec<TileKernel> {
    let mut kernels = vec![TileKernel::Plain];
    kernels.extend(amx::has_dot_products().then_some(TileKernel::Avx512));
    match amx::permitted() {
        Ok(()) => kernels.push(TileKernel::Amx),
        Err(error) => eprintln!("skipped AMX: {error}"),
    }
    kernels
}

fn pool(kernel: TileKernel) -> Pool {
    Pool::new().with_products(Products::Bf16(kernel))
}

#[test]
fn products_at_odd_sizes_strides_and_transposes_match_a_triple_loop() {
    for kernel in kernels() {
        for rows in sizes([1, 15, 16, 17, 31, 32, 33, 70], [1, 33]) {
            for cols in sizes([1, 7, 16, 17, 32, 33, 65], [1, 33]) {
                for depth in sizes([1, 2, 31, 32, 33, 64, 97], [1, 33]) {
                    for variant in 0..8 {
                        let gap = (variant & 1) * 3;
                        let a = Operand::new((rows, depth), gap, variant & 2 != 0, 1);
                        let b = Operand::new((depth, cols), gap, variant & 4 != 0, 2);
                        check(kernel, &a, &b, gap);
                    }
                }
            }
        }
    }
}

#[test]
fn products_larger_than_one_task_and_one_slice_of_the_depth_match_a_triple_loop() {
    for kernel in kernels() {
        for (rows, cols, depth) in [(ROWS + 33, LARGE - 30, DEEP), (5, LARGE, DEEP + 31)] {
            for (turn_a, turn_b) in [(false, true), (true, false)] {
                let a = Operand::new((rows, depth), 1, turn_a, 3);
                let b = Operand::new((depth, cols), 1, turn_b, 4);
                check(kernel, &a, &b, 2);
            }
        }
    }
}

#[test]
fn a_product_of_no_depth_is_what_its_sums_start_from() {
    for kernel in kernels() {
        let pool = pool(kernel);
        let (bias, mut c) = (draw(33, 5), vec![UNTOUCHED; 33 * 33]);
        let right = Right::beside(&pool, &[Mat::new(&[], 0, 33)]);
        let into = MatMut::new(&mut c, 33, 33);
        multiply(into, Mat::new(&[], 33, 0), &right, Start::Bias(&bias), Extras::default());
        assert!(c.chunks_exact(33).all(|row| row == bias));
    }
}

#[test]
fn sums_start_from_whatever_they_are_told_to_in_f32() {
    for kernel in kernels() {
        for (rows, cols, depth) in [(1, 1, 1), (33, 45, 40), (32, 64, DEEP)] {
            let a = Operand::new((rows, depth), 0, false, 5);
            let b = Operand::new((depth, cols), 0, true, 6);
            let (bias, there) = (draw(cols, 7), draw(rows * cols, 8));
            let wide = draw(rows * (cols + 5), 9);
            let residual = Mat::strided(&wide, rows, cols, cols + 5);
            for (start, chosen) in [
                (Start::Zero, 0),
                (Start::Keep, 1),
                (Start::Bias(&bias), 2),
                (Start::Residual(residual), 4),
                (Start::BiasAndResidual(&bias, residual), 6),
            ] {
                let from = |row: usize, col: usize| {
                    let sources = [there[row * cols + col], bias[col], at(residual, row, col)];
                    let counts = |i: &usize| chosen >> i & 1 == 1;
                    (0..3).filter(counts).map(|i| f64::from(sources[i])).sum::<f64>()
                };
                let pool = pool(kernel);
                let right = Right::beside(&pool, &[b.mat()]);
                let mut parallel = there.clone();
                let into = MatMut::new(&mut parallel, rows, cols);
                multiply(into, a.mat(), &right, start, Extras::default());
                compare(&parallel, cols, &a, &b, from);
                let (mut serial, mut scratch) = (there.clone(), pool.take(0));
                let into = MatMut::new(&mut serial, rows, cols);
                multiply_serial(into, a.mat(), &right, start, &mut scratch);
                assert_eq!(bits(&parallel), bits(&serial), "{kernel:?} {start:?}");
            }
        }
    }
}

#[test]
fn blocks_are_finished_once_and_row_sums_are_those_of_unrounded_rows() {
    for (rows, cols, depth) in [(1, 1, 1), (40, 300, 33), (ROWS + 5, LARGE, DEEP)] {
        let a = Operand::new((rows, depth), 2, true, 10);
        let b = Operand::new((depth, cols), 0, false, 11);
        let product = |pool: &Pool, finish: Option<Finish<'_>>| {
            let right = Right::rows(pool, b.mat());
            let (mut c, mut sums) = (vec![UNTOUCHED; rows * cols], vec![100.0; rows]);
            let extras = Extras { finish, row_sums: Some(&mut sums) };
            multiply(MatMut::new(&mut c, rows, cols), a.mat(), &right, Start::Zero, extras);
            (c, sums)
        };
        let twice = |_: usize, _: usize, segment: &mut [f32]| {
            for x in segment {
                *x *= 2.0;
            }
        };
        for kernel in kernels() {
            let (once, _) = product(&pool(kernel), None);
            let (found, sums) = product(&pool(kernel), Some(&twice));
            let doubled: Vec<f32> = once.iter().map(|x| x * 2.0).collect();
            assert_eq!(bits(&found), bits(&doubled), "{kernel:?}");
            for (row, sum) in sums.iter().enumerate() {
                let terms = (0..depth).map(|k| f64::from(at(a.mat(), row, k)));
                let expected = 100.0 + terms.sum::<f64>();
                let allowed = ROUNDING * depth as f64 * (100.0 + depth as f64);
                assert!((f64::from(*sum) - expected).abs() <= allowed, "row {row} of {rows}");
            }
        }
    }
}

#[test]
fn operands_side_by_side_and_stacked_at_odd_depths_are_one_operand() {
    for kernel in kernels() {
        let pool = pool(kernel);
        let a = Operand::new((17, 77), 0, false, 14);
        let parts = [5, 33, 1].map(|cols| Operand::new((77, cols), 2, true, cols as u64));
        let right = Right::beside(&pool, &parts.each_ref().map(Operand::mat));
        let mut c = vec![0.0; 17 * 39];
        multiply(MatMut::new(&mut c, 17, 39), a.mat(), &right, Start::Zero, Extras::default());
        let mut column = 0;
        for part in &parts {
            let cols = part.shape.1;
            let own: Vec<f32> =
                c.chunks_exact(39).flat_map(|row| &row[column..][..cols]).copied().collect();
            compare(&own, cols, &a, part, |_, _| 0.0);
            column += cols;
        }

        let parts = [38, 1, 38].map(|rows| Operand::new((rows, 35), 2, rows == 1, rows as u64));
        let right = Right::stacked(&pool, &parts.each_ref().map(Operand::mat));
        let mut c = vec![0.0; 17 * 35];
        multiply(MatMut::new(&mut c, 17, 35), a.mat(), &right, Start::Zero, Extras::default());
        let rows = parts.iter().flat_map(|part| (0..part.shape.0).map(move |row| (part, row)));
        let joined = rows.flat_map(|(part, row)| (0..35).map(move |col| at(part.mat(), row, col)));
        let whole =
            Operand { numbers: joined.collect(), shape: (77, 35), stride: 35, turned: false };
        compare(&c, 35, &a, &whole, |_, _| 0.0);
    }
}

#[test]
fn a_serial_product_may_use_the_leading_part_of_its_right_operand() {
    for kernel in kernels() {
        let pool = pool(kernel);
        let (mut right, mut scratch) = (Right::empty(&pool, 0), pool.take(0));
        for (depth, cols) in [(70, 90), (7, 3), (DEEP, 65)] {
            for turned in [false, true] {
                let b = Operand::new((depth, cols), 1, turned, 15);
                right.repack(b.mat());
                for (used_depth, used_cols) in [
                    (depth, cols),
                    (1, 1),
                    (depth - 1, cols),
                    (depth, cols - 1),
                    (depth / 2, cols / 2),
                ] {
                    let a = Operand::new((19, used_depth), 0, false, 16);
                    let leading = Operand { shape: (used_depth, used_cols), ..b.clone() };
                    let stride = used_cols + 2;
                    let mut c = vec![UNTOUCHED; 19 * stride];
                    let into = MatMut::strided(&mut c, 19, used_cols, stride);
                    multiply_serial(into, a.mat(), &right, Start::Zero, &mut scratch);
                    compare(&c, stride, &a, &leading, |_, _| 0.0);
                }
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for kernel in kernels() {
        for (rows, cols, depth) in [(ROWS + 40, 70, DEEP), (70, 400, 70)] {
            let product = |threads| {
                ThreadPool::new(threads).expect("threads").install(|| {
                    let a = Operand::new((rows, depth), 0, true, 17);
                    let b = Operand::new((depth, cols), 0, false, 18);
                    let right = Right::rows(&pool(kernel), b.mat());
                    let mut c = vec![0.0; rows * cols];
                    let into = MatMut::new(&mut c, rows, cols);
                    multiply(into, a.mat(), &right, Start::Zero, Extras::default());
                    bits(&c)
                })
            };
            let alone = product(1);
            assert!((2..6).all(|threads| product(threads) == alone), "{kernel:?}");
        }
    }
}

/// AMX may differ from its definition below the smallest normal number only; AVX-512 adds in
/// another order.
#[test]
fn every_kernel_computes_what_the_definition_says() {
    let deep = if cfg!(miri) { 2 } else { 40 };
    for (depth, scale) in [(0, 1.0), (1, 1.0), (3, 1e-15), (deep, 1.0), (deep, 1e18)] {
        let (a, b) = (random_blocks(depth, 19, scale), random_blocks(depth, 20, scale));
        let from = draw(SIDE * SIDE, 21);
        let mut expected: Sums = from.clone().try_into().expect("a block");
        plain(&a, &b, &mut expected);
        let size = scale * scale * (SIDE * depth) as f32 * 2.0 + 1.0;
        for kernel in kernels() {
            let mut found = vec![UNTOUCHED; SIDE * (SIDE + 8)];
            let into = (found.as_mut_ptr(), SIDE + 8);
            let from = (from.as_ptr(), SIDE);
            // SAFETY: both are 32 rows of 32 floats.
            unsafe { Ready::new(kernel).multiply((&a, &b), from, into) };
            for (found, expected) in found.chunks_exact(SIDE + 8).zip(expected.chunks_exact(SIDE)) {
                assert!(found[SIDE..].iter().all(|x| *x == UNTOUCHED));
                for (found, expected) in found.iter().zip(expected) {
                    let close = (found - expected).abs() <= 1.2e-7 * size;
                    let same = found.to_bits() == expected.to_bits();
                    assert!(same || kernel == TileKernel::Avx512, "{kernel:?} {found} {expected}");
                    assert!(close, "{kernel:?} depth {depth}: {found}, not {expected}");
                }
            }
        }
    }
}

#[test]
fn packing_rounds_as_bf16_does_and_pads_with_zeros() {
    let specials = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0, 1e-40, 1.003_906_2];
    let mut numbers = draw(SIDE * SIDE, 22);
    numbers[..specials.len()].copy_from_slice(&specials);
    let mut halves = vec![0; numbers.len()];
    bf16::narrow(&mut halves, &numbers);
    let expected = |row: usize, k: usize| halves[row * SIDE + k];
    for (rows, depth) in [(SIDE, SIDE), (3, 5), (17, 31), (16, 32)] {
        let mat = Mat::strided(&numbers, rows, depth, SIDE);
        let mut turned = vec![0.0; SIDE * SIDE];
        for row in 0..SIDE {
            for k in 0..SIDE {
                turned[k * SIDE + row] = numbers[row * SIDE + k];
            }
        }
        let across = Mat::strided(&turned, depth, rows, SIDE).t();
        for mat in [mat, across] {
            let (mut left, mut right) = ([[f32::MAX; WORDS]], [[f32::MAX; WORDS]]);
            left_strips(&mut left, mat, &(0..rows), &(0..depth));
            right_panel(&mut right, &[mat.t()], 0);
            for row in 0..SIDE {
                for k in 0..SIDE {
                    let inside = row < rows && k < depth;
                    let expected = if inside { expected(row, k) } else { 0 };
                    let half = |word: f32| (word.to_bits() >> (16 * (k % 2))) as u16;
                    let word = left[0][row * TILE + k / 2];
                    assert_eq!(half(word), expected, "left {row} {k} of {rows} x {depth}");
                    let word = right[0][(row / TILE * TILE + k / 2) * TILE + row % TILE];
                    assert_eq!(half(word), expected, "right {row} {k} of {rows} x {depth}");
                }
            }
        }
    }
}

#[test]
fn what_is_no_number_reaches_the_sums_of_its_own_row_and_no_other() {
    for kernel in kernels() {
        let pool = pool(kernel);
        let mut left = draw(40 * 40, 23);
        (left[3 * 40 + 7], left[35 * 40 + 39]) = (f32::NAN, f32::INFINITY);
        let b = Operand::new((40, 33), 0, true, 24);
        let right = Right::beside(&pool, &[b.mat()]);
        let mut c = vec![0.0; 40 * 33];
        let into = MatMut::new(&mut c, 40, 33);
        multiply(into, Mat::new(&left, 40, 40), &right, Start::Zero, Extras::default());
        for (row, numbers) in c.chunks_exact(33).enumerate() {
            let is_finite = numbers.iter().all(|x| x.is_finite());
            assert_eq!(is_finite, row != 3 && row != 35, "{kernel:?} row {row}");
        }
    }
}

fn random_blocks(count: usize, seed: u64, scale: f32) -> Vec<Block> {
    let mut generator = Seed(seed).generator();
    let mut half = || {
        let x = (2.0 * generator.uniform() - 1.0) as f32 * scale;
        x.to_bits() >> 16
    };
    let block = |_| std::array::from_fn(|_| f32::from_bits(half() | half() << 16));
    (0..count).map(block).collect()
}

/// The product in parallel and serially, into a destination with gaps between its rows.
fn check(kernel: TileKernel, a: &Operand, b: &Operand, gap: usize) {
    let ((rows, _), (_, cols)) = (a.shape, b.shape);
    let pool = pool(kernel);
    let right = Right::beside(&pool, &[b.mat()]);
    let stride = cols + gap;
    let mut c = vec![UNTOUCHED; rows * stride];
    let into = MatMut::strided(&mut c, rows, cols, stride);
    multiply(into, a.mat(), &right, Start::Zero, Extras::default());
    compare(&c, stride, a, b, |_, _| 0.0);
    let (mut serial, mut scratch) = (vec![UNTOUCHED; rows * stride], pool.take(0));
    let into = MatMut::strided(&mut serial, rows, cols, stride);
    multiply_serial(into, a.mat(), &right, Start::Zero, &mut scratch);
    assert_eq!(bits(&serial), bits(&c), "{kernel:?}");
}

fn compare(
    c: &[f32],
    stride: usize,
    a: &Operand,
    b: &Operand,
    start: impl Fn(usize, usize) -> f64,
) {
    let rounded = |x: f32| {
        let (mut half, mut wide) = ([0], [0.0]);
        bf16::narrow(&mut half, &[x]);
        bf16::widen(&mut wide, &half);
        f64::from(wide[0])
    };
    let ((rows, depth), (_, cols)) = (a.shape, b.shape);
    let (a, b) = (a.mat(), b.mat());
    for row in 0..rows {
        let left: Vec<f64> = (0..depth).map(|k| rounded(at(a, row, k))).collect();
        for col in 0..cols {
            let (mut expected, mut magnitude) = (start(row, col), start(row, col).abs());
            for (k, left) in left.iter().enumerate() {
                let term = left * rounded(at(b, k, col));
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
