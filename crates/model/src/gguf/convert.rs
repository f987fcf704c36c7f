//! A file turned into a folder, for people and for other tools. One tensor is in memory at a time.

use std::path::Path;

use super::checkpoint::open;
use crate::error::ModelError;
use crate::head::Head;
use crate::hf::{Folder, Precision};
use crate::layout;

/// Writes the model of a GGUF file as a folder in Hugging Face layout, and says how many parameters
/// it has. `dir` is made; a folder that holds anything is refused.
pub fn convert(file: &Path, dir: &Path, precision: Precision) -> Result<usize, ModelError> {
    if file.is_dir() {
        return Err(ModelError::file(file, "a folder", "a GGUF file"));
    }
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(ModelError::file(dir, "a folder with files in it", "a new or empty folder"));
    }
    let checkpoint = open(file)?;
    let config = checkpoint.config();
    let head = Head::Language;
    let layout = layout::of(config, head, None)?;
    let found = checkpoint.find(&layout, |_| false)?;
    let folder = Folder {
        config,
        architecture: head.architecture(config)?,
        precision,
        companions: checkpoint.companions(),
    };
    folder.save(dir, &layout, |id| Ok(checkpoint.values(id, &found.tensors[&id])?.into()))?;
    Ok(layout.elements())
}
