//! What a run will cost, before it starts: bytes by round, memory by party, privacy by client, and the cuts that fit.

pub mod cutting;
pub mod gpu_memory;
pub(crate) mod largest_batches;
pub mod memory;
pub mod private;
pub mod run_memory;
pub mod state_placement;
pub mod state_size;
pub mod traffic;
