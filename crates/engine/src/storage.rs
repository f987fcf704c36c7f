//! What outlives a round without being the model: client state, and the files that hold what does not fit in memory.
//!
//! Nothing here knows a recipe or a round, so a checkpoint, a ledger and updates that wait use the same files.

pub(crate) mod client_state;
pub(crate) mod optimiser_state;
pub(crate) mod scratch;
pub(crate) mod sections;
pub(crate) mod state_store;
