//! `WordPiece`, with a vocabulary from a checkpoint or grown from a corpus.
//!
//! A vocabulary grown here holds the frequent words whole, a few common beginnings and endings of
//! the rest, and every letter, so that no word of the same alphabet is unknown. It is a fixed
//! function of the corpus and the limit.
//!
//! A vocabulary is a release: it names words of the corpus it was grown from. Grow it from text
//! that may be shown, which the synthetic clinic is and a hospital's notes are not.
//!
//! ```
//! use fedra_data::{Tokenizer, WordTokenizer};
//! let tokenizer = WordTokenizer::grow(["no chest pain", "no cough"], 64)?;
//! let ids = tokenizer.pieces("No pain")?;
//! assert_eq!(tokenizer.decode(&ids)?, "no pain");
//! # Ok::<(), fedra_data::DataError>(())
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use super::bert::Cleaning;
use super::{Specials, Tokenizer, saved};
use crate::{DataError, Result};

/// The special tokens of a grown vocabulary, numbered from 0.
const SPECIALS: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
/// Parts of words are kept up to this many letters.
const LONGEST_PART: usize = 6;
/// A word with more letters than this is unknown, as in BERT.
const LONGEST_WORD: usize = 100;

/// A `WordPiece` tokenizer with BERT's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordTokenizer {
    pub(super) cleaning: Cleaning,
    pub(super) longest_word: usize,
    /// All pieces by number, continuations with their `##`.
    pieces: Vec<String>,
    /// Pieces that begin a word. Looked up, never iterated.
    starts: HashMap<String, u32>,
    /// Pieces that continue one, without the `##`.
    continuations: HashMap<String, u32>,
    unknown: u32,
    start: u32,
    end: u32,
}

impl WordTokenizer {
    /// Grows a vocabulary of at most `limit` pieces from texts.
    pub fn grow<'a>(texts: impl IntoIterator<Item = &'a str>, limit: usize) -> Result<Self> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for text in texts {
            Cleaning::UNCASED.words(text, |word| match counts.get_mut(word) {
                Some(count) => *count += 1,
                None => {
                    counts.insert(word.to_owned(), 1);
                }
            });
        }
        let pieces = grown(&counts, limit);
        if pieces.len() > limit {
            let expected = format!("at least {} for the alphabet alone", pieces.len());
            return Err(DataError::setting("vocabulary limit", &limit, expected));
        }
        let made = Self::from_pieces(pieces, Cleaning::UNCASED, LONGEST_WORD);
        Ok(made.expect("a grown vocabulary has the special tokens"))
    }

    /// Opens a `tokenizer.json` whose model is `WordPiece` under BERT's rules.
    pub fn open(path: &Path) -> Result<Self> {
        saved::open(path)
    }

    /// The tokenizer of these pieces, numbered as they stand; the name of a missing special token
    /// otherwise.
    pub(super) fn from_pieces(
        pieces: Vec<String>,
        cleaning: Cleaning,
        longest_word: usize,
    ) -> Result<Self, &'static str> {
        let (mut starts, mut continuations) = (HashMap::new(), HashMap::new());
        for (id, piece) in pieces.iter().enumerate() {
            match piece.strip_prefix("##") {
                Some(rest) if !rest.is_empty() => continuations.insert(rest.to_owned(), id as u32),
                Some(_) | None => starts.insert(piece.clone(), id as u32),
            };
        }
        let special = |name: &'static str| starts.get(name).copied().ok_or(name);
        let (unknown, start, end) = (special("[UNK]")?, special("[CLS]")?, special("[SEP]")?);
        Ok(Self { cleaning, longest_word, pieces, starts, continuations, unknown, start, end })
    }

    /// All pieces by number.
    pub fn vocabulary(&self) -> &[String] {
        &self.pieces
    }

    /// Longest match first; a word that cannot be finished is unknown as a whole.
    fn longest_match(&self, word: &str, out: &mut Vec<u32>) {
        let began = out.len();
        if word.chars().count() > self.longest_word {
            return out.push(self.unknown);
        }
        let mut rest = word;
        while !rest.is_empty() {
            let known = if rest.len() == word.len() { &self.starts } else { &self.continuations };
            let ends = rest.char_indices().map(|(at, letter)| at + letter.len_utf8()).rev();
            let Some((end, id)) =
                ends.into_iter().find_map(|end| Some((end, *known.get(&rest[..end])?)))
            else {
                out.truncate(began);
                return out.push(self.unknown);
            };
            out.push(id);
            rest = &rest[end..];
        }
    }
}

impl Tokenizer for WordTokenizer {
    fn pieces(&self, text: &str) -> Result<Vec<u32>> {
        let mut out = Vec::new();
        self.cleaning.words(text, |word| self.longest_match(word, &mut out));
        Ok(out)
    }

