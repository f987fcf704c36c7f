//! Hugging Face model folders in and out: `config.json`, `model.safetensors` (or its shards), the
//! tokenizer. No tensor library takes part; values enter and leave as slices of f32 under a
//! `ParamId`.
//!
//! A folder may come from anyone, so each file is checked against its real length before memory is
//! taken for it, and an error names the file, the parameter or key, what was found and what was
//! expected.
//!
//! ```text
//! config.json -------------> Config ---\
//! model*.safetensors ------> Weights ---> Checkpoint --find(Layout)--> Found --> (ParamId, values)
//! tokenizer.json and more -> Companions
//!
//! Folder { config, architecture, precision, companions }.save(dir, layout, values)
//! ```

pub mod checkpoint;
pub mod folder;
pub mod trained;

pub mod companions;
pub mod config;
pub mod names;

pub mod safetensors;
pub mod tensors;
pub mod weights;
pub mod writer;

pub mod dtype;
pub(crate) mod file;
pub(crate) mod header;
mod unique;

pub use crate::config::Config;
pub use checkpoint::{Checkpoint, Found};
pub use companions::Companions;
pub use config::{Labels, Problem};
pub use dtype::Precision;
pub use folder::Folder;
pub use names::{Answers, Architecture};
pub use tensors::Tensors;
pub use trained::{HeadFit, TrainedHead, WhyFresh};
pub use weights::Weights;

pub use ::safetensors::Dtype;
