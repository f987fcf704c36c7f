//! `WordPiece` with a vocabulary grown from a corpus.
//!
//! A vocabulary grown here holds the frequent words whole, a few common beginnings and endings of
//! the rest, and every letter, so that no word of the same alphabet is unknown. It is a fixed
//! function of the corpus and the limit. Words are told apart and cut by the library that will read
//! the saved file, so training here and use elsewhere see the same pieces.
//!
//! A vocabulary is a release: it names words of the corpus it was grown from. Grow it from text
//! that may be shown, which the synthetic clinic is and a hospital's notes are not.
//!
//! ```
//! use fedra_data::Tokenizer;
//! let tokenizer = Tokenizer::grow(["no chest pain", "no cough"], 64)?;
//! assert_eq!(tokenizer.pieces("No pain")?[0], tokenizer.pieces("no")?[0]);
//! # Ok::<(), fedra_data::DataError>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::bert::Bert;
use super::tokenizer::Tokenizer;
use crate::work::CHUNK;
use crate::{DataError, Result, Stage, Work};

/// Parts of words are kept up to this many letters.
const LONGEST_PART: usize = 6;

/// Tokenizers under BERT's uncased rules whose vocabulary is grown from texts.
impl Tokenizer {
    /// Grows a vocabulary of at most `limit` pieces from texts.
    pub fn grow<'a>(texts: impl IntoIterator<Item = &'a str>, limit: usize) -> Result<Self> {
        let texts: Vec<&str> = texts.into_iter().collect();
        Self::grow_with(&Work::default(), &texts, limit)
    }

    /// The same for somebody who follows it: it looks at every text once.
    pub fn grow_with<T: AsRef<str> + Sync>(
        work: &Work<'_>,
        texts: &[T],
        limit: usize,
    ) -> Result<Self> {
        // Before there are pieces, the rules alone tell what a word is.
        let rules = of_pieces(&Bert::default().names)?;
        let (mut counts, mut done) = (BTreeMap::<String, u64>::new(), 0);
        let total = texts.len() as u64;
        let mut chunks = texts.chunks(CHUNK);
        work.in_order(
            || Ok(chunks.next()),
            |texts| Ok((texts.len(), rules.counted(texts)?)),
            |(texts, words)| {
                for (word, count) in words {
                    *counts.entry(word).or_default() += count;
                }
                done += texts as u64;
                work.tell(Stage::GrowingVocabulary, done, total)
            },
        )?;
        let pieces = grown(&counts, limit);
        if pieces.len() > limit {
            let expected = format!("at least {} for the alphabet alone", pieces.len());
            return Err(DataError::setting("vocabulary limit", &limit, expected));
        }
        of_pieces(&pieces)
    }

    /// How often each word stands in some texts.
    fn counted<T: AsRef<str>>(&self, texts: &[T]) -> Result<BTreeMap<String, u64>> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for text in texts {
            self.words(text.as_ref(), |word| match counts.get_mut(word) {
                Some(count) => *count += 1,
                None => {
                    counts.insert(word.to_owned(), 1);
                }
            })?;
        }
        Ok(counts)
    }
}

/// The tokenizer of these pieces, numbered as they stand.
fn of_pieces(pieces: &[String]) -> Result<Tokenizer> {
    let json = Bert::default().to_json(pieces).expect("a grown vocabulary has special tokens");
    let json = serde_json::to_string_pretty(&json).expect("a JSON value always prints");
    Tokenizer::from_json(Path::new("tokenizer.json"), json)
}

/// Special tokens, letters, frequent words, then parts of what was left out.
fn grown(counts: &BTreeMap<String, u64>, limit: usize) -> Vec<String> {
    let mut pieces: Vec<String> = Bert::default().names.to_vec();
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

    fn tokenizer() -> Tokenizer {
        let texts = ["chest pain chest pain", "hepatitis arthritis nephritis", "no no"];
        Tokenizer::grow(texts, 80).unwrap()
    }

    #[test]
    fn frequent_words_are_whole_and_rare_ones_are_parts() {
        let tokenizer = tokenizer();
        assert_eq!(tokenizer.pieces("Chest pain").unwrap().len(), 2);
        let rare = tokenizer.pieces("phritis").unwrap();
        assert!(rare.len() < 7, "{rare:?}");
        assert_eq!(tokenizer.text(&rare).unwrap(), "phritis");
    }

    #[test]
    fn only_a_foreign_letter_makes_a_word_unknown() {
        let tokenizer = tokenizer();
        let unknown = tokenizer.unknown().unwrap();
        assert!(!tokenizer.pieces("pirates").unwrap().contains(&unknown));
        assert_eq!(tokenizer.pieces("w").unwrap(), [unknown]);
        assert_eq!(tokenizer.pieces(&"a".repeat(101)).unwrap(), [unknown]);
    }

    #[test]
    fn special_tokens_in_a_text_are_text() {
        let tokenizer = Tokenizer::grow(["[ sep ] cls"], 60).unwrap();
        let end = tokenizer.templates().single.after()[0];
        assert!(!tokenizer.pieces("[SEP]").unwrap().contains(&end));
    }

    #[test]
    fn a_limit_below_the_alphabet_is_refused() {
        let error = Tokenizer::grow(["abc"], 8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot use vocabulary limit = 8, expected at least 11 for the alphabet alone"
        );
        assert!(Tokenizer::grow(["abc"], 11).unwrap().vocabulary_size() == 11);
    }
}
