//! Models under names, and what one of them writes for a request.

use std::ops::ControlFlow;
use std::path::Path;

use fedra_client::ClientError;
use fedra_client::generate::{
    CachedDecoder, Ended, Generator, RandomSampling, Sampling, TextStream, Written,
};
use fedra_compute::{Device, Seed};
use fedra_data::ChatTemplate;
use serde_json::Value;

use super::api_error::ApiError;
use super::decoders::Decoders;
use super::model_list::ModelList;
use super::reply::{AnswerSink, Reply, usage};
use super::request::{Asked, CompletionRequest};
use crate::apply::text_decoder::{TextDecoder, prompt_tokens};
use crate::error::{Error, Result, refuse};
use crate::prepare::chat;

/// Tokens of a prompt that are read before it is looked whether somebody still waits for the answer.
const GLANCE: usize = 256;

/// A model under a name.
pub struct ServedModel {
    /// What clients call it.
    pub name: String,
    /// The model.
    pub decoder: TextDecoder,
    /// How it reads conversations.
    template: ChatTemplate,
    /// What ends its turns, besides its end tokens.
    turn_end: Option<u32>,
}

impl ServedModel {
    /// A model, with the chat template that is chosen, or else its own.
    pub fn new(name: String, decoder: TextDecoder, template: Option<&Path>) -> Result<Self> {
        let TextDecoder { loaded, tokenizer, .. } = &decoder;
        let end = loaded.model.config().eos_token_ids.first().copied();
        let template = chat::template(template, (&loaded.companions, tokenizer), end)?;
        let turn_end = template.ends_with().and_then(|end| tokenizer.token_id(&end));
        Ok(Self { name, decoder, template, turn_end })
    }

    /// What a person should know of it.
    pub fn notes(&self) -> Vec<String> {
        chat::notes(&self.template).into_iter().chain(self.decoder.generation.note()).collect()
    }

    /// A decoder with all its blocks here.
    pub fn whole(&self, device: &Device) -> Result<CachedDecoder<'_>> {
        let loaded = &self.decoder.loaded;
        Ok(CachedDecoder::whole(device, &loaded.model, &loaded.params)?)
    }
}

/// What bounds an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteLimits {
    /// Most tokens of an answer.
    pub max_tokens: usize,
    /// Most tokens of a prompt and its answer; the model's longest where there is none.
    pub context: Option<usize>,
}

/// All models that are served.
pub struct ServedModels {
    models: Vec<ServedModel>,
    limits: WriteLimits,
    /// Their names.
    pub list: ModelList,
}

/// What distinguishes an answer from all others.
#[derive(Clone, Debug)]
pub struct AnswerOrigin {
    /// Its name.
    pub id: String,
    /// When it was begun, in seconds since 1970.
    pub created: u64,
    /// For a request without a seed.
    pub seed: Seed,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It was answered, with so many tokens.
    Whole(usize),
    /// Its client hung up.
    Gone,
    /// It was refused, or failed.
    Refused(ApiError),
}

/// Why there is no whole answer.
enum Broken {
    Gone,
    Refused(ApiError),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        // Messages that the template refuses, a prompt without a token.
        let is_refusal = matches!(&error, Error::Data(_) | Error::Refused(_));
        let status = if is_refusal { 400 } else { 500 };
        Self::Refused(ApiError::new(status, error.in_words()))
    }
}

impl From<ClientError> for Broken {
    fn from(error: ClientError) -> Self {
        Error::from(error).into()
    }
}

impl ServedModels {
    /// Serves these from a time on, in seconds since 1970.
    pub fn new(models: Vec<ServedModel>, limits: WriteLimits, since: u64) -> Result<Self> {
        let names = models.iter().map(|model| model.name.clone()).collect();
        let list = ModelList::new(names, since)?;
        Ok(Self { models, limits, list })
    }

    /// All of them.
    pub fn models(&self) -> &[ServedModel] {
        &self.models
    }

    /// Answers a request; `stops` says whether the server ends.
    pub fn answer<'m>(
        &'m self,
        request: &CompletionRequest,
        (decoders, origin): (&Decoders<'m>, AnswerOrigin),
        sink: &mut dyn AnswerSink,
        stops: &dyn Fn() -> bool,
    ) -> Answered {
        let AnswerOrigin { id, created, seed } = origin;
        let is_chat = request.is_chat();
        let reply = Reply { id, created, model: request.model.clone(), is_chat };
        let mut writing = Writing { request, reply, sink, stops, begun: false };
        match self.write(&mut writing, decoders, seed) {
            Ok(tokens) => Answered::Whole(tokens),
            Err(Broken::Gone) => Answered::Gone,
            Err(Broken::Refused(error)) => {
                let Writing { sink, begun, .. } = writing;
                if begun {
                    sink.event(&error.json().to_string());
                    sink.end();
                } else {
                    sink.whole(error.status, &error.json());
                }
                Answered::Refused(error)
            }
        }
    }

