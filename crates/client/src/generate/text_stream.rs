//! Tokens to text, as they come and never half a character.
//!
//! A token may end in the middle of a character, and whether it begins with a blank depends on the one
//! before it. So a few tokens are read together: what their text says beyond what was already given
//! out is new, except for replacement characters at its end, which may be the beginning of a character
//! to come. A run of tokens that each stand for a byte waits until it ends, because one byte that fits nowhere makes
//! all of them unreadable. Text that may be the beginning of a stop string waits as well.

use crate::Result;
use fedra_data::Tokenizer;

/// A character has at most four bytes, so at most three of them wait for the rest.
const MOST_INCOMPLETE: usize = 3;

/// The text of a growing run of tokens.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    stops: Vec<String>,
    /// Tokens that are read together.
    window: Vec<u32>,
    /// How many of them were in the window before the last one that completed its text.
    before: usize,
    /// Bytes of the window's text that were given out or are in `held`.
    given: usize,
    /// Text that may begin a stop string.
    held: String,
    stopped: bool,
}

/// What a token added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewText {
    /// Text to show; may be empty.
    pub text: String,
    /// Whether a stop string was reached: neither it nor anything behind it is shown.
    pub stopped: bool,
}

impl<'a> TextStream<'a> {
    /// Nothing yet; text ends where one of `stops` begins. Empty ones are left out.
    pub fn new(tokenizer: &'a Tokenizer, stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        let (window, held) = (Vec::new(), String::new());
        Self { tokenizer, stops, window, before: 0, given: 0, held, stopped: false }
    }

    /// The text before the first token, so that the first one knows what it follows.
    pub fn after(mut self, prompt: &[u32]) -> Result<Self> {
        const ENOUGH: usize = 8;
        let mut from = prompt.len().saturating_sub(ENOUGH);
        while from > 0 && self.needs_others(prompt[from])? {
            from -= 1;
        }
        self.window = prompt[from..].to_vec();
        self.before = self.window.len();
        self.given = complete(&self.tokenizer.text(&self.window)?);
        Ok(self)
    }

    /// Reads the next token.
    pub fn push(&mut self, token: u32) -> Result<NewText> {
        if self.stopped {
            return Ok(NewText { text: String::new(), stopped: true });
        }
        self.window.push(token);
        if self.needs_others(token)? {
            return Ok(self.release());
        }
        let text = self.tokenizer.text(&self.window)?;
        let end = complete(&text);
        if let Some(new) = text.get(self.given..end) {
            self.held.push_str(new);
            self.given = end;
        }
        if end == text.len() {
            // The next token is read with those of this step, and no longer with older ones.
            self.window.drain(..self.before);
            self.before = self.window.len();
            self.given = self.tokenizer.text(&self.window)?.len();
        }
        Ok(self.release())
    }

    /// Whether a token says nothing on its own: one of a run of bytes, or one without text, behind which the next
    /// would lose its blank.
    fn needs_others(&self, token: u32) -> Result<bool> {
        Ok(self.tokenizer.is_byte(token) || self.tokenizer.text(&[token])?.is_empty())
    }

    /// Whatever still waits, once no token follows.
    pub fn finish(mut self) -> Result<String> {
        if self.stopped {
            return Ok(String::new());
        }
        let text = self.tokenizer.text(&self.window)?;
        self.held.push_str(text.get(self.given..).unwrap_or_default());
        let released = self.release();
        Ok(if released.stopped { released.text } else { released.text + &self.held })
    }

    /// Takes from what is held all that can no longer be part of a stop string.
    fn release(&mut self) -> NewText {
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop)).min();
        if let Some(at) = found {
            self.stopped = true;
            self.held.truncate(at);
            return NewText { text: std::mem::take(&mut self.held), stopped: true };
        }
        let begins = |from: usize| {
            let tail = &self.held[from..];
            self.stops.iter().any(|stop| stop.starts_with(tail))
        };
        let waits = self.held.char_indices().map(|(at, _)| at).find(|&at| begins(at));
        let rest = self.held.split_off(waits.unwrap_or(self.held.len()));
        NewText { text: std::mem::replace(&mut self.held, rest), stopped: false }
    }
}

/// Where the characters end that further tokens cannot change.
fn complete(text: &str) -> usize {
    const REPLACED: char = char::REPLACEMENT_CHARACTER;
    let last = text.chars().rev().take(MOST_INCOMPLETE);
    text.len() - last.take_while(|letter| *letter == REPLACED).count() * REPLACED.len_utf8()
}
