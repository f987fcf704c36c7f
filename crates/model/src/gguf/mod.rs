//! One GGUF file (versions 2 and 3, any decoder family) as a model: configuration, weights and tokenizer.
//!
//! The file is shown in the terms of a Hugging Face folder: the configuration is checked by the
//! same rules, tensors have the folder's names and row order, and the tokenizer is a
//! `tokenizer.json`. So everything that takes a folder takes a file, and nothing behind
//! [`Checkpoint`](crate::hf::Checkpoint) knows which of the two it was. Quantised blocks are read
//! as f32, which is exact: each is a few integers under a scale.
//!
//! A file may come from anyone: every count is compared with the bytes that are there and with a
//! limit before memory is taken for it.
//!
//! ```text
//! | "GGUF" | version | counts | metadata: key, type, value .. | tensors: name, dims, type, offset .. |
//! | padding | data: each tensor at its offset, a multiple of the alignment                          |
//!
//! Cursor -> Metadata -> config, tokenizer      (architecture.rs, config_json.rs, rope.rs, tokenizer.rs)
//!        -> Placed   -> Reader::read_f32       (placed.rs, reader.rs, block.rs)
//!                    -> names and row order    (tensors.rs)
//! ```

mod architecture;
mod block;
mod checkpoint;
mod config_json;
mod convert;
mod cursor;
mod metadata;
mod placed;
mod reader;
mod rope;
mod tensors;
mod tokenizer;

pub use block::BlockType;
pub use convert::convert;
pub use reader::Reader;

pub(crate) use checkpoint::{config, open};
