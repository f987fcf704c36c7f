//! Text to token numbers.
//!
//! A [`Tokenizer`] is small on purpose: pieces of a text and the special tokens around them.
//! [`WordTokenizer`] is written here and covers what BERT needs, so the default build stays light;
//! anything else that a `tokenizer.json` may hold is left to the `tokenizers` crate, behind the
//! feature of that name. Special tokens are never recognised inside a text: a note that contains
//! the characters `[SEP]` contains five characters and no separator.

mod bert;
mod encode;
mod saved;
mod word;

pub use encode::{Encoded, Encoder, Target};
pub use word::WordTokenizer;

use std::path::Path;

use crate::Result;

/// Cuts text into numbered pieces.
pub trait Tokenizer: Send + Sync {
    /// The pieces of a text, without special tokens.
    fn pieces(&self, text: &str) -> Result<Vec<u32>>;

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
    match WordTokenizer::open(path) {
        other => Ok(Box::new(other?)),
    }
}
