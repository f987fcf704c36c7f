//! `fedra generate`: what a decoder writes behind a prompt, shown as it is made.

mod chat;
mod prompt;

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use fedra::apply::text_decoder::{TextDecoder, prompt_tokens};
use fedra_client::ClientError;
use fedra_client::generate::{
    CachedDecoder, Ended, Generator, RandomSampling, Sampling, TextStream,
};
use fedra_compute::{Device, Seed};

use self::chat::{Chat, Turns, in_words};
use self::prompt::Prompt;
use crate::console;
use crate::device::DeviceFlags;
use crate::flags::{Threads, Verbosity};
use crate::interrupt;
use crate::keyed_errors::{MODEL, in_flags};
use crate::model_server::CutFlags;
use crate::predict::Chosen;
use crate::remote_middle::{OpenedDecoder, RemoteFlags, RemoteMiddle};
use crate::tls::Tls;
use crate::weights::FormerFlag;

const EXAMPLES: &str = "\
Examples:
  fedra generate --model models/smollm2 --prompt 'The patient was admitted with'
  fedra generate --model runs/letters --best --prompt-file note.txt --max-tokens 200 --stop '\\n\\n'
  fedra generate --server 127.0.0.1:7400 --model models/smollm2 --prompt 'The patient'
  fedra generate --chat --model runs/answers --system 'You are a nurse. Be brief.'
  fedra generate --chat --model models/smollm2 --messages conversation.json --temperature 0.7
  echo 'Once upon a time' | fedra generate --model models/stories260k - --temperature 0.8 --seed 7

--model may also be one GGUF file. Text goes to stdout as it is generated; speed and counts go to
stderr. Filters apply in the order temperature, top-k, top-p. The same seed draws the same text on
any number of threads.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Generate {
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    prompt: Prompt,
    #[command(flatten)]
    chat: Chat,
    /// Most tokens to generate
    #[arg(long, default_value_t = 128, value_name = "N")]
    max_tokens: usize,
    #[command(flatten)]
    choice: Choice,
    /// Stop before this text; may be given several times (\n and \t are a line end and a tab)
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    #[command(flatten)]
    former: FormerFlag,
    #[command(flatten)]
    device: DeviceFlags,
    #[command(flatten)]
    threads: Threads,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: RemoteFlags,
    #[command(flatten)]
    ends: CutFlags,
    #[command(flatten)]
    tls: Tls,
}

#[derive(Args)]
struct Choice {
    /// Take the likeliest token each time (the default)
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "seed"])]
    greedy: bool,
    /// Sample, with logits divided by T
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f64>,
    /// Sample among the K likeliest tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Sample among the likeliest tokens that together have probability P
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Random seed [default: 0]
    #[arg(long)]
    seed: Option<u64>,
}

impl Generate {
    /// Writes.
    pub fn run(self) -> Result<ExitCode> {
        let settings = self.choice.sampling()?;
        settings.check()?;
        self.middle().check()?;
        if self.stop.iter().any(String::is_empty) {
            bail!("--stop: found an empty text, expected at least one letter");
        }
        if self.max_tokens == 0 {
            bail!("--max-tokens: found 0, expected at least 1");
        }
        let pool = self.threads.pool()?;
        let written = if self.chat.is_on() {
            let turns = self.chat.turns(&self.prompt)?;
            pool.install(|| self.converse(turns, settings))
        } else {
            let text = self.prompt.read()?;
            pool.install(|| self.write(&text, settings))
        };
        written.map_err(|error| in_flags(error, MODEL))
    }

