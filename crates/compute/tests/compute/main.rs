//! The compute core against PyTorch, against finite differences, and against its own promises.

#![forbid(unsafe_code)]

mod bf16;
mod bf16_products;
mod bounds;
mod by_example;
mod chain;
mod cuda;
mod decomposed;
mod draw;
mod errors;
mod finite_differences;
mod golden;
mod memory;
mod optimiser;
mod probe;
mod quantised;
mod scope;
mod structure;
mod threads;
mod trainer;
