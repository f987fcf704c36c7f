//! Examples to token sequences with their targets.
//!
//! A word becomes one or more pieces and its label goes to the first of them; the others have no
//! target and so no say in loss or score. A sequence is cut to a length, whole words at a time, and
//! of two texts the longer loses first. What stands around the pieces is the tokenizer's template.

use super::encoded::{AnswerRules, EncodeRows, Encoded, Target, TokenSequence};
use super::template::{Template, longest_first};
use super::tokenizer::Tokenizer;
use crate::{Body, ChatTemplate, DataError, Example, Labels, Result};

/// Turns examples into sequences of bounded length.
pub struct Encoder<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) longest: usize,
    pub(super) rules: AnswerRules,
    pub(super) chat: Option<&'a ChatTemplate>,
}

impl<'a> Encoder<'a> {
    /// An encoder of sequences of at most `longest` tokens, special tokens included.
    pub fn new(tokenizer: &'a Tokenizer, longest: usize) -> Result<Self> {
        let added = tokenizer.templates().single.added();
        if longest < 3 || longest <= added {
            let least = 3.max(added + 1);
            let expected = format!("at least {least}: one piece beside {added} special tokens");
            return Err(DataError::setting("longest", &longest, expected));
        }
        Ok(Self { tokenizer, longest, rules: AnswerRules::default(), chat: None })
    }

    /// The same encoder under other rules for answers in text.
    pub fn with_rules(self, rules: AnswerRules) -> Self {
        Self { rules, ..self }
    }

    /// The same encoder, which writes conversations by a template.
    pub fn with_chat(self, template: &'a ChatTemplate) -> Self {
        Self { chat: Some(template), ..self }
    }

    /// The sequences of an example: one, or for the next-token task as many as its text fills.
    pub fn encode(&self, example: &Example) -> Result<Vec<Encoded>> {
        self.encode_one(example).map_err(|error| error.at(&example.place))
    }

    fn encode_one(&self, example: &Example) -> Result<Vec<Encoded>> {
        match &example.labels {
            Labels::One(label) => Ok(vec![self.texts(&example.body, Target::One(*label))?]),
            Labels::Many(labels) => {
                Ok(vec![self.texts(&example.body, Target::Many(labels.clone()))?])
            }
            Labels::PerWord(tags) => Ok(vec![self.words(example, tags)?]),
            Labels::Absent => match &example.body {
                Body::Conversation(messages) => Ok(vec![self.conversation(messages)?]),
                Body::Text(_) | Body::Pair(..) | Body::Words(_) | Body::Image(_) => {
                    self.windows(example)
                }
            },
            Labels::Preference(pair) => match &example.body {
                Body::Conversation(prompt) => Ok(vec![self.preference(prompt, pair)?]),
                Body::Text(_) | Body::Pair(..) | Body::Words(_) | Body::Image(_) => {
                    let expected = "messages, which two answers follow";
                    Err(DataError::setting("text", &"a text", expected))
                }
            },
            Labels::Choice(choice) => Ok(vec![self.choice(&example.body.as_text(), choice)?]),
            Labels::Text(text) => Ok(vec![self.written(&example.body.as_text(), text)?]),
        }
    }

    pub(super) fn single(&self) -> &Template {
        &self.tokenizer.templates().single
    }

    /// One text or two, with one target for the whole.
    fn texts(&self, body: &Body, target: Target) -> Result<Encoded> {
        let TokenSequence { ids, types, dropped, pixels } = self.sequence(body)?;
        Ok(Encoded { ids, types, target, dropped, pixels })
    }

    /// One text or two as a single sequence, of which a head reads the whole.
    pub fn sequence(&self, body: &Body) -> Result<TokenSequence> {
        let (template, first, second) = match body {
            Body::Image(_) => return Err(no_image()),
            Body::Text(_) | Body::Words(_) | Body::Conversation(_) => {
                (self.single(), self.tokenizer.pieces(&body.as_text())?, Vec::new())
            }
            Body::Pair(first, second) => {
                let pair = self.tokenizer.templates().pair.as_ref().ok_or_else(|| {
                    let expected = "a tokenizer whose post_processor writes two texts";
                    DataError::setting("text", &"a pair of texts", expected)
                })?;
                (pair, self.tokenizer.pieces(first)?, self.tokenizer.pieces(second)?)
            }
        };
        let Some(room) = self.longest.checked_sub(template.added()).filter(|&room| room > 0) else {
            let expected = format!("more than the {} special tokens of a pair", template.added());
            return Err(DataError::setting("longest", &self.longest, expected));
        };
        let (kept, kept_second) = longest_first(first.len(), second.len(), room);
        let dropped = first.len() + second.len() - kept - kept_second;
        let range = |pieces: usize, kept: usize| {
            let from = if self.tokenizer.keeps_end() { pieces - kept } else { 0 };
            from..from + kept
        };
        let first = &first[range(first.len(), kept)];
        let second = &second[range(second.len(), kept_second)];
        let (ids, types) = template.fill(first, second);
        if ids.is_empty() {
            let expected = "a text with at least one token: this tokenizer adds no token itself";
            return Err(DataError::setting("text", &format!("{:?}", body.to_text()), expected));
        }
        Ok(TokenSequence { ids, types, dropped, pixels: None })
    }

