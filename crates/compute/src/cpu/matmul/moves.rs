//! The moves that packing is made of, in vector registers where the processor allows.
//!
//! Element by element, packing costs as much as a tenth of the product it prepares. Here a transpose
//! goes sixteen by sixteen through registers, and short runs are copied by one masked instruction
//! instead of a call.

use crate::cpu::simd::{Level, level};

/// Rows that one call may transpose.
pub const ROWS: usize = 16;

/// `into[k * into_stride + r] = from[r * from_stride + k]` for `r < rows`, `k < depth`.
pub fn transpose(
    into: &mut [f32],
    into_stride: usize,
    from: &[f32],
    from_stride: usize,
    (rows, depth): (usize, usize),
) {
    if rows == 0 || depth == 0 {
        return;
    }
    assert!(rows <= ROWS && rows <= into_stride);
    assert!((depth - 1) * into_stride + rows <= into.len());
    assert!((rows - 1) * from_stride + depth <= from.len());
    let whole = match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            let whole = depth - depth % 16;
            // SAFETY: AVX-512 is present, and the bounds were checked above.
            unsafe {
                x86::transpose(
                    into.as_mut_ptr(),
                    into_stride,
                    from.as_ptr(),
                    from_stride,
                    rows,
                    whole,
                );
            }
            whole
        }
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx512 => 0,
        Level::Avx2 | Level::Baseline => 0,
    };
    plain(into, into_stride, from, from_stride, rows, whole..depth);
}

fn plain(
    into: &mut [f32],
    into_stride: usize,
    from: &[f32],
    from_stride: usize,
    rows: usize,
    depth: std::ops::Range<usize>,
) {
    for k in depth {
        let column = &mut into[k * into_stride..][..rows];
        for (r, x) in column.iter_mut().enumerate() {
            *x = from[r * from_stride + k];
        }
    }
}

/// Cuts `rows` columns of a row-major matrix into strips: strip `i` begins at `strips[i]`, is
/// `height` wide up to the next one, and is stored as `into[strips[i] * depth + k * height + r]`.
///
/// Each row is read once from end to end; reading strip by strip would fetch every cache line twice.
/// The sum of column `c` is added to `sums[c]` on the way: that is a bias gradient.
pub fn cut_strips(
    into: &mut [f32],
    from: &[f32],
    stride: usize,
    (strips, depth): (&[usize], usize),
    sums: Option<&mut [f32]>,
) {
    let rows = *strips.last().expect("strips end with their total");
    if rows == 0 || depth == 0 {
        return;
    }
    assert!(rows * depth <= into.len() && (depth - 1) * stride + rows <= from.len());
    assert!(strips.windows(2).all(|pair| pair[0] <= pair[1] && pair[1] - pair[0] <= ROWS));
    assert!(sums.as_ref().is_none_or(|sums| sums.len() == rows));
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            let sums = sums.map_or(std::ptr::null_mut(), <[f32]>::as_mut_ptr);
            // SAFETY: AVX-512 is present, and the bounds were checked above.
            unsafe {
                x86::cut_strips(into.as_mut_ptr(), from.as_ptr(), stride, (strips, depth), sums);
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx512 => plain_strips(into, from, stride, (strips, depth), sums),
        Level::Avx2 | Level::Baseline => plain_strips(into, from, stride, (strips, depth), sums),
    }
}

