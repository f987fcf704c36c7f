//! `fedra generate`: what a decoder writes behind a prompt, shown as it is made.

mod chat;
mod prompt;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::apply::generation_config::GenerationConfig;
use fedra::apply::text_decoder::{TextDecoder, prompt_tokens};
use fedra::prepare::pretrained::Pretrained;
use fedra_client::generate::{
    CachedDecoder, Ended, Generator, Leaving, RandomSampling, Sampling, TextStream,
};
use fedra_client::{ClientError, Perturbation};
use fedra_compute::{Device, Seed};
use fedra_data::Tokenizer;
use fedra_engine::{Noise, NoiseDraw, NoiseKind};
use fedra_model::{Loaded, Model};
use fedra_net::{DecodeDialer, Dialer, NetDecodePeer, Runtime, ServerSecurity};
use fedra_plan::{Cut, Side};
use fedra_wire::RowEncoding;

use self::chat::{Chat, Turns, in_words};
use self::prompt::Prompt;
use crate::console;
use crate::device::DeviceFlags;
use crate::flags::{Threads, Verbosity, one_of};
use crate::interrupt;
use crate::join::Said;
use crate::keyed_errors::{MODEL, in_flags};
use crate::model_server::{self, CutFlags, identity, load_side};
use crate::predict::Chosen;

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

const ENCODINGS: [(&str, RowEncoding); 3] =
    [("f32", RowEncoding::F32), ("bf16", RowEncoding::Bf16), ("int8", RowEncoding::Int8)];

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
    far: Far,
}

/// The middle of the decoder at a server.
#[derive(Args)]
struct Far {
    /// Let this server run the middle blocks (`fedra serve --model`); text never leaves this machine
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<String>,
    /// Name of this client; with TLS, the name in the certificate [default: the certificate's, or "client"]
    #[arg(long, value_name = "NAME", requires = "server", hide_short_help = true)]
    client: Option<String>,
    #[command(flatten)]
    ends: CutFlags,
    /// Encoding of the hidden states on the wire
    #[arg(long, value_name = "ENCODING", default_value = "f32", requires = "server",
          hide_short_help = true, value_parser = one_of(ENCODINGS))]
    encoding: RowEncoding,
    /// Noise on hidden states before they are sent: relative=GAMMA, absolute=SCALE or clipped=NORM,SIGMA
    #[arg(long, value_name = "KIND=SIZE", requires = "server", hide_short_help = true,
          value_parser = parse_noise)]
    noise: Option<NoiseKind>,
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

impl Far {
    /// A session at the server.
    fn dial(
        &self,
        server: &str,
        (path, model): (&Path, &Model),
        cut: &Cut,
    ) -> Result<NetDecodePeer> {
        let security = self.tls.security("--server", server)?;
        let certified = match &security {
            ServerSecurity::Tls(identity) => identity.names()?.into_iter().next(),
            ServerSecurity::Plain => None,
        };
        let client = self.client.clone().or(certified).unwrap_or_else(|| "client".to_owned());
        let way = (Arc::new(Runtime::start()?), Dialer::new(server, &security)?);
        let blocks = model_server::blocks(cut)?;
        let blocks = (blocks.start, blocks.end);
        let model = (identity(path)?, model.width());
        let mut dialer = DecodeDialer::new(way, client, model, (blocks, self.encoding));
        dialer.listener = Some(Arc::new(Said(Verbosity::Lively)));
        Ok(dialer.open()?)
    }

    /// What happens to rows before they leave.
    fn leaving(&self) -> Result<Option<Leaving<'static>>> {
        let Some(kind) = self.noise else { return Ok(None) };
        let seed = fedra_net::secret_number().context("cannot generate a secret seed for noise")?;
        let noise = Noise { kind, draw: NoiseDraw::Fresh, gradients: false, gradient_norm: None };
        let noise = Perturbation::new(noise, Seed(seed));
        let mut message = 0;
        Ok(Some(Box::new(move |rows: &mut [f32], width: usize| {
            noise.rows((rows, width), Seed(message));
            message += 1;
        })))
    }
}

