//! The inner kernel: one tile of `h` x [`WIDTH`] sums kept in registers over the whole depth block.
//!
//! Fourteen rows by thirty-two columns fill 28 of the 32 AVX-512 registers with accumulators and
//! leave room for two loads and a broadcast, which keeps both multiply-add units busy.

use crate::cpu::simd::{Level, level};

/// Columns of a tile.
pub const WIDTH: usize = 32;
/// Most rows of a tile.
pub const HEIGHT: usize = 14;

/// One tile's work: `c = start + a * b`, where `start` is the sum of up to two row sources.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    pub depth: usize,
    /// Left rows; element `(r, k)` is at `r * a_strides.0 + k * a_strides.1`.
    pub a: *const f32,
    /// Row and depth distances: `(1, height)` in a packed panel, `(row length, 1)` in place.
    pub a_strides: (usize, usize),
    /// Right panel: row `k` is the `WIDTH` floats at `k * b_stride`.
    pub b: *const f32,
    /// Distance between the panel's rows: `WIDTH` when packed.
    pub b_stride: usize,
    /// Destination, `cols` wide.
    pub c: *mut f32,
    /// Distance between destination rows.
    pub c_stride: usize,
    /// Valid columns, at most `WIDTH`.
    pub cols: usize,
    /// Row sources that the sums start from; null means zero, stride 0 repeats one row.
    pub starts: [(*const f32, usize); 2],
}

/// Runs a tile of `height` rows.
///
/// # Safety
/// Every pointer of `tile` must be valid for the rows and columns that the tile covers.
pub unsafe fn run(height: usize, tile: &Tile) {
    macro_rules! heights {
        ($($kernel:ident)::+) => {
            // SAFETY: the caller vouches for the pointers and `level` for the instructions.
            unsafe {
                match height {
                    1 => $($kernel)::+::<1>(tile),
                    2 => $($kernel)::+::<2>(tile),
                    3 => $($kernel)::+::<3>(tile),
                    4 => $($kernel)::+::<4>(tile),
                    5 => $($kernel)::+::<5>(tile),
                    6 => $($kernel)::+::<6>(tile),
                    7 => $($kernel)::+::<7>(tile),
                    8 => $($kernel)::+::<8>(tile),
                    9 => $($kernel)::+::<9>(tile),
                    10 => $($kernel)::+::<10>(tile),
                    11 => $($kernel)::+::<11>(tile),
                    12 => $($kernel)::+::<12>(tile),
                    13 => $($kernel)::+::<13>(tile),
                    14 => $($kernel)::+::<14>(tile),
                    _ => unreachable!("a panel has 1 to {HEIGHT} rows, not {height}"),
                }
            }
        };
    }
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => heights!(x86::wide),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => heights!(x86::narrow),
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx512 | Level::Avx2 => heights!(plain),
        Level::Baseline => heights!(plain),
    }
}

