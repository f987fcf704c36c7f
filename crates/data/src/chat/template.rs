//! A chat template, ready to write conversations.

use std::fmt;
use std::path::PathBuf;

use minijinja::value::Value;
use minijinja::{Environment, context};

use super::declared::SpecialNames;
use super::guard::{self, CLOSE, GUARD, OPEN};
use super::jinja::{self, NAME};
use super::message::{self, Message};
use super::python::MOST_BYTES;
use crate::{DataError, Result, Tokenizer};

/// Most bytes of a template; the longest known ones, for tools, have a tenth of it.
const LONGEST: usize = 256 << 10;

/// The plain form for models that have no template, between what its tokenizer puts in front of a text and the token
/// that ends one.
const PLAIN: &str = "\
BEGIN{% for message in messages %}
{{ message.role }}: {{ message.content | trim }}{% if message.role == 'assistant' %}END{% endif %}

{% endfor %}
{% if add_generation_prompt %}
assistant:{% endif %}";

/// `ChatML`, for models that know its two tokens.
const CHATML: &str = "\
{% for message in messages %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}";

/// Where a template comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateOrigin {
    /// The model's own files.
    Model,
    /// A file that somebody named.
    File(PathBuf),
    /// One that is built in, by its name.
    BuiltIn(&'static str),
}

/// Writes conversations as a model reads them.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    origin: TemplateOrigin,
    names: SpecialNames,
    /// Special tokens that a message may not spell.
    specials: Vec<String>,
    /// Whether it says itself where the assistant speaks.
    pub(super) has_marks: bool,
}

impl ChatTemplate {
    /// A template for a tokenizer, whose special tokens have these names.
    pub fn new(
        (source, origin): (String, TemplateOrigin),
        names: SpecialNames,
        tokenizer: &Tokenizer,
    ) -> Result<Self> {
        let refuse =
            |found: String| Err(DataError::setting("chat_template", &found, "a template in Jinja"));
        if source.len() > LONGEST {
            return refuse(format!("{} bytes", source.len()));
        }
        if let Err((found, _)) = guard::check(&source) {
            return refuse(found);
        }
        let mut environment = jinja::environment();
        let (marked, has_marks) = jinja::with_marks(&source);
        if let Err(error) = environment.add_template_owned(NAME, marked) {
            return refuse(in_words(&error));
        }
        let specials = tokenizer.special_texts();
        Ok(Self { environment, source, origin, names, specials, has_marks })
    }

    /// The form of a model without a template: `ChatML` where the tokenizer knows its tokens, else plain text.
    /// `end` is the token that ends its texts.
    pub fn usual(end: Option<u32>, tokenizer: &Tokenizer) -> Result<Self> {
        let known = ["<|im_start|>", "<|im_end|>"].map(str::to_owned);
        let specials = tokenizer.special_texts();
        if known.iter().all(|token| specials.contains(token)) {
            Self::chatml(tokenizer)
        } else {
            Self::plain(end, tokenizer)
        }
    }

    /// Roles as words, each message on lines of its own, and the end token behind what the assistant says.
    pub fn plain(end: Option<u32>, tokenizer: &Tokenizer) -> Result<Self> {
        let written = |ids: &[u32]| {
            let texts: String = ids.iter().filter_map(|&id| tokenizer.token(id)).collect();
            let literal = serde_json::Value::from(texts.as_str());
            if texts.is_empty() { String::new() } else { format!("{{{{ {literal} }}}}") }
        };
        let begin = written(&tokenizer.templates().single.before());
        let end = written(end.as_slice());
        let source = PLAIN.replace("BEGIN", &begin).replace("END", &end);
        let template = (source, TemplateOrigin::BuiltIn("plain"));
        Self::new(template, SpecialNames::new(), tokenizer)
    }

    /// `ChatML`.
    pub fn chatml(tokenizer: &Tokenizer) -> Result<Self> {
        let template = (CHATML.to_owned(), TemplateOrigin::BuiltIn("chatml"));
        Self::new(template, SpecialNames::new(), tokenizer)
    }

