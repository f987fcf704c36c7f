//! A pretrained model with its tokenizer: a folder in Hugging Face layout, or one GGUF file.
//!
//! Whoever opens a model by its path does it here, so that a file works wherever a folder does.

use std::path::Path;

use fedra_data::{Tokenizer, open_tokenizer};
use fedra_model::hf::Checkpoint;
use fedra_model::open_checkpoint;

use crate::error::{Context, Result, refuse};

/// An open model, no values read yet, and its tokenizer.
pub struct Pretrained {
    /// Configuration, checked headers and companion files.
    pub checkpoint: Checkpoint,
    /// What cuts text into its tokens.
    pub tokenizer: Tokenizer,
}

impl Pretrained {
    /// Opens a folder or a GGUF file.
    pub fn open(path: &Path) -> Result<Self> {
        let checkpoint = open_checkpoint(path)?;
        let tokenizer = if path.is_file() {
            let Some(json) = checkpoint.companions().tokenizer() else {
                refuse!(
                    "{}: found no tokenizer.ggml.model, expected a file with its tokenizer",
                    path.display()
                );
            };
            let json = String::from_utf8_lossy(json).into_owned();
            Tokenizer::from_json(path, json).context("its tokenizer")?
        } else {
            open_tokenizer(path)?
        };
        Ok(Self { checkpoint, tokenizer })
    }
}