    /// Writes; returns the number of tokens.
    fn write<'m>(
        &'m self,
        writing: &mut Writing<'_>,
        decoders: &Decoders<'m>,
        seed: Seed,
    ) -> Result<usize, Broken> {
        writing.look()?;
        let request = writing.request;
        let number = self.list.find(&request.model).map_err(Broken::Refused)?;
        let model = &self.models[number];
        let TextDecoder { tokenizer, generation, .. } = &model.decoder;
        let prompt = model.prompt(&request.asked)?;
        let mut decoder = decoders.take(number, &prompt)?;
        let context = self.limits.context.unwrap_or(usize::MAX).min(decoder.longest());
        // The last token of an answer is not read any more.
        let room = (context + 1).saturating_sub(prompt.len());
        if prompt.len() >= context {
            let found = format!(
                "found {} tokens, expected less than {context}, the longest that is read",
                prompt.len()
            );
            let field = if writing.reply.is_chat { "messages" } else { "prompt" };
            let error = ApiError::field(field, found).with_code("context_length_exceeded");
            return Err(Broken::Refused(error));
        }
        let max_tokens = self.limits.max_tokens.min(request.max_tokens.unwrap_or(usize::MAX));
        let mut settings = generation.settings(sampling(request, seed), max_tokens.min(room));
        settings.stop_tokens.extend(model.turn_end.filter(|_| writing.reply.is_chat));
        let stream = TextStream::new(tokenizer, request.stop.clone());
        let stream = stream.after(&prompt).map_err(Error::from)?;
        let cached = decoder.tokens.len();
        writing.begin();
        // What a cut decoder reads may have to be sent again, which the generator does.
        while !decoder.is_cut() && prompt.len() - decoder.tokens.len() > GLANCE {
            let from = decoder.tokens.len();
            decoder.read(&prompt[from..from + GLANCE])?;
            writing.look()?;
        }
        let unread = &prompt[decoder.tokens.len()..];
        let mut generator = Generator::new(decoder, unread, settings)?;
        let (mut text, mut tokens, mut broken) = (String::new(), 0, None);
        let ended = generator.write(stream, &mut |written: Written<'_>| {
            tokens += usize::from(written.token.is_some());
            // What a template puts in front of an answer may leave a blank to it.
            let is_first = writing.reply.is_chat && text.is_empty();
            let new = if is_first { written.text.trim_start() } else { written.text };
            if !new.is_empty() {
                text.push_str(new);
                writing.more(new);
            }
            match writing.look() {
                Ok(()) => ControlFlow::Continue(()),
                Err(why) => {
                    broken = Some(why);
                    ControlFlow::Break(())
                }
            }
        })?;
        decoders.put(number, generator.decoder);
        let finish = match ended {
            Ended::StopToken | Ended::StopText => "stop",
            Ended::MaxTokens | Ended::ContextFull => "length",
            Ended::Interrupted => return Err(broken.unwrap_or(Broken::Gone)),
        };
        writing.finish(&text, finish, usage((prompt.len(), cached), tokens));
        Ok(tokens)
    }
}

impl ServedModel {
    /// The tokens that a request is about.
    fn prompt(&self, asked: &Asked) -> Result<Vec<u32>> {
        let tokenizer = &self.decoder.tokenizer;
        Ok(match asked {
            Asked::Messages(messages) => self.template.prompt(messages, tokenizer)?,
            Asked::Text(text) => prompt_tokens(tokenizer, text)?,
            Asked::Tokens(tokens) => {
                let words = self.decoder.loaded.model.vocabulary();
                if let Some(token) = tokens.iter().find(|token| **token as usize >= words) {
                    refuse!("prompt: found the token {token}, expected less than {words}");
                }
                if tokens.is_empty() {
                    refuse!("prompt: found no token, expected at least one");
                }
                tokens.clone()
            }
        })
    }
}

fn sampling(request: &CompletionRequest, seed: Seed) -> Sampling {
    let CompletionRequest { temperature, top_p, top_k, .. } = *request;
    if temperature == 0.0 {
        return Sampling::Greedy;
    }
    let seed = request.seed.map_or(seed, Seed);
    let top_p = (top_p < 1.0).then_some(top_p);
    Sampling::Random(RandomSampling { temperature, top_k, top_p, seed })
}

/// An answer on its way.
struct Writing<'w> {
    request: &'w CompletionRequest,
    reply: Reply,
    sink: &'w mut dyn AnswerSink,
    stops: &'w dyn Fn() -> bool,
    /// Whether an event went out.
    begun: bool,
}

impl Writing<'_> {
    /// Whether to go on.
    fn look(&self) -> Result<(), Broken> {
        if self.sink.is_gone() {
            return Err(Broken::Gone);
        }
        if (self.stops)() {
            return Err(Broken::Refused(ApiError::new(503, "the server is stopping")));
        }
        Ok(())
    }

    fn begin(&mut self) {
        if let Some(first) = self.reply.first().filter(|_| self.request.stream) {
            self.event(&first);
        }
    }

    fn more(&mut self, text: &str) {
        if self.request.stream {
            self.event(&self.reply.more(text));
        }
    }

    fn event(&mut self, event: &Value) {
        self.begun = true;
        self.sink.event(&event.to_string());
    }

    fn finish(&mut self, text: &str, finish: &str, usage: Value) {
        if !self.request.stream {
            return self.sink.whole(200, &self.reply.whole(text, finish, usage));
        }
        self.event(&self.reply.finish(finish));
        if self.request.counts_tokens {
            self.event(&self.reply.usage(usage));
        }
        self.sink.event("[DONE]");
        self.sink.end();
    }
}
