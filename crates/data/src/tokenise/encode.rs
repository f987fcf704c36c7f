//! Examples to token sequences with their targets.
//!
//! A word becomes one or more pieces and its label goes to the first of them; the others have no
//! target and so no say in loss or score. A sequence is cut to a length, whole words at a time.

use super::Tokenizer;
use crate::{Body, Example, Labels, Result};

/// Turns examples into sequences of bounded length.
pub struct Encoder<'a> {
    tokenizer: &'a dyn Tokenizer,
    longest: usize,
}

/// One sequence, special tokens included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The tokens.
    pub ids: Vec<u32>,
    /// What is to be predicted.
    pub target: Target,
    /// How many words, or pieces where there are no word labels, the cut has cost.
    pub dropped: usize,
}

/// What is to be predicted of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One class.
    One(u32),
    /// A set of codes.
    Many(Vec<u32>),
    /// For each token its label, or nothing.
    PerToken(Vec<Option<u32>>),
}

impl<'a> Encoder<'a> {
    /// An encoder of sequences of at most `longest` tokens, special tokens included.
    pub fn new(tokenizer: &'a dyn Tokenizer, longest: usize) -> Result<Self> {
        if longest < 3 {
            let expected = "at least 3: one piece between two special tokens";
            return Err(crate::DataError::setting("longest", &longest, expected));
        }
        Ok(Self { tokenizer, longest })
    }

    /// The sequences of an example: one, or for the next-token task as many as its text fills.
    pub fn encode(&self, example: &Example) -> Result<Vec<Encoded>> {
        match &example.labels {
            Labels::One(label) => {
                let (ids, dropped) = self.text(example)?;
                Ok(vec![Encoded { ids, target: Target::One(*label), dropped }])
            }
            Labels::Many(labels) => {
                let (ids, dropped) = self.text(example)?;
                Ok(vec![Encoded { ids, target: Target::Many(labels.clone()), dropped }])
            }
            Labels::PerWord(tags) => Ok(vec![self.words(example, tags)?]),
            Labels::Absent => self.windows(example),
        }
    }

