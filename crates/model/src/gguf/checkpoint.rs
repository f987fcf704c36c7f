//! A file, opened as the folder that it stands for.

use std::path::Path;

use super::architecture::Architecture;
use super::reader::Reader;
use super::tensors::DecoderTensors;
use super::{config_json, tokenizer};
use crate::error::ModelError;
use crate::hf::{Checkpoint, Config, Weights};

/// What a file says the model is; only its header is read.
pub(crate) fn config(path: &Path) -> Result<Config, ModelError> {
    config_json::config(&Reader::open(path)?)
}

/// The whole file: its tensors under their names in a folder, and its tokenizer.
pub(crate) fn open(path: &Path) -> Result<Checkpoint, ModelError> {
    let mut reader = Reader::open(path)?;
    let config = config_json::config(&reader)?;
    let companions = tokenizer::companions(&reader, &config)?;
    let architecture = Architecture::of(reader.metadata())?;
    reader.forget_metadata();
    let tensors = DecoderTensors::new(reader, &config, architecture)?;
    Ok(Checkpoint::new(config, Weights::single(Box::new(tensors)), companions))
}
