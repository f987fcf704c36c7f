//! Text to token numbers.
//!
//! A [`Tokenizer`] is small on purpose: pieces of a text and the [`Template`]s that stand around
//! them. The cutting itself is done by Hugging Face's `tokenizers`, because a pretrained model only
//! means something under the rules it was trained with: [`open_tokenizer`] takes any
//! `tokenizer.json` or a BERT's `vocab.txt`, and a [`WordTokenizer`] grown here is one such file
//! made from a corpus. Special tokens are never recognised inside a text: a note that contains the
//! characters `[SEP]` contains five characters and no separator.

mod answers;
mod bert;
mod blame;
mod encode;
mod saved;
mod template;
mod vocabulary;
mod windows;
mod word;

pub use answers::{AnswerRules, Candidate, EncodedChoice, EncodedText, LengthNorm};
pub use encode::{Encoded, Encoder, Target, TokenSequence};
pub use saved::SavedTokenizer;
pub use template::{Template, Templates};
pub use windows::{Window, WordPlace, WordWindows};
pub use word::WordTokenizer;

use std::path::Path;

use crate::{DataError, Result};

/// The tokenizer in one file.
const TOKENIZER: &str = "tokenizer.json";
/// The words of an older tokenizer, one a line.
const VOCABULARY: &str = "vocab.txt";

/// Cuts text into numbered pieces.
pub trait Tokenizer: Send + Sync {
    /// The pieces of a text, without special tokens.
    fn pieces(&self, text: &str) -> Result<Vec<u32>>;

    /// The pieces of a word that stands inside a sentence.
    fn word(&self, word: &str) -> Result<Vec<u32>>;

    /// The pieces of a text, without special tokens, and where each stands in it.
    fn placed_pieces(&self, text: &str) -> Result<Vec<PlacedPiece>>;

    /// The text of tokens, special ones left out. Bytes that make no character are replaced.
    fn text(&self, tokens: &[u32]) -> Result<String>;

    /// What stands around one text and around two.
    fn templates(&self) -> &Templates;

    /// The token that stands for what has no pieces.
    fn unknown(&self) -> Option<u32>;

    /// Whether a text that is too long loses its beginning and not its end.
    fn keeps_end(&self) -> bool;

    /// How many different tokens there are, added and special ones included.
    fn vocabulary_size(&self) -> usize;

    /// The largest number that a sequence may hold; a model needs an embedding for each up to it.
    fn highest_id(&self) -> u32;

    /// The tokenizer as a Hugging Face `tokenizer.json`.
    fn to_json(&self) -> Result<String>;
}

/// A piece and where it stands in its text: `start..end` in characters (Unicode scalar values), which
/// is how Python counts them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedPiece {
    /// The token.
    pub id: u32,
    /// The first character.
    pub start: usize,
    /// The character behind the last.
    pub end: usize,
    /// Which of the words it is part of, as the tokenizer tells words apart before it cuts them;
    /// absent where it does not say.
    pub word: Option<u32>,
}

/// Opens the tokenizer of a model folder: its `tokenizer.json`, or else its `vocab.txt` under BERT's
/// rules. The path is the folder or the `tokenizer.json` in it.
pub fn open_tokenizer(path: &Path) -> Result<Box<dyn Tokenizer>> {
    let (folder, file) = match path.parent() {
        Some(parent) if !path.is_dir() => (parent, path.to_owned()),
        Some(_) | None => (path, path.join(TOKENIZER)),
    };
    if file.is_file() {
        return Ok(Box::new(SavedTokenizer::open(&file)?));
    }
    if folder.join(VOCABULARY).is_file() {
        return Ok(Box::new(vocabulary::open(folder)?));
    }
    let found = format!("neither {TOKENIZER} nor {VOCABULARY}");
    let expected = "one of them: a model only understands the tokenizer it was trained with";
    Err(DataError::file(folder, found, expected))
}