/// The same tile in plain Rust: the definition that the vector kernels are tested against.
///
/// # Safety
/// As for [`run`].
pub(super) unsafe fn plain<const H: usize>(tile: &Tile) {
    let mut sums = [[0f32; WIDTH]; H];
    // SAFETY: the caller vouches that every row and column of the tile is readable and writable.
    unsafe {
        for (r, row) in sums.iter_mut().enumerate() {
            for (pointer, stride) in tile.starts {
                if !pointer.is_null() {
                    for (c, sum) in row[..tile.cols].iter_mut().enumerate() {
                        *sum += *pointer.add(r * stride + c);
                    }
                }
            }
        }
        for k in 0..tile.depth {
            for (r, row) in sums.iter_mut().enumerate() {
                let x = *tile.a.add(r * tile.a_strides.0 + k * tile.a_strides.1);
                for (c, sum) in row.iter_mut().enumerate() {
                    *sum = x.mul_add(*tile.b.add(k * tile.b_stride + c), *sum);
                }
            }
        }
        for (r, row) in sums.iter().enumerate() {
            for (c, sum) in row[..tile.cols].iter().enumerate() {
                *tile.c.add(r * tile.c_stride + c) = *sum;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use crate::cpu::matmul::kernel::{HEIGHT, Tile, WIDTH};
    use core::arch::x86_64::{
        _MM_HINT_T0, _mm_prefetch, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps,
        _mm256_setzero_ps, _mm256_storeu_ps, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
        _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps,
    };

    /// # Safety
    /// AVX-512 must be present and the tile's pointers valid.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn wide<const H: usize>(tile: &Tile) {
        let low = mask(tile.cols);
        let high = mask(tile.cols.saturating_sub(16));
        let mut sums = [[_mm512_setzero_ps(); 2]; HEIGHT];
        // SAFETY: masked loads and stores touch only the tile's valid columns; the left rows and
        // the right panel hold `depth` entries each.
        unsafe {
            for (pointer, stride) in tile.starts {
                if !pointer.is_null() {
                    for (r, sum) in sums[..H].iter_mut().enumerate() {
                        let row = pointer.add(r * stride);
                        sum[0] = _mm512_add_ps(sum[0], _mm512_maskz_loadu_ps(low, row));
                        sum[1] = _mm512_add_ps(
                            sum[1],
                            _mm512_maskz_loadu_ps(high, row.wrapping_add(16)),
                        );
                    }
                }
            }
            let (row, step) = tile.a_strides;
            // Every third row gets a pointer; its neighbours are reached by address arithmetic.
            let mut a = [tile.a; HEIGHT.div_ceil(3)];
            for (i, pointer) in a.iter_mut().enumerate() {
                *pointer = pointer.wrapping_add(3 * i * row);
            }
            let mut b = tile.b;
            for _ in 0..tile.depth {
                let left = _mm512_loadu_ps(b);
                let right = _mm512_loadu_ps(b.add(16));
                _mm_prefetch::<_MM_HINT_T0>(b.wrapping_add(8 * tile.b_stride).cast());
                _mm_prefetch::<_MM_HINT_T0>(b.wrapping_add(8 * tile.b_stride + 16).cast());
                // Written out, because every sum must stay in its register.
                macro_rules! rows {
                    ($($r:literal)*) => {
                        $(if $r < H {
                            let x = _mm512_set1_ps(*a[$r / 3].add($r % 3 * row));
                            sums[$r][0] = _mm512_fmadd_ps(x, left, sums[$r][0]);
                            sums[$r][1] = _mm512_fmadd_ps(x, right, sums[$r][1]);
                        })*
                    };
                }
                rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
                // Not `map`, which is a call in a build with several codegen units: it would spill every sum.
                for pointer in &mut a {
                    *pointer = pointer.wrapping_add(step);
                }
                b = b.wrapping_add(tile.b_stride);
            }
            for (r, sum) in sums[..H].iter().enumerate() {
                let row = tile.c.add(r * tile.c_stride);
                _mm512_mask_storeu_ps(row, low, sum[0]);
                _mm512_mask_storeu_ps(row.wrapping_add(16), high, sum[1]);
            }
        }
    }

    /// The low `min(cols, 16)` lanes.
    fn mask(cols: usize) -> u16 {
        if cols >= 16 { u16::MAX } else { (1 << cols) - 1 }
    }

    /// AVX2 has half the width and half the registers, so the tile is walked in strips of four
    /// rows by sixteen columns.
    ///
    /// # Safety
    /// AVX2 and FMA must be present and the tile's pointers valid.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn narrow<const H: usize>(tile: &Tile) {
        let mut sums = [0f32; HEIGHT * WIDTH];
        // SAFETY: the caller vouches for the tile's pointers; `sums` covers every padded column.
        unsafe {
            for (pointer, stride) in tile.starts {
                if !pointer.is_null() {
                    for r in 0..H {
                        for c in 0..tile.cols {
                            sums[r * WIDTH + c] += *pointer.add(r * stride + c);
                        }
                    }
                }
            }
            for half in [0, 16] {
                let mut r = 0;
                while r + 4 <= H {
                    strip::<4>(tile, r, half, &mut sums);
                    r += 4;
                }
                while r < H {
                    strip::<1>(tile, r, half, &mut sums);
                    r += 1;
                }
            }
            for r in 0..H {
                for c in 0..tile.cols {
                    *tile.c.add(r * tile.c_stride + c) = sums[r * WIDTH + c];
                }
            }
        }
    }

    /// # Safety
    /// As for [`narrow`]; rows `first .. first + R` lie inside the tile.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn strip<const R: usize>(tile: &Tile, first: usize, half: usize, sums: &mut [f32]) {
        let mut held = [[_mm256_setzero_ps(); 2]; R];
        // SAFETY: `first + R <= H` and `half + 16 <= WIDTH`, so all reads stay in the packed panels.
        unsafe {
            for (r, sum) in held.iter_mut().enumerate() {
                let at = sums.as_ptr().add((first + r) * WIDTH + half);
                *sum = [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))];
            }
            let (row, step) = tile.a_strides;
            for k in 0..tile.depth {
                let b = tile.b.add(k * tile.b_stride + half);
                let (left, right) = (_mm256_loadu_ps(b), _mm256_loadu_ps(b.add(8)));
                for (r, sum) in held.iter_mut().enumerate() {
                    let x = _mm256_broadcast_ss(&*tile.a.add((first + r) * row + k * step));
                    sum[0] = _mm256_fmadd_ps(x, left, sum[0]);
                    sum[1] = _mm256_fmadd_ps(x, right, sum[1]);
                }
            }
            for (r, sum) in held.iter().enumerate() {
                let row = sums.as_mut_ptr().add((first + r) * WIDTH + half);
                _mm256_storeu_ps(row, sum[0]);
                _mm256_storeu_ps(row.add(8), sum[1]);
            }
        }
    }
}