    /// The day that a template writes where it asks for the date.
    pub const DAY: &str = jinja::DAY;

    /// Whether it asks for the date.
    pub fn writes_date(&self) -> bool {
        self.source.contains("strftime_now")
    }

    /// The template as it is written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Where it comes from.
    pub fn origin(&self) -> &TemplateOrigin {
        &self.origin
    }

    /// The names of special tokens that it is given.
    pub fn names(&self) -> &SpecialNames {
        &self.names
    }

    /// The text of messages, as a model reads them before it answers where `prompt` is true. A special token
    /// that a message spells has a guard inside.
    pub(crate) fn text(&self, messages: &[Message], prompt: bool) -> Result<String> {
        let text = self.marked(messages, prompt)?;
        Ok(if self.has_marks { text.replace([OPEN, CLOSE], "") } else { text })
    }

    /// The tokens of messages as a model reads them before it answers.
    pub fn prompt(&self, messages: &[Message], tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        Self::check(messages)?;
        let pieces = tokenizer.written_pieces(&self.text(messages, true)?)?;
        Ok(pieces.into_iter().map(|piece| piece.id).collect())
    }

    /// Messages as text for people: what a model reads before it answers where `prompt` is true, and otherwise what it
    /// learns from.
    pub fn written(&self, messages: &[Message], prompt: bool) -> Result<String> {
        Self::check(messages)?;
        Ok(self.text(messages, prompt)?.replace(GUARD, ""))
    }

    /// The same with the marks that the template writes, or that are in the messages.
    pub(super) fn marked(&self, messages: &[Message], prompt: bool) -> Result<String> {
        let message = |message: &Message| {
            let guarded = guard::guarded(&message.content, &self.specials);
            let content = guarded.as_deref().unwrap_or(&message.content);
            context! { role => message.role.name(), content }
        };
        let messages: Vec<Value> = messages.iter().map(message).collect();
        let named = Value::from(self.names.clone());
        let none = || Value::from(());
        let given = context! {
            messages, add_generation_prompt => prompt, tools => none(), documents => none(), ..named
        };
        let mut out = Bounded(Vec::new());
        let template = self.environment.get_template(NAME).map_err(|error| refused(&error))?;
        template.render_captured_to(given, &mut out).map_err(|error| refused(&error))?;
        Ok(String::from_utf8(out.0).expect("a template writes text"))
    }

    /// Refuses messages that no template should write.
    pub(crate) fn check(messages: &[Message]) -> Result<()> {
        message::check(messages)
            .map_err(|(found, expected)| DataError::setting("conversation", &found, expected))
    }

    /// Where the special tokens are in a text, the first first; the longest of several at a place.
    pub(super) fn first_special(&self, text: &str) -> Option<(usize, usize)> {
        let places = self
            .specials
            .iter()
            .filter_map(|special| text.find(special.as_str()).map(|at| (at, at + special.len())));
        places.min_by_key(|&(at, end)| (at, std::cmp::Reverse(end)))
    }
}

/// Its origin and size; a template may have pages.
impl fmt::Debug for ChatTemplate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("ChatTemplate");
        shown.field("origin", &self.origin).field("bytes", &self.source.len());
        shown.finish_non_exhaustive()
    }
}

/// Takes what is written, up to a bound.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_BYTES {
            let found = format!("a text of more than {} MiB", MOST_BYTES >> 20);
            return Err(std::io::Error::other(found));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn refused(error: &minijinja::Error) -> DataError {
    let found = format!("messages that the chat template refuses ({})", in_words(error));
    DataError::setting("conversation", &found, "messages that it writes")
}

/// What the template says, or what is wrong with it, and its line.
fn in_words(error: &minijinja::Error) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    let said = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let said = said + source.as_deref().unwrap_or_default();
    match error.line() {
        Some(line) => format!("{said}, line {line} of the template"),
        None => said,
    }
}
