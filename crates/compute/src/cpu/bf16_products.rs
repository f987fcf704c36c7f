//! How the processor multiplies matrices: with f32 operands, or with operands rounded to bf16.
//!
//! Sums are f32 either way. A pool of memory says which ([`Pool::products`](crate::Pool)), because
//! every tensor knows its pool.

use super::amx::{self, NoBf16};

/// The operands of the processor's matrix products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Products {
    /// f32, each element one chain of multiply-adds.
    #[default]
    F32,
    /// Rounded to bf16, multiplied in blocks by one of several kernels.
    Bf16(TileKernel),
}

/// What multiplies blocks of bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileKernel {
    /// The tile registers of AMX.
    Amx,
    /// The dot products of AVX-512.
    Avx512,
    /// Plain Rust: the definition that the others are compared with.
    Plain,
}

impl TileKernel {
    /// The best one of this processor, if it has one at all.
    pub fn of_this_processor() -> Result<Self, NoBf16> {
        match amx::permitted() {
            Ok(()) => Ok(Self::Amx),
            Err(_) if amx::has_fast_dot_products() => Ok(Self::Avx512),
            Err(reason) => Err(reason),
        }
    }
}
