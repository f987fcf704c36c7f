//! What a run will cost, before it starts: bytes by round, memory by party, privacy by client, and the cuts that fit.

pub(crate) mod activations;
pub(crate) mod cut_memory;
pub mod cutting;
pub mod memory;
pub mod private;
pub mod run_memory;
pub mod state_placement;
pub mod state_size;
pub mod traffic;
