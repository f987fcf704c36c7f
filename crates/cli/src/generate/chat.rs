//! `fedra generate --chat`: a conversation, from a file or turn by turn.

use std::io::{BufRead as _, IsTerminal};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::prepare::chat;
use fedra::text::grid::counted;
use fedra_client::generate::{ChatAnswer, ChatSession, Ended, GenerateSettings, MakeDecoder};
use fedra_data::{ChatTemplate, Message, Role, Tokenizer, messages_of_json};
use fedra_model::Loaded;

use super::prompt::{Prompt, limited};
use crate::{console, interrupt};

#[derive(Args)]
pub(super) struct Chat {
    /// Hold a conversation: each line of standard input is a message, unless --messages or a prompt asks one question
    #[arg(long = "chat")]
    is_on: bool,
    /// Answer the last message of this conversation: JSON, a list of messages with role and content
    #[arg(long, value_name = "FILE", requires = "is_on", conflicts_with_all = ["text", "file", "stdin"])]
    messages: Option<PathBuf>,
    /// System message in front of the conversation
    #[arg(long, value_name = "TEXT", requires = "is_on")]
    system: Option<String>,
    /// Template to write the conversation by, in place of the model's own: a file in Jinja, plain or chatml
    #[arg(long = "chat-template", value_name = "FILE", requires = "is_on")]
    template: Option<PathBuf>,
}

/// Where the messages come from.
pub(super) enum Turns {
    /// One conversation, whose last message is answered.
    Whole(Vec<Message>),
    /// One message after another.
    Lines,
}

/// How answers are written.
pub(super) struct Asked<'a> {
    pub settings: GenerateSettings,
    pub stops: Vec<String>,
    pub as_json: bool,
    pub make: MakeDecoder<'a>,
}

impl Chat {
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// The messages that flags and files have.
    pub fn turns(&self, prompt: &Prompt) -> Result<Turns> {
        if let Some(file) = &self.messages {
            let name = file.display();
            let open = std::fs::File::open(file);
            let open = open.with_context(|| format!("--messages: cannot open {name}"))?;
            let text = limited(open, &format!("--messages {name}"))?;
            let messages = messages_of_json(&text).map_err(|(found, expected)| {
                anyhow::anyhow!("--messages {name}: found {found}, expected {expected}")
            })?;
            if messages.last().is_none_or(|last| last.role != Role::User) {
                bail!(
                    "--messages {name}: expected a message of the user at the end, which is answered"
                );
            }
            return Ok(Turns::Whole(messages));
        }
        Ok(match prompt.given()? {
            Some(text) => Turns::Whole(vec![Message::new(Role::User, text)]),
            None => Turns::Lines,
        })
    }

    /// How conversations are written for a model; notes on it are said.
    pub fn template(&self, loaded: &Loaded, tokenizer: &Tokenizer) -> Result<ChatTemplate> {
        let end = loaded.model.config().eos_token_ids.first().copied();
        let chosen = self.template.as_deref();
        let template = chat::template(chosen, (&loaded.companions, tokenizer), end)?;
        for note in chat::notes(&template) {
            console::say(format_args!("note: {note}"));
        }
        Ok(template)
    }

    /// Holds the conversation.
    pub fn talk<'a>(
        &self,
        turns: Turns,
        (template, tokenizer): (&'a ChatTemplate, &'a Tokenizer),
        mut asked: Asked<'a>,
    ) -> Result<ExitCode> {
        let end = template.ends_with().and_then(|end| tokenizer.token_id(&end));
        asked.settings.stop_tokens.extend(end);
        let (mut messages, is_whole) = match turns {
            Turns::Whole(messages) => (messages, true),
            Turns::Lines => (Vec::new(), false),
        };
        if let Some(system) = &self.system {
            if messages.first().is_some_and(|first| first.role == Role::System) {
                bail!("--system: the conversation in --messages has a system message already");
            }
            messages.insert(0, Message::new(Role::System, system));
        }
        interrupt::within("token");
        let Asked { settings, stops, as_json, make } = asked;
        let mut session = ChatSession::new(messages, (template, tokenizer), make);
        let answer = |session: &mut ChatSession<'_>| answer(session, (&settings, &stops), as_json);
        if is_whole {
            return answer(&mut session);
        }
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if is_terminal {
            console::say(
                "a line is a message; an empty line, Ctrl-D or Ctrl-C ends the conversation",
            );
        }
        let mut lines = std::io::stdin().lock().lines();
        loop {
            if is_terminal {
                console::prompt("> ");
            }
            let Some(line) = lines.next() else { return Ok(ExitCode::SUCCESS) };
            let line = line.context("cannot read standard input")?;
            if line.trim().is_empty() {
                if is_terminal {
                    return Ok(ExitCode::SUCCESS);
                }
                continue;
            }
            session.messages.push(Message::new(Role::User, line));
            let status = answer(&mut session)?;
            if interrupt::interrupted() {
                return Ok(status);
            }
        }
    }
}

/// One answer, shown as it is made.
fn answer(
    session: &mut ChatSession<'_>,
    (settings, stops): (&GenerateSettings, &[String]),
    as_json: bool,
) -> Result<ExitCode> {
    let start = Instant::now();
    let mut first = None;
    let mut begun = false;
    let answer = session.answer(settings, stops, &mut |text| {
        first.get_or_insert_with(|| start.elapsed().as_secs_f64());
        if !as_json {
            // What a template puts in front of an answer may leave a blank to it.
            let shown = if begun { text } else { text.trim_start() };
            begun |= !shown.is_empty();
            console::text(shown);
        }
        if interrupt::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let prompt_seconds = first.unwrap_or_default();
    let seconds = start.elapsed().as_secs_f64() - prompt_seconds;
    let ChatAnswer { text, tokens, prompt, read, left_out, ended } = answer;
    let counted_tokens = tokens.len().saturating_sub(1);
    let tokens_per_s = if counted_tokens == 0 { 0.0 } else { counted_tokens as f64 / seconds };
    if as_json {
        console::json(serde_json::json!({
            "text": text,
            "tokens": tokens,
            "prompt_tokens": prompt,
            "read_tokens": read,
            "left_out": left_out,
            "ended": ended.name(),
            "prompt_seconds": prompt_seconds,
            "seconds": seconds,
            "tokens_per_s": tokens_per_s,
        }));
    } else {
        console::text("\n");
    }
    if left_out > 0 {
        console::say(format_args!(
            "note: {} at the beginning of the conversation left out: the model reads no more",
            counted(left_out as u64, "message")
        ));
    }
    console::say(format_args!(
        "{}, {tokens_per_s:.1} tokens/s; {read} of {prompt} tokens of the conversation read in \
         {prompt_seconds:.2} s; ended by {}",
        counted(tokens.len() as u64, "token"),
        in_words(ended),
    ));
    Ok(match ended {
        Ended::Interrupted => ExitCode::from(interrupt::STATUS),
        Ended::StopToken | Ended::StopText | Ended::MaxTokens | Ended::ContextFull => {
            ExitCode::SUCCESS
        }
    })
}

/// What ended a text.
pub(super) fn in_words(ended: Ended) -> &'static str {
    match ended {
        Ended::StopToken => "the model's end token",
        Ended::StopText => "a stop text",
        Ended::MaxTokens => "--max-tokens",
        Ended::ContextFull => "the model's longest context",
        Ended::Interrupted => "Ctrl-C",
    }
}
