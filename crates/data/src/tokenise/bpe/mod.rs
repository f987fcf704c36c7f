//! Byte-pair encoding, as the LLaMA family's `tokenizer.json` describes it.
//!
//! Two lineages share the merging and little else. `SentencePiece`'s marks blanks with `▁`, merges
//! over the whole text and falls back to single bytes; GPT-2's writes every byte as a letter and
//! merges inside words that a fixed pattern cuts. Whatever a file asks for beyond these is refused
//! by its name: a tokenizer that is nearly right gives a model nearly right words.
//!
//! ```text
//! text -> added tokens -> normalise -> cut -> letters of bytes -> merge -> numbers
//! ```

mod cut;
mod file;
mod letters;
mod merge;

use std::collections::BTreeMap;
use std::path::Path;

use self::cut::Cutter;
use self::letters::ByteLetters;
use self::merge::Merger;
use super::{Specials, Tokenizer};
use crate::{DataError, Result};

/// A BPE tokenizer read from a `tokenizer.json`.
pub struct BpeTokenizer {
    normalizers: Vec<Normalizer>,
    cutters: Vec<Cutter>,
    merger: Merger,
    /// Tokens found in a text before anything else happens to it; never special ones.
    added: BTreeMap<String, u32>,
    /// Tokens by number, and whether each is special.
    tokens: BTreeMap<u32, (String, Kind)>,
    specials: Specials,
    json: String,
}

/// What a token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Piece,
    /// Text as it stands, in no one's letters.
    Added,
    Special,
}

/// A step that changes a text before it is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Normalizer {
    Prepend(String),
    Replace(String, String),
}

impl BpeTokenizer {
    /// Opens a `tokenizer.json` whose model is BPE.
    pub fn open(path: &Path) -> Result<Self> {
        let json = super::saved::text(path)?;
        file::read(json).map_err(|found| {
            DataError::file(path, found, "a BPE tokenizer of the LLaMA or GPT-2 kind")
        })
    }

    fn is_byte_level(&self) -> bool {
        self.cutters.contains(&Cutter::Bytes)
    }

    /// The pieces of a stretch of text between added tokens.
    fn stretch(&self, text: &str, place: Place, out: &mut Vec<u32>) {
        let mut text = text.to_owned();
        for normalizer in &self.normalizers {
            text = normalizer.apply(text);
        }
        let mut parts = vec![text];
        for cutter in &self.cutters {
            let mut place = place;
            let mut finer = Vec::new();
            for part in parts {
                cutter.cut(&part, place, &mut finer);
                place = Place::Later;
            }
            parts = finer;
        }
        for part in &parts {
            self.merger.merge(part, out);
        }
    }
}

/// Whether a stretch opens the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    First,
    Later,
}

impl Normalizer {
    fn apply(&self, text: String) -> String {
        match self {
            Self::Prepend(_) if text.is_empty() => text,
            Self::Prepend(before) => format!("{before}{text}"),
            Self::Replace(from, to) => text.replace(from, to),
        }
    }
}

impl Tokenizer for BpeTokenizer {
    fn pieces(&self, text: &str) -> Result<Vec<u32>> {
        let mut out = Vec::new();
        let (mut start, mut at) = (0, 0);
        let mut place = Place::First;
        while at < text.len() {
            // The leftmost, and of those the longest.
            let found = self.added.iter().filter(|(token, _)| text[at..].starts_with(*token));
            let Some((token, &id)) = found.max_by_key(|(token, _)| token.len()) else {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
                continue;
            };
            if start < at {
                self.stretch(&text[start..at], place, &mut out);
            }
            out.push(id);
            at += token.len();
            (start, place) = (at, Place::Later);
        }
        if start < text.len() {
            self.stretch(&text[start..], place, &mut out);
        }
        Ok(out)
    }

    fn word(&self, word: &str) -> Result<Vec<u32>> {
        // Bytes know a word inside a sentence by the blank before it.
        if self.is_byte_level() { self.pieces(&format!(" {word}")) } else { self.pieces(word) }
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        let is_byte_level = self.is_byte_level();
        let mut bytes: Vec<u8> = Vec::new();
        for id in ids {
            let (token, kind) = self.tokens.get(id).ok_or_else(|| {
                DataError::setting("token", id, format!("one of {}", self.tokens.len()))
            })?;
            match kind {
                Kind::Special => {}
                Kind::Added => bytes.extend(token.as_bytes()),
                Kind::Piece if is_byte_level => bytes.extend(ByteLetters::bytes(token)),
                Kind::Piece => match merge::byte_of(token) {
                    Some(byte) => bytes.push(byte),
                    None => bytes.extend(token.replace(BLANK, " ").into_bytes()),
                },
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(match text.strip_prefix(' ') {
            Some(rest) if !is_byte_level => rest.to_owned(),
            Some(_) | None => text,
        })
    }

    fn specials(&self) -> Specials {
        self.specials
    }

    fn vocabulary_size(&self) -> usize {
        self.tokens.len()
    }

    fn to_json(&self) -> Result<String> {
        Ok(self.json.clone())
    }
}

/// `SentencePiece`'s mark for a blank.
const BLANK: char = '\u{2581}';
