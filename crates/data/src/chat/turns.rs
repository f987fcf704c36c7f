//! A written conversation, and where in it the assistant speaks.
//!
//! Some templates mark that themselves (`{% generation %}`). For others each answer carries two marks
//! through the template; that the text is the same without them shows that they changed nothing. An
//! answer begins where the template's own beginning of an answer ends, because from there on the model
//! writes, and it ends with the special token that ends its turn.
//!
//! ```text
//! <|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\nBecause.<|im_end|>\n
//!                                                         ^^^^^^^^^^^^^^^^^^
//! ```
//! A template may write an earlier turn otherwise once more turns follow. An answer is only learned where
//! the text in front of it is what the model would have read when it was to be written; others are counted.
//! If that leaves none, the last answer is learned behind the prompt that it has at its time.

use std::ops::Range;

use super::guard::{CLOSE, OPEN};
use super::message::{Message, Role};
use super::template::ChatTemplate;
use crate::{DataError, Result};

/// A conversation as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenTurns {
    /// The text, with guards in special tokens that messages spell.
    pub text: String,
    /// Where answers stand, in bytes, ascending.
    pub answers: Vec<Range<usize>>,
    /// Answers that are not learned, because what stands before them was written otherwise when they were due.
    pub passed_over: usize,
}

impl ChatTemplate {
    /// Writes a conversation and finds its answers from a message on.
    pub(crate) fn turns(&self, messages: &[Message], from: usize) -> Result<WrittenTurns> {
        Self::check(messages)?;
        if self.has_marks {
            let marked = self.marked(messages, false)?;
            let Some((text, mut answers)) = without_marks(&marked) else {
                return Err(unfound("blocks of generation that are inside of each other"));
            };
            let earlier = messages[..from].iter().filter(|it| it.role == Role::Assistant).count();
            answers.drain(..earlier.min(answers.len()));
            return Ok(WrittenTurns { text, answers, passed_over: 0 });
        }
        let text = self.text(messages, false)?;
        let places: Vec<usize> =
            (from..messages.len()).filter(|&place| speaks(&messages[place])).collect();
        let spans = self.words(messages, &places, &text);
        let last = spans.iter().rev().flatten().next();
        let end = last.map_or("", |last| self.end_of_turn(&text[last.end..]));
        let (mut answers, mut passed_over) = (Vec::new(), 0);
        for (&place, span) in places.iter().zip(&spans) {
            let found = match span {
                Some(span) => self
                    .start(&messages[..place], (&text, span.start))
                    .map(|start| start..span.end + length_of_end(&text[span.end..], end)),
                None if place + 1 == messages.len() => {
                    self.behind_prompt(&messages[..place], &text)
                }
                None => None,
            };
            match found {
                Some(answer) => answers.push(answer),
                None => passed_over += 1,
            }
        }
        if answers.is_empty() {
            return self.last_turn((messages, from), (&text, spans.last().cloned().flatten()));
        }
        Ok(WrittenTurns { text, answers, passed_over })
    }

    /// Where the words of the messages at these places are in the text that the template writes; `None` for one
    /// that it changes.
    fn words(
        &self,
        messages: &[Message],
        places: &[usize],
        text: &str,
    ) -> Vec<Option<Range<usize>>> {
        let find = |places: &[usize]| {
            let marked = |(place, message): (usize, &Message)| {
                if places.contains(&place) { marked(message) } else { message.clone() }
            };
            let marked: Vec<Message> = messages.iter().enumerate().map(marked).collect();
            let (same, spans) = without_marks(&self.marked(&marked, false).ok()?)?;
            (same == text && spans.len() == places.len()).then_some(spans)
        };
        if let Some(spans) = find(places) {
            return spans.into_iter().map(Some).collect();
        }
        places.iter().map(|&place| find(&[place]).and_then(|mut spans| spans.pop())).collect()
    }

    /// Where the model begins to write an answer whose words begin at a place; `None` where what is in front of
    /// it is not what it would have read.
    fn start(&self, before: &[Message], (text, words): (&str, usize)) -> Option<usize> {
        if let Ok(prompt) = self.text(before, true)
            && text.starts_with(&prompt)
            && prompt.len() <= words
        {
            return Some(prompt.len());
        }
        match self.text(before, false) {
            // It may refuse messages that end there.
            Err(_) => Some(words),
            Ok(read) => text.starts_with(read.trim_end()).then_some(words),
        }
    }

