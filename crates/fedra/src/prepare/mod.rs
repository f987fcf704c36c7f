//! What a run starts from: each client's rows, the tokenizer, the model, and digests of all of them.

pub mod baseline;
pub mod chat;
mod classes;
pub mod client_counts;
pub mod data_notes;
pub mod fingerprint;
pub mod generation_config;
pub mod hub;
mod inputs;
pub mod partitioned_data;
pub mod prepared;
pub mod pretrained;
pub(crate) mod public_text;
pub mod row_cache;
pub(crate) mod stored_weights;
pub mod token_lengths;
pub mod turn_totals;
pub(crate) mod untrained;
