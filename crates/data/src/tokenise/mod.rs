//! Text to token numbers.
//!
//! A [`Tokenizer`] is small on purpose: pieces of a text and the special tokens around them.
//! [`WordTokenizer`] covers what BERT needs and [`BpeTokenizer`] the LLaMA family; both are written
//! here and held against Hugging Face's library by tests, because that library takes longer to
//! build than all of Fedra. Special tokens are never recognised inside a text: a note that contains
//! the characters `[SEP]` contains five characters and no separator.

mod bert;
mod bpe;
mod encode;
mod saved;
mod word;

pub use bpe::BpeTokenizer;
pub use encode::{Encoded, Encoder, Target};
pub use word::WordTokenizer;

use std::path::Path;

use crate::{DataError, Result};

/// Cuts text into numbered pieces.
pub trait Tokenizer: Send + Sync {
    /// The pieces of a text, without special tokens.
    fn pieces(&self, text: &str) -> Result<Vec<u32>>;

    /// The pieces of a word that stands inside a sentence.
    fn word(&self, word: &str) -> Result<Vec<u32>>;

    /// Text again, as far as the pieces allow; special tokens are left out.
    fn decode(&self, ids: &[u32]) -> Result<String>;

    /// The special tokens.
    fn specials(&self) -> Specials;

    /// How many different pieces there are.
    fn vocabulary_size(&self) -> usize;

    /// The tokenizer as a Hugging Face `tokenizer.json`.
    fn to_json(&self) -> Result<String>;
}

/// The tokens that stand for no text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Specials {
    /// Opens a sequence: `[CLS]` or `<s>`.
    pub start: Option<u32>,
    /// Closes a sequence: `[SEP]`; absent in decoders, whose sequences go on.
    pub end: Option<u32>,
    /// Stands for a word that has no pieces.
    pub unknown: Option<u32>,
}

/// Opens a `tokenizer.json` with whatever can read it.
pub fn open_tokenizer(path: &Path) -> Result<Box<dyn Tokenizer>> {
    match saved::model_kind(path)?.as_str() {
        "WordPiece" => Ok(Box::new(WordTokenizer::open(path)?)),
        "BPE" => Ok(Box::new(BpeTokenizer::open(path)?)),
        other => {
            let found = format!("a model of type {other:?}");
            Err(DataError::file(path, found, "WordPiece or BPE"))
        }
    }
}
