//! The inner kernel of bf16 products: blocks of 32 x 32 sums, and operands in blocks of 32 x 32.
//!
//! A block of an operand is two tiles of 16 rows of 16 words, and a word is two bf16 that are
//! neighbours along the depth. On the left a row of a tile is a row of the matrix; on the right a row
//! is a pair of rows, and a word belongs to a column. Words are stored as the bits of f32, because
//! that is what pools hold; they are moved and never computed with.
//!
//! ```text
//! left  word[r][p] = (a[r][2 p], a[r][2 p + 1])         r < 32, p < 16
//! right word[h][p][c] = (b[2 p][16 h + c], b[2 p + 1][16 h + c])    h < 2
//! ```
//!
//! Over a block's depth, products with even and odd places are summed apart, starting at zero, each
//! one chain of multiply-adds; then both are added to the sum. That is how AMX is defined, so AMX
//! differs from [`plain`] only where numbers are below the smallest normal one, which it takes as zero.
//! AVX-512 adds in another order: both agree within `2^-23 (d + 2)` of the sum of magnitudes for depth `d`.

#![expect(
    clippy::inline_always,
    reason = "a call inside a loop would keep it from being vectorised"
)]

use crate::cpu::amx::{self, Configured};
use crate::cpu::bf16_products::TileKernel;
use crate::cpu::simd::vectorised;

/// Rows, columns and depth of a block.
pub const SIDE: usize = 32;
/// Rows and words in a row of a tile.
pub const TILE: usize = SIDE / 2;
/// Words of a block of an operand.
pub const WORDS: usize = SIDE * TILE;

/// A block of an operand.
pub type Block = [f32; WORDS];
/// A block of sums.
pub type Sums = [f32; SIDE * SIDE];

/// A kernel that is ready on this thread.
#[derive(Debug)]
pub enum Ready {
    Amx(Configured),
    Avx512,
    Plain,
}

impl Ready {
    pub fn new(kernel: TileKernel) -> Self {
        match kernel {
            TileKernel::Amx => Self::Amx(Configured::new()),
            TileKernel::Avx512 => Self::Avx512,
            TileKernel::Plain => Self::Plain,
        }
    }

    /// `into = from + a * b`, or `a * b` where `from` is null.
    ///
    /// # Safety
    /// `from`, if there is one, and `into` must be 32 rows of 32 floats, so many floats apart, which
    /// nobody else writes meanwhile.
    pub unsafe fn multiply(
        &self,
        (a, b): (&[Block], &[Block]),
        (from, from_stride): (*const f32, usize),
        (into, stride): (*mut f32, usize),
    ) {
        assert_eq!(a.len(), b.len(), "operands have the same depth");
        let run = match self {
            Self::Amx(tiles) => {
                let operands = (a.as_ptr().cast(), b.as_ptr().cast(), a.len());
                // SAFETY: the caller vouches for `from` and `into`; the blocks are slices.
                return unsafe {
                    amx::tiles(tiles, operands, (from, from_stride), (into, stride));
                };
            }
            Self::Avx512 => amx::dot_products,
            Self::Plain => plain,
        };
        let mut sums: Sums = [0.0; SIDE * SIDE];
        for (r, row) in sums.chunks_exact_mut(SIDE).enumerate().filter(|_| !from.is_null()) {
            // SAFETY: the caller vouches for these rows.
            let from = unsafe { std::slice::from_raw_parts(from.add(r * from_stride), SIDE) };
            row.copy_from_slice(from);
        }
        run(a, b, &mut sums);
        for (r, row) in sums.chunks_exact(SIDE).enumerate() {
            // SAFETY: the caller vouches for these rows, and no other reference to them is left.
            let into = unsafe { std::slice::from_raw_parts_mut(into.add(r * stride), SIDE) };
            into.copy_from_slice(row);
        }
    }
}

/// The two numbers of a word.
#[inline(always)]
fn halves(word: f32) -> [f32; 2] {
    let bits = word.to_bits();
    [f32::from_bits(bits << 16), f32::from_bits(bits & 0xffff_0000)]
}

vectorised! {
    /// The definition: `sums += a * b`.
    pub fn plain(a: &[Block], b: &[Block], sums: &mut Sums) {
        for i in 0..a.len() {
            for r in 0..SIDE {
                for h in 0..2 {
                    let (mut even, mut odd) = ([0f32; TILE], [0f32; TILE]);
                    for p in 0..TILE {
                        let x = halves(a[i][r * TILE + p]);
                        for c in 0..TILE {
                            let y = halves(b[i][(h * TILE + p) * TILE + c]);
                            even[c] = x[0].mul_add(y[0], even[c]);
                            odd[c] = x[1].mul_add(y[1], odd[c]);
                        }
                    }
                    for c in 0..TILE {
                        sums[r * SIDE + h * TILE + c] += even[c] + odd[c];
                    }
                }
            }
        }
    }
}
