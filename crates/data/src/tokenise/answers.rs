//! A prompt and what may follow it, as tokens.
//!
//! Prompt and answer are cut into pieces together, as the model saw text when it was trained, and
//! the answer is what comes behind the pieces that the prompt alone has too. So all answers of a row
//! follow the very same tokens, and their likelihoods compare. One blank stands between prompt and
//! answer, unless either has white space there. A prompt that is too long loses its beginning: the
//! question mostly stands at its end.

use super::encode::Encoder;
use super::encoded::{Candidate, Encoded, EncodedChoice, EncodedText, LengthNorm, Target};
use crate::{Choice, DataError, Result};

impl Encoder<'_> {
    /// The prompt with the right answer; the others beside it.
    pub(super) fn choice(&self, prompt: &str, choice: &Choice) -> Result<Encoded> {
        let answers: Vec<&str> = choice.candidates.iter().map(|(_, text)| text.as_str()).collect();
        let (shared, tails) = self.continued(prompt, &answers)?;
        let longest = tails.iter().map(Vec::len).max().unwrap_or(0);
        let (ids, dropped) = self.prompt(&shared, longest)?;
        let candidate = |((label, text), ids): (&(u32, String), Vec<u32>)| {
            let length = match self.rules.length_norm {
                LengthNorm::None => 1,
                LengthNorm::Tokens => ids.len(),
                LengthNorm::Characters => text.trim().chars().count(),
            };
            Candidate { label: *label, ids, length: length.max(1) as u32 }
        };
        let candidates: Vec<Candidate> =
            choice.candidates.iter().zip(tails).map(candidate).collect();
        let right = candidates.iter().find(|candidate| candidate.label == choice.label);
        let right = right.map(|candidate| candidate.ids.clone()).unwrap_or_default();
        let target = EncodedChoice { prompt: ids.len(), label: choice.label, candidates };
        let ids = [ids, right].concat();
        Ok(Encoded {
            ids,
            types: Vec::new(),
            target: Target::Choice(target),
            dropped,
            pixels: None,
        })
    }

    /// The prompt with the text that should follow and the token that ends it.
    pub(super) fn written(&self, prompt: &str, text: &str) -> Result<Encoded> {
        let (shared, mut tails) = self.continued(prompt, &[text])?;
        let mut tail = tails.pop().unwrap_or_default();
        tail.extend(self.rules.end);
        let most = self.rules.max_new_tokens;
        let (ids, dropped) = self.prompt(&shared, most)?;
        let lost = tail.len().saturating_sub(most);
        tail.truncate(most);
        let target = EncodedText { prompt: ids.len(), reference: text.to_owned() };
        let (ids, dropped) = ([ids, tail].concat(), dropped + lost);
        Ok(Encoded { ids, types: Vec::new(), target: Target::Text(target), dropped, pixels: None })
    }

    /// The pieces that all continuations of a prompt begin with, and what each adds to them.
    fn continued(&self, prompt: &str, answers: &[&str]) -> Result<(Vec<u32>, Vec<Vec<u32>>)> {
        let mut shared = self.tokenizer.pieces(prompt)?;
        let mut whole = Vec::with_capacity(answers.len());
        for answer in answers {
            let apart = prompt.ends_with(char::is_whitespace)
                || answer.starts_with(char::is_whitespace)
                || prompt.is_empty();
            let joiner = if apart { "" } else { " " };
            whole.push(self.tokenizer.pieces(&format!("{prompt}{joiner}{answer}"))?);
        }
        for pieces in &whole {
            let same = shared.iter().zip(pieces).take_while(|(one, other)| one == other).count();
            shared.truncate(same);
        }
        for (pieces, answer) in whole.iter_mut().zip(answers) {
            pieces.drain(..shared.len());
            if pieces.is_empty() {
                let expected = "an answer with at least one token";
                return Err(DataError::setting("answer", &format!("{answer:?}"), expected));
            }
        }
        Ok((shared, whole))
    }

    /// The opening tokens and the end of a prompt, with room for so many tokens behind it; and how
    /// many pieces that costs.
    fn prompt(&self, pieces: &[u32], behind: usize) -> Result<(Vec<u32>, usize)> {
        let mut ids = self.single().before();
        let room = self.longest.saturating_sub(ids.len() + behind);
        if room == 0 {
            let expected = format!("more than the {behind} tokens that may follow a prompt");
            return Err(DataError::setting("max_tokens", &self.longest, expected));
        }
        let dropped = pieces.len().saturating_sub(room);
        ids.extend_from_slice(&pieces[dropped..]);
        if ids.is_empty() {
            let expected = "a prompt with at least one token: this tokenizer adds no token itself";
            return Err(DataError::setting("prompt", &"an empty text", expected));
        }
        Ok((ids, dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AnswerRules;
    use crate::{Answers, Row, TableBuilder, Task, Tokenizer};

    fn tokenizer() -> Tokenizer {
        Tokenizer::grow(["no chest pain no chest pain x yes yes"], 60).unwrap()
    }

    fn encode(encoder: &Encoder<'_>, task: Task, row: Row) -> Result<Encoded> {
        let mut builder = TableBuilder::new(task);
        builder.push(row).unwrap();
        encoder.encode(&builder.finish().examples[0]).map(|mut all| all.remove(0))
    }

    fn asked(prompt: &str) -> Row {
        let answers = [("b", "yes"), ("a", "no pain")].map(|(l, t)| (l.to_owned(), t.to_owned()));
        let row = Row::text(prompt).with_labels(["b"]);
        Row { answers: Answers::Choice(answers.to_vec()), ..row }
    }

    #[test]
    fn answers_follow_one_prompt_and_the_right_one_is_learnt() {
        let tokenizer = tokenizer();
        let encoder = Encoder::new(&tokenizer, 20).unwrap();
        let encoded = encode(&encoder, Task::Choice, asked("chest pain")).unwrap();
        let pieces = |text| tokenizer.pieces(text).unwrap();
        assert_eq!(encoded.ids, [vec![2], pieces("chest pain yes")].concat());
        let Target::Choice(choice) = encoded.target else { panic!() };
        assert_eq!((choice.prompt, choice.label), (3, 1));
        let found: Vec<_> = choice.candidates.iter().map(|c| (c.label, c.ids.clone())).collect();
        assert_eq!(found, [(0, pieces("no pain")), (1, pieces("yes"))]);
    }

    #[test]
    fn a_long_prompt_loses_its_beginning_and_no_answer_is_cut() {
        let tokenizer = tokenizer();
        let encoder = Encoder::new(&tokenizer, 5).unwrap();
        let encoded = encode(&encoder, Task::Choice, asked("x no chest pain")).unwrap();
        let pieces = |text| tokenizer.pieces(text).unwrap();
        assert_eq!(encoded.ids, [vec![2], pieces("chest pain yes")].concat());
        assert_eq!(encoded.dropped, 2);
        let refused = encode(&Encoder::new(&tokenizer, 3).unwrap(), Task::Choice, asked("x"));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("max_tokens = 3"), "{refused}");
    }

    #[test]
    fn answers_that_begin_alike_share_a_sequence() {
        let candidate = |ids: &[u32]| Candidate { label: 0, ids: ids.to_vec(), length: 1 };
        let carriers = |answers: &[&[u32]]| {
            let candidates = answers.iter().map(|ids| candidate(ids)).collect();
            EncodedChoice { prompt: 1, label: 0, candidates }.carriers()
        };
        assert_eq!(carriers(&[&[5], &[6], &[7]]), [0, 0, 0]);
        assert_eq!(carriers(&[&[5], &[5, 6, 7], &[6, 8], &[5, 9]]), [1, 1, 2, 1]);
    }

    #[test]
    fn lengths_divide_as_asked() {
        let tokenizer = tokenizer();
        for (length_norm, expected) in [
            (LengthNorm::None, [1, 1]),
            (LengthNorm::Tokens, [2, 1]),
            (LengthNorm::Characters, [7, 3]),
        ] {
            let rules = AnswerRules { length_norm, ..AnswerRules::default() };
            let encoder = Encoder::new(&tokenizer, 9).unwrap().with_rules(rules);
            let encoded = encode(&encoder, Task::Choice, asked("x")).unwrap();
            let Target::Choice(choice) = encoded.target else { panic!() };
            assert_eq!(choice.candidates.iter().map(|c| c.length).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_text_ends_with_its_token_unless_it_is_cut() {
        let tokenizer = tokenizer();
        let encode = |max_new_tokens, text: &str| {
            let rules = AnswerRules { max_new_tokens, end: Some(3), ..AnswerRules::default() };
            let encoder = Encoder::new(&tokenizer, 8).unwrap().with_rules(rules);
            let row = Row::text("no chest pain x x");
            let row = Row { answers: Answers::Text(text.to_owned()), ..row };
            encode(&encoder, Task::Generation, row)
        };
        let pieces = |text| tokenizer.pieces(text).unwrap();
        let whole = encode(4, "yes no").unwrap();
        assert_eq!(whole.ids, [vec![2], pieces("pain x x yes no"), vec![3]].concat());
        assert_eq!(whole.dropped, 2);
        let cut = encode(4, "yes no yes no pain").unwrap();
        assert_eq!(cut.ids, [vec![2], pieces("pain x x yes no yes no")].concat());
        let Target::Text(text) = cut.target else { panic!() };
        assert_eq!((text.prompt, text.reference.as_str()), (4, "yes no yes no pain"));
        assert!(encode(8, "yes").is_err());
    }
}
