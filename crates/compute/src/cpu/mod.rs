//! Kernels for the processor: plain slices in, plain slices out. Only [`kernels`](crate::kernels) calls
//! them, with shapes that have been checked.
//!
//! Work is cut into tasks whose arithmetic does not depend on how many threads run them, so every
//! result is the same to the bit on one thread and on sixty-four.

pub mod activation;
pub mod amx;
pub mod attention;
pub mod attention_inputs;
pub mod bf16;
pub mod bf16_products;
pub mod cached_attention;
pub mod columns;
pub mod elementwise;
pub mod example_squares;
pub mod linear;
pub mod losses;
pub mod math;
pub mod matmul;
pub mod norm;
pub mod pattern;
pub mod quantised;
pub mod rotary;
pub mod row_norms;
pub mod rows;
pub mod shared;
pub mod simd;
pub mod solver;
pub mod vocabulary;
