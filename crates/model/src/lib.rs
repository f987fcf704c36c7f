//! Transformers as federated learning needs them.
//!
//! A [`Model`] is structure without numbers: it runs with any [`Params`](fedra_compute::Params) over
//! any range of its blocks, so it can be cut between parties, started from a cached frozen prefix, or
//! probed block by block. Sequences are packed without padding ([`Batch`]), so nothing a padded token
//! could do can change a result.
//!
//! Blocks see hidden states and a [`Packing`], never a token id.
//!
//! Reading order: a [`Config`] says what blocks are made of, and each family has a file that reads it;
//! a [`Batch`] goes through the blocks into a [`Head`]; [`Model`] ties them together and knows its parameters' [`Layout`](fedra_plan::Layout); [`hf`] reads and writes folders,
//! [`gguf`] reads a single file as if it were one, and [`peft`] reads and writes adapters alone.

#![forbid(unsafe_code)]

mod batch;
mod block;
mod cache;
mod candidates;
mod config;
mod config_json;
mod embedding;
mod families;
mod family;
mod head;
mod image_input;
mod interpolation;
mod logits;
mod lora;
mod loss;
mod model;
mod packing;
mod parts;
mod prefix;
mod probe;
mod reading;

mod classifier;
mod init;
mod layout;
mod load_report;
mod preset;
mod store;
mod weight_storage;

pub mod error;
pub mod gguf;
pub mod hf;
pub mod peft;

pub use batch::Batch;
pub use cache::KeyValueCache;
pub use candidates::{Candidate, RandomSampling};
pub use classifier::Classifier;
pub use config::{
    AttentionBias, ClassifierHead, ClassifierLayers, Config, LanguageHead, LongRope, Mlp, Norm,
    NormKind, NormPlace, Pooling, Positions, QkNorm, Rope, RopeScaling, Window,
};
pub use error::ModelError;
pub use family::{ClassKind, Family};
pub use head::Head;
pub use image_input::ImageInput;
pub use load_report::{Fresh, LoadReport};
pub use logits::{first_nan, highest, log_sum_exp, rows_of_each, sigmoid, softmax};
pub use lora::Adapters;
pub use loss::{Targets, Weighted};
pub use model::Model;
pub use packing::Packing;
pub use prefix::PrefixCache;
pub use preset::Preset;
pub use probe::{BlockProbe, Queries, Relevant};
pub use reading::Reading;
pub use store::{
    Loaded, Saving, Wanted, load, load_checkpoint, load_part, load_part_as, open_checkpoint,
    open_config, save,
};
pub use weight_storage::WeightStorage;
