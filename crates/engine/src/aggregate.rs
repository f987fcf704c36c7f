//! How the changes of clients become one change of the model.
//!
//! Each part is a value that a recipe chooses; the order in which they see an update is the
//! aggregator's (`round/aggregator.rs`), the only one who holds them all.

pub(crate) mod adapter_mean;
pub(crate) mod attention;
pub(crate) mod drift;
pub(crate) mod fold;
pub(crate) mod max_norm;
pub(crate) mod server;