    fn words(&self, example: &Example, tags: &[u32]) -> Result<Encoded> {
        let (before, after) = (self.single().before(), self.single().after());
        let words = match &example.body {
            Body::Words(words) => words.as_slice(),
            Body::Text(text) => std::slice::from_ref(text),
            Body::Image(_) => return Err(no_image()),
            Body::Pair(..) | Body::Conversation(_) => {
                let expected = "words with one tag each";
                return Err(DataError::setting("text", &"several texts", expected));
            }
        };
        let room = self.longest - self.single().added();
        let mut pieces = Vec::new();
        let mut target = vec![None; before.len()];
        let mut kept = 0;
        for (word, tag) in words.iter().zip(tags) {
            let word_pieces = self.word_pieces(word)?;
            if pieces.len() + word_pieces.len() > room {
                break;
            }
            kept += 1;
            target.push(Some(*tag));
            target.resize(target.len() + word_pieces.len() - 1, None);
            pieces.extend(word_pieces);
        }
        target.resize(target.len() + after.len(), None);
        let (ids, types) = self.single().fill(&pieces, &[]);
        let (target, dropped) = (Target::PerToken(target), tags.len() - kept);
        Ok(Encoded { ids, types, target, dropped, pixels: None })
    }

    /// The pieces of a word, at least one.
    pub(super) fn word_pieces(&self, word: &str) -> Result<Vec<u32>> {
        let mut pieces = self.tokenizer.word(word)?;
        if pieces.is_empty() {
            // A word of nothing but control characters: its label still needs a place.
            let before = self.single().before();
            let filler = self.tokenizer.unknown().or(before.first().copied());
            pieces.push(filler.ok_or_else(|| {
                let expected = "a word with pieces: the tokenizer knows no unknown token";
                DataError::setting("word", &format!("{word:?}"), expected)
            })?);
        }
        Ok(pieces)
    }

    /// The whole text in consecutive sequences, each position predicting the next token. Every one
    /// opens as the template does; what closes a text stands behind its last piece.
    fn windows(&self, example: &Example) -> Result<Vec<Encoded>> {
        let before = self.single().before();
        let mut pieces = self.tokenizer.pieces(&example.body.as_text())?;
        if !pieces.is_empty() {
            pieces.extend(self.single().after());
        }
        let mut windows = Vec::new();
        for window in pieces.chunks(self.longest - before.len()) {
            let ids: Vec<u32> = before.iter().chain(window).copied().collect();
            if ids.len() < 2 {
                continue;
            }
            let target = ids[1..].iter().map(|&next| Some(next)).chain([None]).collect();
            let target = Target::PerToken(target);
            windows.push(Encoded { ids, types: Vec::new(), target, dropped: 0, pixels: None });
        }
        Ok(windows)
    }
}

/// A tokenizer has nothing to say about an image.
fn no_image() -> DataError {
    DataError::setting("image", &"an image", "a text: the model reads texts")
}

impl EncodeRows for Encoder<'_> {
    fn encode(&self, example: &Example) -> Result<Vec<Encoded>> {
        self.encode(example)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Row, Table, TableBuilder, Task, Tokenizer};

    fn table(task: Task, row: Row) -> Table {
        let mut builder = TableBuilder::new(task);
        builder.push(row).unwrap();
        builder.finish()
    }

    fn tokenizer() -> Tokenizer {
        Tokenizer::grow(["no chest pain no chest pain x"], 60).unwrap()
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
        let single = &tokenizer.templates().single;
        assert_eq!(encoded[0].ids.len(), 5);
        assert_eq!(encoded[0].dropped, 3);
        assert_eq!(encoded[0].ids[..1], single.before());
        assert_eq!(encoded[0].ids[4..], single.after());
        assert!(encoded[0].types.is_empty());
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
        let mut whole = tokenizer.pieces("no chest pain no chest pain x no").unwrap();
        whole.extend(tokenizer.templates().single.after());
        assert_eq!(told, whole);
    }

    #[test]
    fn a_pair_is_cut_to_length_with_its_types() {
        let row = Row::of(Body::Pair("no chest pain".into(), "no x".into())).with_labels(["a"]);
        let (table, tokenizer) = (table(Task::Classes, row), tokenizer());
        let encode = |longest| {
            let encoder = Encoder::new(&tokenizer, longest).unwrap();
            encoder.encode(&table.examples[0]).map(|mut all| all.remove(0))
        };
        let pieces = |text| tokenizer.pieces(text).unwrap();
        let whole = encode(20).unwrap();
        let expected = [vec![2], pieces("no chest pain"), vec![3], pieces("no x"), vec![3]];
        assert_eq!(whole.ids, expected.concat());
        assert_eq!(whole.types, [0, 0, 0, 0, 0, 1, 1, 1]);
        let cut = encode(6).unwrap();
        let expected = [vec![2], pieces("no chest"), vec![3], pieces("no"), vec![3]];
        assert_eq!((cut.ids, cut.dropped), (expected.concat(), 2));
        assert_eq!(cut.types, [0, 0, 0, 0, 1, 1]);
        let error = encode(3).unwrap_err().to_string();
        assert!(error.contains("more than the 3 special tokens of a pair"), "{error}");
    }
}
