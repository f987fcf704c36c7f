//! Any `tokenizer.json`, through the `tokenizers` crate.
//!
//! Behind a feature that is off, because of what it costs to build.

use std::path::Path;

use super::{Specials, Tokenizer};
use crate::{DataError, Result};

/// A tokenizer as Hugging Face reads it, without its own padding and truncation.
pub struct HuggingFaceTokenizer {
    inner: tokenizers::Tokenizer,
    specials: Specials,
}

impl HuggingFaceTokenizer {
    /// Opens a `tokenizer.json`.
    pub fn open(path: &Path) -> Result<Self> {
        let broken =
            |error: tokenizers::Error| DataError::file(path, error.to_string(), "a tokenizer.json");
        let mut inner = tokenizers::Tokenizer::from_file(path).map_err(broken)?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(broken)?;
        inner.set_encode_special_tokens(true);
        // What the template puts before and after a text.
        let around = inner.encode("a", true).map_err(broken)?;
        let (ids, special) = (around.get_ids(), around.get_special_tokens_mask());
        let text = special.iter().position(|&mark| mark == 0).unwrap_or(ids.len());
        let start = text.checked_sub(1).map(|place| ids[place]);
        let end = ids.last().copied().filter(|_| text < ids.len() && special.ends_with(&[1]));
        let unknown = ["[UNK]", "<unk>"].iter().find_map(|name| inner.token_to_id(name));
        Ok(Self { inner, specials: Specials { start, end, unknown } })
    }
}

impl Tokenizer for HuggingFaceTokenizer {
    fn pieces(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.inner.encode(text, false);
        let encoding = encoding
            .map_err(|error| DataError::setting("text", &error.to_string(), "text with pieces"))?;
        Ok(encoding.get_ids().to_vec())
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        let text = self.inner.decode(ids, true);
        text.map_err(|error| DataError::setting("tokens", &error.to_string(), "known tokens"))
    }

    fn specials(&self) -> Specials {
        self.specials
    }

    fn vocabulary_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    fn to_json(&self) -> Result<String> {
        let json = self.inner.to_string(true);
        json.map_err(|error| DataError::setting("tokenizer", &error.to_string(), "one that saves"))
    }
}
