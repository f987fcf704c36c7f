//! The tokenizer of a model folder.

use std::path::Path;

use super::tokenizer::Tokenizer;
use super::vocabulary::{self, VOCABULARY};
use crate::{DataError, Result};

/// The tokenizer in one file.
const TOKENIZER: &str = "tokenizer.json";

/// Opens the tokenizer of a model folder: its `tokenizer.json`, or else its `vocab.txt` under BERT's
/// rules. The path is the folder or the `tokenizer.json` in it.
pub fn open_tokenizer(path: &Path) -> Result<Tokenizer> {
    let (folder, file) = match path.parent() {
        Some(parent) if !path.is_dir() => (parent, path.to_owned()),
        Some(_) | None => (path, path.join(TOKENIZER)),
    };
    if file.is_file() {
        return Tokenizer::open(&file);
    }
    if folder.join(VOCABULARY).is_file() {
        return vocabulary::open(folder);
    }
    let found = format!("neither {TOKENIZER} nor {VOCABULARY}");
    let expected = "one of them: a model only understands the tokenizer it was trained with";
    Err(DataError::file(folder, found, expected))
}
