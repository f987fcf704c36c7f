//! The compute core against PyTorch, against finite differences, and against its own promises.

mod chain;
mod draw;
mod errors;
mod golden;
mod memory;
mod optimiser;
mod probe;
mod scope;
mod slopes;
mod threads;