    /// What ends a turn, of the text behind an answer: up to its first special token, or all of it.
    fn end_of_turn<'t>(&self, behind: &'t str) -> &'t str {
        self.first_special(behind).map_or(behind, |(_, end)| &behind[..end])
    }

    /// What follows the prompt of the last answer, to the last special token, or all of it.
    fn behind_prompt(&self, before: &[Message], text: &str) -> Option<Range<usize>> {
        let start = self.text(before, true).ok().filter(|prompt| text.starts_with(prompt))?.len();
        let mut end = start;
        while let Some((_, behind)) = self.first_special(&text[end..]) {
            end += behind;
        }
        Some(start..if end == start { text.len() } else { end })
    }

    /// The last answer behind its own prompt, where the template writes that prompt otherwise once it is answered.
    fn last_turn(
        &self,
        (messages, from): (&[Message], usize),
        (text, words): (&str, Option<Range<usize>>),
    ) -> Result<WrittenTurns> {
        let place = messages.iter().rposition(speaks).unwrap_or_default();
        let Some(words) = words.filter(|_| place + 1 == messages.len()) else {
            return Err(unfound("a chat template that changes what the assistant says"));
        };
        let prompt = self.text(&messages[..place], true)?;
        let blanks = |text: &str| text.len() - text.trim_end().len();
        // Blanks between a prompt and the words are the model's to write, but for those that the prompt has.
        let between = blanks(&text[..words.start]).saturating_sub(blanks(&prompt));
        let answer = &text[words.start - between..words.end];
        let answer = format!("{answer}{}", self.end_of_turn(&text[words.end..]));
        let (start, text) = (prompt.len(), prompt + &answer);
        let passed_over = messages[from..place].iter().filter(|message| speaks(message)).count();
        let answer = start..text.len();
        Ok(WrittenTurns { text, answers: vec![answer], passed_over })
    }

    /// The special token that ends what the assistant says, where the template writes one.
    pub fn ends_with(&self) -> Option<String> {
        let messages = [Message::new(Role::User, "a"), Message::new(Role::Assistant, "b")];
        let turns = self.turns(&messages, 1).ok()?;
        let answer = turns.answers.last()?;
        // The end may be outside of a block that a template marks.
        let behind = &turns.text[answer.start..];
        let (at, end) = self.first_special(behind)?;
        Some(behind[at..end].to_owned())
    }
}

/// How much of the text behind an answer ends its turn as another one's ends. Blanks in front of that may be the
/// answer's own.
fn length_of_end(behind: &str, end: &str) -> usize {
    let (shown, rest) = match end.trim_start() {
        "" => (end, behind),
        shown => (shown, behind.trim_start()),
    };
    if rest.starts_with(shown) { behind.len() - rest.len() + shown.len() } else { 0 }
}

/// Whether a message is an answer with words.
fn speaks(message: &Message) -> bool {
    message.role == Role::Assistant && !message.content.trim().is_empty()
}

/// A message with marks around what it says, inside of blanks that a template may cut off.
fn marked(message: &Message) -> Message {
    let content = &message.content;
    let start = content.len() - content.trim_start().len();
    let end = content.trim_end().len();
    let (before, words, after) = (&content[..start], &content[start..end], &content[end..]);
    Message::new(message.role, format!("{before}{OPEN}{words}{CLOSE}{after}"))
}

/// The text without marks and what stood between them; `None` where they are not in pairs.
fn without_marks(marked: &str) -> Option<(String, Vec<Range<usize>>)> {
    let (mut text, mut spans, mut open) = (String::with_capacity(marked.len()), Vec::new(), None);
    for letter in marked.chars() {
        match (letter, open) {
            (OPEN, None) => open = Some(text.len()),
            (CLOSE, Some(start)) => {
                spans.push(start..text.len());
                open = None;
            }
            (OPEN | CLOSE, _) => return None,
            (letter, _) => text.push(letter),
        }
    }
    open.is_none().then_some((text, spans))
}

/// Answers that cannot be told apart from what surrounds them.
fn unfound(found: &str) -> DataError {
    let expected = "a template in which they can be found: one with blocks {% generation %} around them says where \
                    they are";
    DataError::setting("conversation", &found, expected)
}
