//! A file, opened as the folder that it stands for.

use std::path::Path;

use super::llama::{self, LlamaTensors};
use super::reader::Reader;
use super::tokenizer;
use crate::error::ModelError;
use crate::hf::{Checkpoint, Config, Weights};

/// What a file says the model is; only its header is read.
pub(crate) fn config(path: &Path) -> Result<Config, ModelError> {
    llama::config(&Reader::open(path)?)
}

/// The whole file: its tensors under their names in a folder, and its tokenizer.
pub(crate) fn open(path: &Path) -> Result<Checkpoint, ModelError> {
    let mut reader = Reader::open(path)?;
    let config = llama::config(&reader)?;
    let companions = tokenizer::companions(&reader, &config)?;
    reader.forget_metadata();
    let tensors = LlamaTensors::new(reader, &config)?;
    Ok(Checkpoint::new(config, Weights::single(Box::new(tensors)), companions))
}
