//! A pretrained model with what reads its rows: a folder in Hugging Face layout, or one GGUF file.
//!
//! Whoever opens a model by its path does it here, so that a file works wherever a folder does. A model of texts has
//! a tokenizer, one of images a processor.

use std::path::Path;

use fedra_data::{Processor, Tokenizer, open_tokenizer};
use fedra_model::hf::Checkpoint;
use fedra_model::open_checkpoint;

use crate::config::image_processor;
use crate::error::{Context, Result, refuse};

/// An open model of texts, no values read yet, and its tokenizer.
pub struct Pretrained {
    /// Configuration, checked headers and companion files.
    pub checkpoint: Checkpoint,
    /// What cuts text into its tokens.
    pub tokenizer: Tokenizer,
}

/// An open model of texts or images, no values read yet.
pub struct OpenedModel {
    /// Configuration, checked headers and companion files; for the size of images that the processor makes.
    pub checkpoint: Checkpoint,
    /// What makes its inputs of rows.
    pub reader: RowReader,
}

/// What makes a model's inputs of rows.
pub enum RowReader {
    /// Texts are cut into tokens.
    Tokenizer(Box<Tokenizer>),
    /// Images are resized and normalised.
    Processor(Processor),
}

impl OpenedModel {
    /// Opens a folder or a GGUF file.
    pub fn open(path: &Path) -> Result<Self> {
        let checkpoint = open_checkpoint(path)?;
        if let Some(image) = checkpoint.config().image {
            let (processor, (height, width)) = image_processor(path, image)?;
            let checkpoint = checkpoint.resized(height, width)?;
            return Ok(Self { checkpoint, reader: RowReader::Processor(processor) });
        }
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
        Ok(Self { checkpoint, reader: RowReader::Tokenizer(Box::new(tokenizer)) })
    }
}

impl Pretrained {
    /// Opens a folder or a GGUF file whose model reads texts.
    pub fn open(path: &Path) -> Result<Self> {
        let OpenedModel { checkpoint, reader } = OpenedModel::open(path)?;
        match reader {
            RowReader::Tokenizer(tokenizer) => Ok(Self { checkpoint, tokenizer: *tokenizer }),
            RowReader::Processor(_) => {
                refuse!("{}: found a model of images, expected one of texts", path.display())
            }
        }
    }
}
