//! Whole models: against the golden values of another library, against their own laws, and through
//! folders.
//!
//! Reading order: [`formula`] makes the numbers of the golden files ([`golden`]), a [`step`] runs a
//! model on them, and [`agreement`] says how far apart two answers may be. The rest are tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agreement;
mod formula;
mod golden;
mod step;

mod checkpoints;
mod tiny;

mod by_example;
mod decoding;
mod formats;
mod greedy;
mod packing;
mod prefix;
mod ranges;
mod scopes;
mod threads;
mod weighted;

mod head_adapters;
mod lora;
mod peft;

mod folders;
mod heads;
mod hf_config;
mod hf_folder;
mod hf_safetensors;
mod hf_weights;
mod images;
mod refusals;
mod transformers;

mod gguf;
mod gguf_decoder;
mod gguf_families;
mod gguf_writer;
