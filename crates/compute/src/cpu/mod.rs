//! Kernels for the processor: plain slices in, plain slices out, no tape and no tensors.
//!
//! Work is cut into tasks whose arithmetic does not depend on how many threads run them, so every
//! result is the same to the bit on one thread and on sixty-four.

pub mod attention;
pub mod elementwise;
pub mod losses;
pub mod math;
pub mod matmul;
pub mod norm;
pub mod pattern;
pub mod rotary;
pub mod rows;
pub mod shared;
pub mod simd;
pub mod swiglu;