    /// The sequences of many examples, in their order.
    pub fn encode_all<'e>(
        &self,
        examples: impl IntoIterator<Item = &'e Example>,
    ) -> Result<Vec<Encoded>> {
        let mut all = Vec::new();
        for example in examples {
            all.extend(self.encode(example)?);
        }
        Ok(all)
    }

    /// How many pieces fit between the special tokens.
    fn room(&self) -> usize {
        let specials = self.tokenizer.specials();
        self.longest - usize::from(specials.start.is_some()) - usize::from(specials.end.is_some())
    }

    fn text(&self, example: &Example) -> Result<(Vec<u32>, usize)> {
        let mut pieces = self.tokenizer.pieces(&example.body.to_text())?;
        let dropped = pieces.len().saturating_sub(self.room());
        pieces.truncate(self.room());
        let specials = self.tokenizer.specials();
        let ids = specials.start.into_iter().chain(pieces).chain(specials.end).collect();
        Ok((ids, dropped))
    }

    fn words(&self, example: &Example, tags: &[u32]) -> Result<Encoded> {
        let specials = self.tokenizer.specials();
        let words = match &example.body {
            Body::Words(words) => words.as_slice(),
            Body::Text(text) => std::slice::from_ref(text),
        };
        let mut ids: Vec<u32> = specials.start.into_iter().collect();
        let mut target = vec![None; ids.len()];
        let full = self.room() + ids.len();
        let mut kept = 0;
        for (word, tag) in words.iter().zip(tags) {
            let mut pieces = self.tokenizer.word(word)?;
            if pieces.is_empty() {
                // A word of nothing but control characters: its label still needs a place.
                let filler = specials.unknown.or(specials.start).ok_or_else(|| {
                    let expected = "a word with pieces: the tokenizer knows no unknown token";
                    crate::DataError::setting("word", &format!("{word:?}"), expected)
                })?;
                pieces.push(filler);
            }
            if ids.len() + pieces.len() > full {
                break;
            }
            kept += 1;
            target.push(Some(*tag));
            target.resize(target.len() + pieces.len() - 1, None);
            ids.extend(pieces);
        }
        ids.extend(specials.end);
        target.resize(ids.len(), None);
        Ok(Encoded { ids, target: Target::PerToken(target), dropped: tags.len() - kept })
    }

    /// The whole text in consecutive sequences, each position predicting the next token.
    fn windows(&self, example: &Example) -> Result<Vec<Encoded>> {
        let specials = self.tokenizer.specials();
        let pieces = self.tokenizer.pieces(&example.body.to_text())?;
        let mut windows = Vec::new();
        for window in pieces.chunks(self.longest - usize::from(specials.start.is_some())) {
            let ids: Vec<u32> = specials.start.into_iter().chain(window.iter().copied()).collect();
            if ids.len() < 2 {
                continue;
            }
            let target = ids[1..].iter().map(|&next| Some(next)).chain([None]).collect();
            windows.push(Encoded { ids, target: Target::PerToken(target), dropped: 0 });
        }
        Ok(windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Row, Table, TableBuilder, Task, WordTokenizer};

    fn table(task: Task, row: Row) -> Table {
        let mut builder = TableBuilder::new(task);
        builder.push(row).unwrap();
        builder.finish()
    }

    fn tokenizer() -> WordTokenizer {
        WordTokenizer::grow(["no chest pain no chest pain x"], 60).unwrap()
    }

    #[test]
    fn the_first_piece_carries_the_label_and_the_rest_nothing() {
        let row =
            Row::words(["no", "nosi", "\u{200b}", "pain"]).with_labels(["O", "B-a", "I-a", "O"]);
        let (table, tokenizer) = (table(Task::Tokens, row), tokenizer());
        let encoded = Encoder::new(&tokenizer, 20).unwrap().encode(&table.examples[0]).unwrap();
        let Target::PerToken(target) = &encoded[0].target else { panic!() };
        let labelled: Vec<u32> = target.iter().flatten().copied().collect();
        assert_eq!(labelled, [0, 1, 2, 0]);
        assert_eq!(target.len(), encoded[0].ids.len());
        assert_eq!((target[0], target.last().copied().flatten()), (None, None));
        assert!(target[2].is_some() && target[3].is_none(), "{target:?}");
    }

    #[test]
    fn a_cut_falls_between_words_and_is_counted() {
        let row = Row::words(["no", "nosixt", "pain"]).with_labels(["O", "O", "O"]);
        let (table, tokenizer) = (table(Task::Tokens, row), tokenizer());
        let encoded = Encoder::new(&tokenizer, 4).unwrap().encode(&table.examples[0]).unwrap();
        assert_eq!((encoded[0].ids.len(), encoded[0].dropped), (3, 2));
    }

    #[test]
    fn a_text_is_cut_to_length_with_both_special_tokens() {
        let row = Row::text("no chest pain no chest pain").with_labels(["a"]);
        let (table, tokenizer) = (table(Task::Classes, row), tokenizer());
        let encoded = Encoder::new(&tokenizer, 5).unwrap().encode(&table.examples[0]).unwrap();
        let specials = tokenizer.specials();
        assert_eq!(encoded[0].ids.len(), 5);
        assert_eq!(encoded[0].dropped, 3);
        assert_eq!(
            (encoded[0].ids.first().copied(), encoded[0].ids.last().copied()),
            (specials.start, specials.end)
        );
        assert!(Encoder::new(&tokenizer, 2).is_err());
    }

    #[test]
    fn a_language_text_loses_nothing_to_the_windows() {
        let row = Row::text("no chest pain no chest pain x no");
        let (table, tokenizer) = (table(Task::Language, row), tokenizer());
        let encoded = Encoder::new(&tokenizer, 4).unwrap().encode(&table.examples[0]).unwrap();
        let mut told: Vec<u32> = Vec::new();
        for window in &encoded {
            let Target::PerToken(target) = &window.target else { panic!() };
            told.extend(target.iter().flatten());
            assert_eq!(window.ids.len(), target.len());
        }
        assert_eq!(told, tokenizer.pieces("no chest pain no chest pain x no").unwrap());
    }
}
