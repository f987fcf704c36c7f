//! What a model's own settings say about the next token: which ones are penalised, and which ones are out of the question.
//!
//! The rules are those of `generation_config.json`, in the order and with the arithmetic of `transformers`. They apply to
//! the logits before a token is chosen, so greedy and drawn text follow them alike.
//!
//! ```text
//! repetition penalty p   a token that the text has: logit / p if it is positive, logit * p otherwise
//! everything else        logit = -inf
//! ```

/// Rules for each token; none by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenRules {
    /// Makes tokens that the text has, prompt included, less likely (above 1) or likelier (below).
    pub repetition_penalty: Option<f32>,
    /// No run of so many tokens is written twice.
    pub no_repeat_ngram: Option<usize>,
    /// Runs of tokens that are never written.
    pub bad_words: Vec<Vec<u32>>,
    /// The text, prompt included, does not end before it has so many tokens.
    pub min_length: usize,
    /// The text does not end before so many tokens are written.
    pub min_new_tokens: usize,
    /// Tokens that are never written.
    pub suppressed: Vec<u32>,
    /// Tokens that are not written first.
    pub suppressed_first: Vec<u32>,
}

/// The text so far, and what would end it.
#[derive(Clone, Copy, Debug)]
pub struct TextSoFar<'t> {
    /// All tokens, those of the prompt included.
    pub tokens: &'t [u32],
    /// How many of them were written.
    pub written: usize,
    /// Tokens that end the text.
    pub stop_tokens: &'t [u32],
}

impl TokenRules {
    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Changes the logits of the token that follows.
    ///
    /// ```
    /// use fedra_client::generate::{TextSoFar, TokenRules};
    ///
    /// let rules = TokenRules { repetition_penalty: Some(2.0), no_repeat_ngram: Some(2), ..TokenRules::default() };
    /// let text = TextSoFar { tokens: &[0, 1, 3, 0], written: 1, stop_tokens: &[] };
    /// let mut logits = [4.0, 3.0, 2.0, -1.0];
    /// rules.apply(&mut logits, text);
    /// assert_eq!(logits, [2.0, f32::NEG_INFINITY, 2.0, -2.0]);
    /// ```
    pub fn apply(&self, logits: &mut [f32], text: TextSoFar<'_>) {
        if let Some(penalty) = self.repetition_penalty {
            penalise(logits, text.tokens, penalty);
        }
        let mut forbid = |token: u32| {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = f32::NEG_INFINITY;
            }
        };
        if let Some(length) = self.no_repeat_ngram {
            repeated(text.tokens, length).for_each(&mut forbid);
        }
        completed(&self.bad_words, text).for_each(&mut forbid);
        if text.tokens.len() < self.min_length || text.written < self.min_new_tokens {
            text.stop_tokens.iter().copied().for_each(&mut forbid);
        }
        self.suppressed.iter().copied().for_each(&mut forbid);
        if text.written == 0 {
            self.suppressed_first.iter().copied().for_each(&mut forbid);
        }
    }
}

/// Once for each token, however often the text has it.
fn penalise(logits: &mut [f32], tokens: &[u32], penalty: f32) {
    let mut present = tokens.to_vec();
    present.sort_unstable();
    present.dedup();
    for token in present {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
        }
    }
}

/// The tokens that would complete a run which the text has already.
fn repeated(tokens: &[u32], length: usize) -> impl Iterator<Item = u32> {
    let start = (tokens.len() + 1).checked_sub(length);
    let runs = start.filter(|_| length > 0).map(|start| {
        let end = &tokens[start..];
        tokens.windows(length).filter_map(move |run| {
            let (last, before) = run.split_last()?;
            (before == end).then_some(*last)
        })
    });
    runs.into_iter().flatten()
}

/// The tokens that would complete a bad word. An end token alone is none.
fn completed<'w>(
    bad_words: &'w [Vec<u32>],
    TextSoFar { tokens, stop_tokens, .. }: TextSoFar<'w>,
) -> impl Iterator<Item = u32> {
    bad_words.iter().filter_map(move |word| {
        let (last, before) = word.split_last()?;
        let ends = before.is_empty() && stop_tokens.contains(last);
        (!ends && tokens.ends_with(before)).then_some(*last)
    })
}