fn parse_noise(text: &str) -> Result<NoiseKind, String> {
    let expected = "relative=GAMMA, absolute=SCALE or clipped=NORM,SIGMA";
    let wrong = || format!("found {text:?}, expected {expected}");
    let (kind, sizes) = text.split_once('=').ok_or_else(wrong)?;
    let sizes: Vec<f64> = sizes
        .split(',')
        .map(|size| size.parse::<f64>().ok().filter(|size| size.is_finite() && *size > 0.0))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    match (kind, &sizes[..]) {
        ("relative", [gamma]) => Ok(NoiseKind::Relative { gamma: *gamma }),
        ("absolute", [scale]) => Ok(NoiseKind::Absolute { scale: *scale }),
        ("clipped", [norm, sigma]) => Ok(NoiseKind::Clipped { norm: *norm, sigma: *sigma }),
        (_, _) => Err(wrong()),
    }
}

impl Generate {
    /// Writes.
    pub fn run(self) -> Result<ExitCode> {
        let settings = self.choice.sampling()?;
        settings.check()?;
        if self.far.server.is_none() {
            self.far.ends.refuse_without("--server")?;
            self.far.tls.refuse_without("--server")?;
        }
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

    /// The model, as far as it is here.
    fn open(&self) -> Result<OpenedDecoder> {
        let device = self.device.open(Verbosity::Lively)?;
        let mut choice = self.chosen.choice()?;
        choice.weights = self.former.over(choice.weights);
        let folders = choice.folders()?;
        let path = folders.model.clone();
        let (decoder, cut) = match (&self.far.server, &folders.adapter) {
            (Some(_), Some(adapter)) => bail!(
                "--model: found the adapters {}, expected a whole model: the server has to have the same one\n\
                 hint: a run with adapters writes the whole model too, into its folder model",
                adapter.display()
            ),
            (Some(_), None) => {
                let Pretrained { tokenizer, .. } = Pretrained::open(&path)?;
                let (loaded, cut) =
                    load_side(&path, (self.far.ends, Side::Client), (&device, folders.weights))?;
                let generation = GenerationConfig::of(&path, &loaded)?;
                (TextDecoder { loaded, tokenizer, generation }, Some(cut))
            }
            (None, _) => (TextDecoder::open(&folders, &device)?, None),
        };
        let TextDecoder { loaded, tokenizer, generation } = decoder;
        device.check().context("the model does not fit on the device")?;
        if !loaded.model.is_decoder() {
            bail!(
                "--model: {} is an encoder, which reads texts and cannot continue them; give a decoder\n\
                 hint: fedra predict labels texts",
                path.display()
            );
        }
        if let Some(note) = generation.note() {
            console::say(format_args!("note: {note}"));
        }
        Ok(OpenedDecoder { path, tokenizer, loaded, cut, device, generation })
    }

    /// A decoder that has read nothing.
    fn decoder<'o>(&self, opened: &'o OpenedDecoder) -> Result<CachedDecoder<'o>> {
        let OpenedDecoder { path, loaded, cut, device, .. } = opened;
        let given = (&loaded.model, &loaded.params);
        Ok(match (&self.far.server, cut) {
            (Some(server), Some(cut)) => {
                let peer = self.far.dial(server, (path, &loaded.model), cut)?;
                let decoder = CachedDecoder::cut(device, given, cut, Box::new(peer))?;
                match self.far.leaving()? {
                    None => decoder,
                    Some(leaving) => decoder.with_leaving(leaving),
                }
            }
            (Some(_) | None, _) => CachedDecoder::whole(device, given.0, given.1)?,
        })
    }

    fn converse(&self, turns: Turns, sampling: Sampling) -> Result<ExitCode> {
        let opened = self.open()?;
        let template = self.chat.template(&opened.loaded, &opened.tokenizer)?;
        let stops = self.stop.iter().map(|stop| unescaped(stop)).collect();
        let make = || {
            // What cannot be reached or opened again is no fault of the conversation.
            self.decoder(&opened)
                .map_err(|error| ClientError::Peer { reason: format!("{error:#}") })
        };
        let settings = opened.generation.settings(sampling, self.max_tokens);
        let asked = chat::Asked { settings, stops, as_json: self.json, make: Box::new(make) };
        self.chat.talk(turns, (&template, &opened.tokenizer), asked)
    }

    fn write(&self, text: &str, sampling: Sampling) -> Result<ExitCode> {
        let opened = self.open()?;
        let tokenizer = &opened.tokenizer;
        let prompt = prompt_tokens(tokenizer, text)?;
        let settings = opened.generation.settings(sampling, self.max_tokens);
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

/// A model that is ready to write, and what it needs.
struct OpenedDecoder {
    path: PathBuf,
    tokenizer: Tokenizer,
    loaded: Loaded,
    cut: Option<Cut>,
    device: Device,
    generation: GenerationConfig,
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