    fn word(&self, word: &str) -> Result<Vec<u32>> {
        self.pieces(word)
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut text = String::new();
        for &id in ids {
            let piece = self.pieces.get(id as usize).ok_or_else(|| {
                DataError::setting("token", &id, format!("below {}", self.pieces.len()))
            })?;
            if let Some(rest) = piece.strip_prefix("##") {
                text.push_str(rest);
            } else if !SPECIALS.contains(&piece.as_str()) {
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(piece);
            }
        }
        Ok(text)
    }

    fn specials(&self) -> Specials {
        let (start, end, unknown) = (Some(self.start), Some(self.end), Some(self.unknown));
        Specials { start, end, unknown }
    }

    fn vocabulary_size(&self) -> usize {
        self.pieces.len()
    }

    fn to_json(&self) -> Result<String> {
        Ok(saved::to_json(self))
    }
}

/// Special tokens, letters, frequent words, then parts of what was left out.
fn grown(counts: &BTreeMap<String, u64>, limit: usize) -> Vec<String> {
    let mut pieces: Vec<String> = SPECIALS.map(str::to_owned).to_vec();
    let letters: BTreeSet<char> = counts.keys().flat_map(|word| word.chars()).collect();
    pieces.extend(letters.iter().map(char::to_string));
    pieces.extend(letters.iter().map(|letter| format!("##{letter}")));
    let room = limit.saturating_sub(pieces.len());

    // A word seen once is better learnt from its parts: the next rare word shares them.
    let longer = |word: &str| word.chars().nth(1).is_some();
    let frequent = counts.iter().filter(|(word, count)| **count > 1 && longer(word));
    let frequent = ranked(frequent.map(|(word, count)| (word.clone(), *count)).collect());
    let for_words = if frequent.len() > room { room - room / 8 } else { frequent.len() };
    let frequent: Vec<String> = frequent.into_iter().take(for_words).collect();
    let whole: BTreeSet<&str> = frequent.iter().map(String::as_str).collect();

    let mut parts: BTreeMap<String, u64> = BTreeMap::new();
    for (word, count) in counts.iter().filter(|(word, _)| !whole.contains(word.as_str())) {
        let ends: Vec<usize> = word.char_indices().map(|(at, _)| at).collect();
        for length in 2..=LONGEST_PART.min(ends.len().saturating_sub(1)) {
            let weight = count * (length as u64 - 1);
            let head = &word[..ends[length]];
            if !whole.contains(head) {
                *parts.entry(head.to_owned()).or_default() += weight;
            }
            *parts.entry(format!("##{}", &word[ends[ends.len() - length]..])).or_default() +=
                weight;
        }
    }
    let parts = ranked(parts.into_iter().collect());
    let for_parts = room - frequent.len();
    pieces.extend(frequent);
    pieces.extend(parts.into_iter().take(for_parts));
    pieces
}

/// Names by falling weight, ties by name.
fn ranked(mut weighted: Vec<(String, u64)>) -> Vec<String> {
    weighted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    weighted.into_iter().map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> WordTokenizer {
        let texts = ["chest pain chest pain", "hepatitis arthritis nephritis", "no no"];
        WordTokenizer::grow(texts, 80).unwrap()
    }

    #[test]
    fn frequent_words_are_whole_and_rare_ones_are_parts() {
        let tokenizer = tokenizer();
        assert_eq!(tokenizer.pieces("Chest pain").unwrap().len(), 2);
        let rare = tokenizer.pieces("phritis").unwrap();
        assert!(rare.len() < 7 && tokenizer.decode(&rare).unwrap() == "phritis");
    }

    #[test]
    fn only_a_foreign_letter_makes_a_word_unknown() {
        let tokenizer = tokenizer();
        let unknown = tokenizer.specials().unknown.unwrap();
        assert!(!tokenizer.pieces("pirates").unwrap().contains(&unknown));
        assert_eq!(tokenizer.pieces("w").unwrap(), [unknown]);
        assert_eq!(tokenizer.pieces(&"a".repeat(101)).unwrap(), [unknown]);
    }

    #[test]
    fn special_tokens_in_a_text_are_text() {
        let tokenizer = WordTokenizer::grow(["[ sep ] cls"], 60).unwrap();
        let end = tokenizer.specials().end.unwrap();
        assert!(!tokenizer.pieces("[SEP]").unwrap().contains(&end));
    }

    #[test]
    fn a_limit_below_the_alphabet_is_refused() {
        let error = WordTokenizer::grow(["abc"], 8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot use vocabulary limit = 8: expected at least 11 for the alphabet alone"
        );
        assert!(WordTokenizer::grow(["abc"], 11).unwrap().vocabulary_size() == 11);
    }
}
