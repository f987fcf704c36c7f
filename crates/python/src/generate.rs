//! What a decoder writes behind a prompt, or answers in a conversation.

use std::ops::ControlFlow;
use std::path::PathBuf;

use fedra::apply::text_decoder::{TextDecoder, prompt_tokens};
use fedra::prepare::chat;
use fedra_client::generate::{
    CachedDecoder, ChatSession, GenerateSettings, Generator, RandomSampling, Sampling, TextStream,
};
use fedra_compute::{Device, Seed};
use fedra_data::{Message, Role, messages_of_json};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::{failed, raised, refused};
use crate::predict::{choice, opened};
use crate::values::python_of;

/// What somebody wants an answer to.
#[derive(FromPyObject)]
pub enum Asked {
    /// A text that goes on.
    #[pyo3(transparent)]
    Prompt(String),
    /// The messages of a conversation in JSON, and how they are written for the model.
    #[pyo3(transparent)]
    Conversation((String, Option<PathBuf>)),
}

/// Writes a text behind a prompt, or an answer to the last message of a conversation; `heard` is called with each piece
/// as it is made.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python half has names and defaults for them")]
pub fn generate<'py>(
    py: Python<'py>,
    path: PathBuf,
    best: bool,
    base: Option<PathBuf>,
    prompt: Asked,
    max_tokens: usize,
    sampling: (Option<f64>, Option<usize>, Option<f64>, Option<u64>),
    stop: Vec<String>,
    device: Option<&str>,
    precision: Option<&str>,
    heard: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if max_tokens == 0 {
        return Err(refused(py, "max_tokens", "found 0, expected at least 1"));
    }
    if stop.iter().any(String::is_empty) {
        return Err(refused(py, "stop", "found an empty text, expected at least one letter"));
    }
    let (temperature, top_k, top_p, seed) = sampling;
    let sampling = match (temperature, top_k, top_p, seed) {
        (None, None, None, None) => Sampling::Greedy,
        (None, None, None, Some(_)) => {
            return Err(refused(py, "seed", "applies only with temperature, top_k or top_p"));
        }
        _ => Sampling::Random(RandomSampling {
            temperature: temperature.unwrap_or(1.0),
            top_k,
            top_p,
            seed: Seed(seed.unwrap_or(0)),
        }),
    };
    sampling.check().map_err(|error| failed(py, error))?;
    let asked = match prompt {
        Asked::Prompt(text) => Subject::Text(text),
        Asked::Conversation((messages, template)) => {
            Subject::Messages(conversation(py, &messages)?, template)
        }
    };
    let choice = choice(py, path, best, base)?;
    let device = opened(py, device, precision)?;
    let heard = heard.map(|heard| heard.clone().unbind());
    let written = py.detach(|| -> fedra::Result<_> {
        let decoder = TextDecoder::open(&choice.folders()?, &device)?;
        let settings = decoder.generation.settings(sampling, max_tokens);
        let mut thrown = None;
        // Callbacks and Ctrl-C, between two tokens.
        let mut tell = |text: &str| {
            let told = Python::attach(|py| {
                if let Some(heard) = &heard {
                    heard.call1(py, (text,))?;
                }
                py.check_signals()
            });
            match told {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    thrown = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let written = match asked {
            Subject::Text(prompt) => {
                behind((&decoder, &device), &prompt, (settings, stop), &mut tell)
            }
            Subject::Messages(messages, template) => {
                let asked = (messages, template);
                answer((&decoder, &device), asked, (settings, stop), &mut tell)
            }
        };
        Ok(match thrown {
            None => Ok(written?),
            Some(error) => Err(error),
        })
    });
    python_of(py, &written.map_err(|error| raised(py, &error))??)
}

/// What is answered.
enum Subject {
    Text(String),
    Messages(Vec<Message>, Option<PathBuf>),
}

/// Whoever hears a text as it is made.
type Tell<'a> = &'a mut dyn FnMut(&str) -> ControlFlow<()>;

/// A conversation whose last message somebody wants an answer to.
fn conversation(py: Python<'_>, messages: &str) -> PyResult<Vec<Message>> {
    let messages = messages_of_json(messages).map_err(|(found, expected)| {
        refused(py, "prompt", &format!("found {found}, expected {expected}"))
    })?;
    match messages.last() {
        Some(last) if last.role == Role::User => Ok(messages),
        Some(_) | None => {
            let sentence = "expected a message of the user at the end, which is answered";
            Err(refused(py, "prompt", sentence))
        }
    }
}

/// What a decoder writes behind a text.
fn behind(
    (decoder, device): (&TextDecoder, &Device),
    prompt: &str,
    (settings, stop): (GenerateSettings, Vec<String>),
    tell: Tell<'_>,
) -> fedra::Result<Value> {
    let TextDecoder { loaded, tokenizer, .. } = decoder;
    let prompt = prompt_tokens(tokenizer, prompt)?;
    let cached = CachedDecoder::whole(device, &loaded.model, &loaded.params)?;
    let mut generator = Generator::new(cached, &prompt, settings)?;
    let stream = TextStream::new(tokenizer, stop).after(&prompt)?;
    let (mut text, mut tokens) = (String::new(), Vec::new());
    let ended = generator.write(stream, &mut |written| {
        tokens.extend(written.token);
        text.push_str(written.text);
        tell(written.text)
    })?;
    let prompt_tokens = prompt.len();
    Ok(
        json!({ "text": text, "tokens": tokens, "prompt_tokens": prompt_tokens, "ended": ended.name(), "notes": [] }),
    )
}

/// What a decoder answers in a conversation.
fn answer(
    (decoder, device): (&TextDecoder, &Device),
    (messages, template): (Vec<Message>, Option<PathBuf>),
    (mut settings, stop): (GenerateSettings, Vec<String>),
    tell: Tell<'_>,
) -> fedra::Result<Value> {
    let TextDecoder { loaded, tokenizer, .. } = decoder;
    let end = loaded.model.config().eos_token_ids.first().copied();
    let template = chat::template(template.as_deref(), (&loaded.companions, tokenizer), end)?;
    let turn_end = template.ends_with().and_then(|end| tokenizer.token_id(&end));
    settings.stop_tokens.extend(turn_end);
    let make = Box::new(|| CachedDecoder::whole(device, &loaded.model, &loaded.params));
    let mut session = ChatSession::new(messages, (&template, tokenizer), make);
    let answer = session.answer(&settings, &stop, tell)?;
    Ok(json!({
        "text": answer.text,
        "tokens": answer.tokens,
        "prompt_tokens": answer.prompt,
        "ended": answer.ended.name(),
        "notes": chat::notes(&template),
    }))
}
