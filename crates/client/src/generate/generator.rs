//! A decoder that continues writing: one token at a time, until something ends it.
//!
//! Tokens are pulled, so whoever shows them decides when to stop, and a peer that fails in between
//! leaves a generator that can be resumed.

use std::ops::ControlFlow;

use super::cached_decoder::CachedDecoder;
use super::sampling::Sampling;
use super::text_stream::TextStream;
use super::token_rules::{TextSoFar, TokenRules};
use crate::{ClientError, Result};
use fedra_compute::Tensor;

/// How often in a row, without a token in between, the way to a peer may be lost.
const MOST_LOSSES: u32 = 3;

/// How to write.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateSettings {
    /// How each token is chosen.
    pub sampling: Sampling,
    /// Most tokens.
    pub max_tokens: usize,
    /// Tokens that end the text and are not part of it.
    pub stop_tokens: Vec<u32>,
    /// What the model's own settings say about each token.
    pub rules: TokenRules,
}

/// Why there is no further token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A stop token was chosen.
    StopToken,
    /// A stop string was written.
    StopText,
    /// The most tokens were written.
    MaxTokens,
    /// The model has no further position.
    ContextFull,
    /// Whoever reads wants no more.
    Interrupted,
}

impl Ended {
    /// A short name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StopToken => "stop_token",
            Self::StopText => "stop_text",
            Self::MaxTokens => "max_tokens",
            Self::ContextFull => "context_full",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Writes what follows a prompt.
///
/// ```
/// use fedra_client::generate::{CachedDecoder, Ended, GenerateSettings, Generator, Sampling, TokenRules};
/// use fedra_compute::{Device, Seed};
/// use fedra_model::hf::Config;
/// use fedra_model::{Head, Model};
///
/// let config = Config { vocab_size: 50, hidden_size: 16, num_hidden_layers: 2,
///     num_attention_heads: 2, num_key_value_heads: Some(1), head_dim: Some(8), intermediate_size: 24,
///     ..Config::llama() };
/// let model = Model::new(config, Head::Language, None)?;
/// let device = Device::cpu();
/// let params = model.fresh_params(&device, Seed(1))?;
///
/// let (stop_tokens, rules) = (Vec::new(), TokenRules::default());
/// let settings = GenerateSettings { sampling: Sampling::Greedy, max_tokens: 5, stop_tokens, rules };
/// let decoder = CachedDecoder::whole(&device, &model, &params)?;
/// let mut generator = Generator::new(decoder, &[7, 3], settings)?;
/// let tokens = generator.by_ref().collect::<Result<Vec<u32>, _>>()?;
/// assert_eq!((tokens.len(), generator.ended), (5, Some(Ended::MaxTokens)));
/// # Ok::<(), fedra_client::ClientError>(())
/// ```
pub struct Generator<'a> {
    /// The decoder.
    pub decoder: CachedDecoder<'a>,
    settings: GenerateSettings,
    /// Tokens that the decoder has not been given.
    unread: Vec<u32>,
    /// Logits that were got by resuming.
    logits: Option<Tensor>,
    /// Tokens written so far.
    pub written: usize,
    /// Why it ended, once it has.
    pub ended: Option<Ended>,
}

impl<'a> Generator<'a> {
    /// A generator behind a prompt, which is read with the first token.
    pub fn new(
        decoder: CachedDecoder<'a>,
        prompt: &[u32],
        settings: GenerateSettings,
    ) -> Result<Self> {
        settings.sampling.check()?;
        if prompt.is_empty() {
            return Err(ClientError::generate("prompt", "no token", "at least one"));
        }
        if settings.max_tokens == 0 {
            return Err(ClientError::generate("most tokens", 0, "at least 1"));
        }
        let longest = decoder.longest();
        if decoder.tokens.len() + prompt.len() > longest {
            let found = format!("{} tokens", decoder.tokens.len() + prompt.len());
            let expected = format!("at most {longest}, the model's longest");
            return Err(ClientError::generate("prompt", found, expected));
        }
        let unread = prompt.to_vec();
        Ok(Self { decoder, settings, unread, logits: None, written: 0, ended: None })
    }

    /// The next token, or nothing once it has ended. After an error, [`Generator::resume`].
    pub fn next_token(&mut self) -> Result<Option<u32>> {
        if self.ended.is_some() {
            return Ok(None);
        }
        let logits = match self.logits.take() {
            Some(logits) => logits,
            None => self.decoder.read(&std::mem::take(&mut self.unread))?,
        };
        let token = self.choose(&logits)?;
        if self.settings.stop_tokens.contains(&token) {
            self.ended = Some(Ended::StopToken);
            return Ok(None);
        }
        self.written += 1;
        self.unread.push(token);
        if self.written == self.settings.max_tokens {
            self.ended = Some(Ended::MaxTokens);
        } else if self.decoder.tokens.len() == self.decoder.longest() {
            self.ended = Some(Ended::ContextFull);
        }
        Ok(Some(token))
    }

    /// The token that follows, where the rules allow it.
    fn choose(&self, logits: &Tensor) -> Result<u32> {
        let GenerateSettings { sampling, stop_tokens, rules, .. } = &self.settings;
        let index = self.written as u64;
        if rules.is_empty() {
            return sampling.choose_from(logits, index);
        }
        let text = TextSoFar { tokens: &self.decoder.tokens, written: self.written, stop_tokens };
        let mut logits = logits.to_host().into_owned();
        rules.apply(&mut logits, text);
        sampling.choose(&logits, index)
    }

    /// Continues after the peer failed and can be reached again.
    pub fn resume(&mut self) -> Result<()> {
        self.logits = Some(self.decoder.resume()?);
        Ok(())
    }

    /// Continues however often the way is lost again, up to a limit. A peer knows how long it tries to be
    /// reached each time.
    fn reach_again(&mut self, losses: &mut u32) -> Result<()> {
        loop {
            *losses += 1;
            match self.resume() {
                Err(ClientError::Unreachable(_)) if *losses < MOST_LOSSES => {}
                done => return done,
            }
        }
    }

    /// Writes text until the end, piece by piece; `show` says whether to go on. When the way to a peer
    /// is lost it continues where the peer is.
    pub fn write(
        &mut self,
        mut stream: TextStream<'_>,
        show: &mut dyn FnMut(Written<'_>) -> ControlFlow<()>,
    ) -> Result<Ended> {
        let mut losses = 0;
        loop {
            let token = match self.next_token() {
                Ok(Some(token)) => token,
                Ok(None) => break,
                Err(ClientError::Unreachable(_)) => {
                    self.reach_again(&mut losses)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            losses = 0;
            let new = stream.push(token)?;
            let reader = show(Written { token: Some(token), text: &new.text });
            if new.stopped {
                self.ended = Some(Ended::StopText);
                return Ok(Ended::StopText);
            }
            if reader.is_break() {
                self.ended = Some(Ended::Interrupted);
                break;
            }
        }
        let rest = stream.finish()?;
        if !rest.is_empty() {
            let _at_the_end = show(Written { token: None, text: &rest });
        }
        Ok(self.ended.unwrap_or(Ended::Interrupted))
    }
}

/// A token and the text that it completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written<'t> {
    /// The token; none for text that had waited for a token that never came.
    pub token: Option<u32>,
    /// The new text; may be empty.
    pub text: &'t str,
}

impl Iterator for Generator<'_> {
    type Item = Result<u32>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_token().transpose()
    }
}