fn plain_strips(
    into: &mut [f32],
    from: &[f32],
    stride: usize,
    (strips, depth): (&[usize], usize),
    mut sums: Option<&mut [f32]>,
) {
    for k in 0..depth {
        for pair in strips.windows(2) {
            let height = pair[1] - pair[0];
            let source = &from[k * stride + pair[0]..][..height];
            into[pair[0] * depth + k * height..][..height].copy_from_slice(source);
            if let Some(sums) = &mut sums {
                for (sum, x) in sums[pair[0]..pair[1]].iter_mut().zip(source) {
                    *sum += x;
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use core::arch::x86_64::{
        __m512, _mm512_add_ps, _mm512_castpd_ps, _mm512_castps_pd, _mm512_loadu_ps,
        _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4,
        _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
    };

    /// # Safety
    /// AVX-512 must be present; `depth` is a multiple of 16; all accesses must be in bounds.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn transpose(
        into: *mut f32,
        into_stride: usize,
        from: *const f32,
        from_stride: usize,
        rows: usize,
        depth: usize,
    ) {
        let mask = if rows >= 16 { u16::MAX } else { (1 << rows) - 1 };
        for k in (0..depth).step_by(16) {
            let mut block = [_mm512_setzero_ps(); 16];
            for (r, row) in block.iter_mut().enumerate() {
                if r < rows {
                    // SAFETY: row `r` holds `depth` floats from its start.
                    *row = unsafe { _mm512_loadu_ps(from.add(r * from_stride + k)) };
                }
            }
            let columns = sixteen(block);
            for (i, column) in columns.into_iter().enumerate() {
                // SAFETY: the mask keeps the store to the `rows` floats of column `k + i`.
                unsafe { _mm512_mask_storeu_ps(into.add((k + i) * into_stride), mask, column) };
            }
        }
    }

    /// # Safety
    /// AVX-512 must be present; strips are at most 16 wide; all accesses must be in bounds; `sums`
    /// is null or has a float per row.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn cut_strips(
        into: *mut f32,
        from: *const f32,
        stride: usize,
        (strips, depth): (&[usize], usize),
        sums: *mut f32,
    ) {
        for k in 0..depth {
            for pair in strips.windows(2) {
                let height = pair[1] - pair[0];
                let mask = if height >= 16 { u16::MAX } else { (1 << height) - 1 };
                // SAFETY: masked accesses touch the `height` floats of this strip and no more.
                unsafe {
                    let column = _mm512_maskz_loadu_ps(mask, from.add(k * stride + pair[0]));
                    _mm512_mask_storeu_ps(into.add(pair[0] * depth + k * height), mask, column);
                    if !sums.is_null() {
                        let sum = sums.add(pair[0]);
                        let total = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, sum), column);
                        _mm512_mask_storeu_ps(sum, mask, total);
                    }
                }
            }
        }
    }

    /// The transpose of a sixteen by sixteen block held in registers.
    #[inline]
    #[target_feature(enable = "avx512f")]
    #[expect(clippy::large_types_passed_by_value, reason = "inlined, the rows stay in registers")]
    pub fn sixteen(rows: [__m512; 16]) -> [__m512; 16] {
        let zero = _mm512_setzero_ps();
        let mut pairs = [zero; 16];
        for i in 0..8 {
            pairs[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
            pairs[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
        }
        let low =
            |a, b| _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
        let high =
            |a, b| _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
        // quads[4 g + j] holds, per 128-bit lane L, column 4 L + j of rows 4 g .. 4 g + 4.
        let mut quads = [zero; 16];
        for g in 0..4 {
            quads[4 * g] = low(pairs[4 * g], pairs[4 * g + 2]);
            quads[4 * g + 1] = high(pairs[4 * g], pairs[4 * g + 2]);
            quads[4 * g + 2] = low(pairs[4 * g + 1], pairs[4 * g + 3]);
            quads[4 * g + 3] = high(pairs[4 * g + 1], pairs[4 * g + 3]);
        }
        let mut columns = [zero; 16];
        for j in 0..4 {
            let even_low = _mm512_shuffle_f32x4::<0x88>(quads[j], quads[4 + j]);
            let odd_low = _mm512_shuffle_f32x4::<0xdd>(quads[j], quads[4 + j]);
            let even_high = _mm512_shuffle_f32x4::<0x88>(quads[8 + j], quads[12 + j]);
            let odd_high = _mm512_shuffle_f32x4::<0xdd>(quads[8 + j], quads[12 + j]);
            columns[j] = _mm512_shuffle_f32x4::<0x88>(even_low, even_high);
            columns[8 + j] = _mm512_shuffle_f32x4::<0xdd>(even_low, even_high);
            columns[4 + j] = _mm512_shuffle_f32x4::<0x88>(odd_low, odd_high);
            columns[12 + j] = _mm512_shuffle_f32x4::<0xdd>(odd_low, odd_high);
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transpose_moves_every_element_at_odd_sizes() {
        for rows in 1..=ROWS {
            for depth in [1, 2, 15, 16, 17, 33, 64] {
                let from: Vec<f32> = (0..rows * (depth + 3)).map(|i| i as f32).collect();
                let stride = rows + 5;
                let mut into = vec![-1.0; depth * stride];
                transpose(&mut into, stride, &from, depth + 3, (rows, depth));
                for k in 0..depth {
                    for r in 0..stride {
                        let expected = if r < rows { from[r * (depth + 3) + k] } else { -1.0 };
                        assert_eq!(into[k * stride + r], expected, "rows {rows} depth {depth}");
                    }
                }
            }
        }
    }
}
