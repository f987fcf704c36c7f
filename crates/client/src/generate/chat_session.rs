//! A conversation with a decoder, turn by turn.
//!
//! The whole conversation is written by its template for every answer, as it was in training. What the
//! decoder has read already of that text stays in its caches, so a turn costs what is new in it: a
//! template that leaves earlier turns as they were is never read twice.

use std::ops::ControlFlow;

use fedra_data::{ChatTemplate, Message, Role, Tokenizer};
use fedra_model::RandomSampling;

use super::cached_decoder::CachedDecoder;
use super::generator::{Ended, GenerateSettings, Generator, Written};
use super::sampling::Sampling;
use super::text_stream::TextStream;
use crate::{ClientError, Result};

/// Makes a decoder that has read nothing.
pub type MakeDecoder<'a> = Box<dyn FnMut() -> Result<CachedDecoder<'a>> + 'a>;

/// A conversation that goes on.
pub struct ChatSession<'a> {
    /// All messages so far.
    pub messages: Vec<Message>,
    make: MakeDecoder<'a>,
    decoder: Option<CachedDecoder<'a>>,
    template: &'a ChatTemplate,
    tokenizer: &'a Tokenizer,
    /// Answers so far, each with draws of its own.
    answers: u64,
}

/// What an answer was.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatAnswer {
    /// Its text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Tokens of the conversation in front of it.
    pub prompt: usize,
    /// Those of them that had to be read for it.
    pub read: usize,
    /// Messages that were left out of the conversation, the oldest first, because the model reads no more.
    pub left_out: usize,
    /// Why it ended.
    pub ended: Ended,
}

impl<'a> ChatSession<'a> {
    /// A conversation that begins with these messages.
    pub fn new(
        messages: Vec<Message>,
        (template, tokenizer): (&'a ChatTemplate, &'a Tokenizer),
        make: MakeDecoder<'a>,
    ) -> Self {
        Self { messages, make, decoder: None, template, tokenizer, answers: 0 }
    }

    /// Has the model answer, and adds the answer to the messages. Text ends in front of one of `stops`; `show` is
    /// given it as it is made, and says whether to go on.
    pub fn answer(
        &mut self,
        settings: &GenerateSettings,
        stops: &[String],
        show: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<ChatAnswer> {
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => (self.make)()?,
        };
        let (prompt, left_out) = self.prompt(decoder.longest())?;
        let shared = decoder.tokens.iter().zip(&prompt).take_while(|(old, new)| old == new).count();
        // The last token is always read: what follows it is asked.
        let shared = shared.min(prompt.len().saturating_sub(1));
        if !decoder.keep(shared) {
            decoder = (self.make)()?;
        }
        let unread = &prompt[decoder.tokens.len()..];
        let settings = GenerateSettings { sampling: self.sampling(settings), ..settings.clone() };
        let stream = TextStream::new(self.tokenizer, stops.to_vec()).after(&prompt)?;
        let mut generator = Generator::new(decoder, unread, settings)?;
        let (mut text, mut tokens) = (String::new(), Vec::new());
        let ended = generator.write(stream, &mut |written: Written<'_>| {
            tokens.extend(written.token);
            text.push_str(written.text);
            show(written.text)
        })?;
        self.decoder = Some(generator.decoder);
        self.answers += 1;
        self.messages.push(Message::new(Role::Assistant, text.clone()));
        Ok(ChatAnswer { text, tokens, prompt: prompt.len(), read: unread.len(), left_out, ended })
    }

    /// The conversation as the model reads it. One that leaves no room for an answer loses its oldest exchanges.
    fn prompt(&self, longest: usize) -> Result<(Vec<u32>, usize)> {
        let system = usize::from(self.messages.first().is_some_and(|it| it.role == Role::System));
        let mut start = system;
        loop {
            let kept = [&self.messages[..system], &self.messages[start..]].concat();
            let prompt = self.template.prompt(&kept, self.tokenizer)?;
            if prompt.len() < longest {
                return Ok((prompt, start - system));
            }
            let next = (start + 1..self.messages.len())
                .find(|&place| self.messages[place].role == Role::User);
            let Some(next) = next else {
                let found = format!("{} tokens", prompt.len());
                let expected = format!("less than {longest}, the model's longest");
                return Err(ClientError::generate("conversation", found, expected));
            };
            start = next;
        }
    }

    fn sampling(&self, settings: &GenerateSettings) -> Sampling {
        match settings.sampling {
            Sampling::Random(random) if self.answers > 0 => {
                let seed = random.seed.of("answer").with(self.answers);
                Sampling::Random(RandomSampling { seed, ..random })
            }
            Sampling::Random(_) | Sampling::Greedy => settings.sampling,
        }
    }
}