    fn middle(&self) -> RemoteMiddle<'_> {
        RemoteMiddle { flags: &self.remote, ends: self.ends, tls: &self.tls }
    }

    /// The model, as far as it is here.
    fn open(&self) -> Result<(OpenedDecoder, Device)> {
        let device = self.device.open(Verbosity::Lively)?;
        let mut choice = self.chosen.choice()?;
        choice.weights = self.former.over(choice.weights);
        let opened = self.middle().open(&choice.folders()?, &device)?;
        if let Some(note) = opened.decoder.generation.note() {
            console::say(format_args!("note: {note}"));
        }
        Ok((opened, device))
    }

    /// A decoder that has read nothing.
    fn decoder<'o>(
        &self,
        (opened, device): &'o (OpenedDecoder, Device),
    ) -> Result<CachedDecoder<'o>> {
        let OpenedDecoder { path, decoder, cut } = opened;
        self.middle().decoder(&decoder.loaded, (path, cut.as_ref()), device)
    }

    fn converse(&self, turns: Turns, sampling: Sampling) -> Result<ExitCode> {
        let opened = self.open()?;
        let TextDecoder { loaded, tokenizer, generation } = &opened.0.decoder;
        let template = self.chat.template(loaded, tokenizer)?;
        let stops = self.stop.iter().map(|stop| unescaped(stop)).collect();
        let make = || {
            // What cannot be reached or opened again is no fault of the conversation.
            self.decoder(&opened)
                .map_err(|error| ClientError::Peer { reason: format!("{error:#}") })
        };
        let settings = generation.settings(sampling, self.max_tokens);
        let asked = chat::Asked { settings, stops, as_json: self.json, make: Box::new(make) };
        self.chat.talk(turns, (&template, tokenizer), asked)
    }

    fn write(&self, text: &str, sampling: Sampling) -> Result<ExitCode> {
        let opened = self.open()?;
        let TextDecoder { tokenizer, generation, .. } = &opened.0.decoder;
        let prompt = prompt_tokens(tokenizer, text)?;
        let settings = generation.settings(sampling, self.max_tokens);
        let decoder = self.decoder(&opened)?;
        let mut generator = Generator::new(decoder, &prompt, settings)?;
        let stops = self.stop.iter().map(|stop| unescaped(stop)).collect();
        let stream = TextStream::new(tokenizer, stops).after(&prompt)?;
        interrupt::within("token");

        let (mut whole, mut tokens) = (String::new(), Vec::new());
        let start = Instant::now();
        let mut first = None;
        let ended = generator.write(stream, &mut |written| {
            first.get_or_insert_with(|| start.elapsed().as_secs_f64());
            tokens.extend(written.token);
            if self.json {
                whole.push_str(written.text);
            } else {
                console::text(written.text);
            }
            if interrupt::interrupted() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        // Who stops while the server is away has what was written by then.
        let ended = match ended {
            Err(_) if interrupt::interrupted() => Ended::Interrupted,
            ended => ended?,
        };
        let prompt_seconds = first.unwrap_or_default();
        let seconds = start.elapsed().as_secs_f64() - prompt_seconds;
        // The first token comes with the prompt.
        let counted = tokens.len().saturating_sub(1);
        let tokens_per_s = if counted == 0 { 0.0 } else { counted as f64 / seconds };
        if self.json {
            console::json(serde_json::json!({
                "text": whole,
                "tokens": tokens,
                "prompt_tokens": prompt.len(),
                "ended": ended.name(),
                "prompt_seconds": prompt_seconds,
                "seconds": seconds,
                "tokens_per_s": tokens_per_s,
            }));
        } else {
            console::text("\n");
        }
        console::say(format_args!(
            "{} tokens, {tokens_per_s:.1} tokens/s; prompt of {} tokens read in {prompt_seconds:.2} s; ended by {}",
            tokens.len(),
            prompt.len(),
            in_words(ended),
        ));
        Ok(match ended {
            Ended::Interrupted => ExitCode::from(interrupt::STATUS),
            Ended::StopToken | Ended::StopText | Ended::MaxTokens | Ended::ContextFull => {
                ExitCode::SUCCESS
            }
        })
    }
}

impl Choice {
    fn sampling(&self) -> Result<Sampling> {
        let Self { temperature, top_k, top_p, seed, greedy: _ } = *self;
        if temperature.is_none() && top_k.is_none() && top_p.is_none() {
            if seed.is_some() {
                bail!("--seed applies only with --temperature, --top-k or --top-p");
            }
            return Ok(Sampling::Greedy);
        }
        if temperature == Some(0.0) {
            bail!(
                "--temperature: found 0, expected a number above 0\n\
                 hint: --greedy takes the likeliest token each time"
            );
        }
        let (temperature, seed) = (temperature.unwrap_or(1.0), Seed(seed.unwrap_or(0)));
        Ok(Sampling::Random(RandomSampling { temperature, top_k, top_p, seed }))
    }
}

/// A stop text as it is meant: a shell passes no line ends easily.
fn unescaped(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t")
}
