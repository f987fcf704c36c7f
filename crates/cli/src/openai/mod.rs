//! `fedra serve --model DIR --openai`: models that answer OpenAI's protocol over HTTP.
//!
//! The library knows the protocol and no socket, the network knows HTTP and no protocol; here they meet. Requests are
//! read and checked where everybody is served, wait in a bounded queue, and are answered by a few threads.

mod queue;
mod routes;
mod sink;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::apply::completions::{
    AnswerOrigin, Answered, Decoders, ServedModel, ServedModels, WriteLimits,
};
use fedra::apply::trained_model::{ModelChoice, WhichRound};
use fedra::run_files::FOLDERS;
use fedra::text::grid::counted;
use fedra_compute::{Device, Seed, ThreadPool, WeightFormat};
use fedra_net::{ApiKey, HttpOptions, HttpServer, Runtime};

use self::queue::Queue;
use self::routes::Front;
use self::sink::Way;
use crate::flags::{Verbosity, cores, whole};
use crate::hub;
use crate::interrupt;
use crate::keyed_errors::{MODEL, in_flags};
use crate::remote_middle::{self, OpenedDecoder, RemoteFlags, RemoteMiddle};

/// Where it listens where nobody says another address.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// The variable that may have the key.
const KEY_VARIABLE: &str = "FEDRA_API_KEY";
/// The most bytes of a request: a million tokens have some megabytes.
const LARGEST: usize = 4 << 20;
/// Most connections where nobody says another number: each may hold a request of the largest size.
pub const CONNECTIONS: usize = 256;
/// How often somebody who wants to stop is heard.
const GLANCE: Duration = Duration::from_millis(100);
/// How long answers that are there may take to be read when the server stops.
const FAREWELL: Duration = Duration::from_secs(2);

/// Flags of the protocol.
#[derive(Args)]
pub struct OpenAiFlags {
    /// Answer the OpenAI chat completions protocol over HTTP (with --model), instead of serving middle blocks
    #[arg(long = "openai", requires = "model", conflicts_with_all = ["superlink", "wait_for", "start_after"])]
    is_on: bool,
    /// Key that clients have to show, in a file (--openai); an address other than loopback needs one [default: the
    /// variable `FEDRA_API_KEY`]
    #[arg(long, value_name = "FILE", requires = "is_on")]
    key_file: Option<PathBuf>,
    /// Adapters over the same base, a model NAME of their own (--openai); may be given several times
    #[arg(long, value_name = "NAME=DIR", requires = "is_on", value_parser = named_folder)]
    adapter: Vec<(String, PathBuf)>,
    /// Of a run: the model of its best round instead of the last (--openai)
    #[arg(long, requires = "is_on", hide_short_help = true)]
    best: bool,
    /// Of adapters: their base model, if it is not where the adapter folder says (--openai)
    #[arg(long, value_name = "DIR", requires = "is_on", hide_short_help = true)]
    base: Option<PathBuf>,
    /// Template to write conversations by, in place of the model's own: a file in Jinja, plain or chatml (--openai)
    #[arg(long, value_name = "FILE", requires = "is_on", hide_short_help = true)]
    chat_template: Option<PathBuf>,
    /// Most tokens of an answer (--openai)
    #[arg(long, value_name = "N", default_value_t = 1024, requires = "is_on", hide_short_help = true,
          value_parser = whole::<usize>(1, None))]
    max_tokens: usize,
    /// Most tokens of a conversation with its answer (--openai) [default: the model's longest]
    #[arg(long, value_name = "N", requires = "is_on", hide_short_help = true,
          value_parser = whole::<usize>(2, None))]
    max_context: Option<usize>,
    /// Answers that are written at the same time (--openai)
    #[arg(long, value_name = "N", default_value_t = 2, requires = "is_on", hide_short_help = true,
          value_parser = whole::<usize>(1, Some(64)))]
    parallel: usize,
    /// Requests that may wait (--openai); further ones are refused with status 429
    #[arg(long, value_name = "N", default_value_t = 32, requires = "is_on", hide_short_help = true,
          value_parser = whole::<usize>(0, Some(100_000)))]
    queue: usize,
    /// Threads (--openai) [default: as many as the machine has cores]
    #[arg(long, value_name = "N", requires = "is_on", hide_short_help = true,
          value_parser = whole::<usize>(1, Some(ThreadPool::MOST as u64)))]
    threads: Option<usize>,
    #[command(flatten)]
    remote: RemoteFlags,
}

/// A name and a folder, as in `notes=runs/notes/adapter`.
pub fn named_folder(text: &str) -> Result<(String, PathBuf), String> {
    let expected =
        || format!("found {text:?}, expected a name and a folder, as in notes=runs/notes");
    let (name, folder) = text.split_once('=').ok_or_else(expected)?;
    if name.is_empty() || folder.is_empty() {
        return Err(expected());
    }
    Ok((name.to_owned(), PathBuf::from(folder)))
}

/// What the command has besides.
pub struct Serving<'f> {
    /// The model as it was given.
    pub model: &'f Path,
    /// How weights are stored.
    pub weights: Option<WeightFormat>,
    /// What computes.
    pub device: Device,
    /// The address, if one is given.
    pub listen: Option<SocketAddr>,
    /// Most connections.
    pub connections: usize,
    /// How much is said.
    pub voice: Verbosity,
}

impl OpenAiFlags {
    /// Whether the protocol is asked for.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Refuses what belongs to the protocol where something else is served.
    pub fn refuse_without(&self) -> Result<()> {
        if self.remote.server.is_some() {
            bail!("--server applies only with --openai");
        }
        if self.is_on {
            bail!("--openai needs --model, the folder of a decoder, in place of an experiment");
        }
        Ok(())
    }

    /// Where the middle of the model is.
    pub fn middle<'f>(
        &'f self,
        ends: crate::model_server::CutFlags,
        tls: &'f crate::tls::Tls,
    ) -> RemoteMiddle<'f> {
        RemoteMiddle { flags: &self.remote, ends, tls }
    }

    /// Answers until it is interrupted.
    pub fn serve(&self, serving: &Serving<'_>, middle: RemoteMiddle<'_>) -> Result<ExitCode> {
        // Flags are judged before a model is read.
        middle.check()?;
        let listen = serving.listen.unwrap_or(USUAL);
        let key = self.key()?;
        if key.is_none() && !fedra_net::is_loopback(&listen.to_string()) {
            bail!(
                "--listen: {listen} is not a loopback address and needs a key: give --key-file or set {KEY_VARIABLE}\n\
                 hint: `openssl rand -hex 32 > key.txt` makes one; it is sent without TLS, so put a proxy with TLS in \
                 front where others can listen"
            );
        }
        let opened = self.open(serving, middle);
        let (models, base) = opened.map_err(|error| in_flags(error, MODEL))?;
        let secret = Seed(fedra_net::secret_number().context("cannot draw a secret seed")?);
        let pool = ThreadPool::new(self.threads.unwrap_or_else(cores));
        let pool = pool.context("--threads: cannot start them")?;
        let queue = Arc::new(Queue::new(self.parallel, self.queue));
        let runtime = Runtime::start()?;
        let front = Front { list: models.list.clone(), queue: Arc::clone(&queue) };
        let options = HttpOptions {
            listen,
            key,
            open: &[routes::HEALTH],
            connections: serving.connections,
            largest_body: LARGEST,
            refusal: routes::refusal,
        };
        let server = HttpServer::start(&runtime, options, move |request, responder| {
            front.answer(request, responder);
        })?;
        let how = match (key, fedra_net::is_loopback(&listen.to_string())) {
            (None, _) => "no key: for programs of this machine",
            (Some(_), true) => "with a key",
            (Some(_), false) => {
                "with a key, without TLS: others on the network may read what is sent"
            }
        };
        let names = models.list.names().join(", ");
        let address = server.address;
        serving.voice.say(format_args!("{names} at http://{address}/v1 ({how})"));
        interrupt::within("token");

        let device = &serving.device;
        let cut = base.cut.as_ref();
        let make = |number: usize| {
            let loaded = &models.models()[number].decoder.loaded;
            let made = middle.decoder(loaded, (&base.path, cut), device);
            made.map_err(|error| fedra::Error::Refused(format!("{error:#}")))
        };
        let decoders = Decoders::new(Box::new(make), self.parallel);
        let (stops, totals) = (AtomicBool::new(false), Totals::default());
        std::thread::scope(|scope| {
            for _ in 0..self.parallel {
                scope.spawn(|| {
                    pool.install(|| {
                        work((&models, device), (&decoders, &queue), (secret, &stops), &totals);
                    });
                });
            }
            while !interrupt::interrupted() {
                std::thread::sleep(GLANCE);
            }
            stops.store(true, Ordering::SeqCst);
            queue.close();
        });
        server.close(&runtime, FAREWELL);
        let (answers, tokens) = (totals.answers.into_inner(), totals.tokens.into_inner());
        serving.voice.say(format_args!(
            "{} with {}",
            counted(answers, "answer"),
            counted(tokens, "token")
        ));
        Ok(ExitCode::SUCCESS)
    }

    /// The key, if there is one.
    fn key(&self) -> Result<Option<ApiKey>> {
        let (text, from) = match (&self.key_file, std::env::var(KEY_VARIABLE)) {
            (Some(file), _) => {
                let shown = format!("--key-file {}", file.display());
                let text = std::fs::read_to_string(file);
                (text.with_context(|| format!("{shown}: cannot read it"))?, shown)
            }
            (None, Ok(text)) => (text, KEY_VARIABLE.to_owned()),
            (None, Err(std::env::VarError::NotPresent)) => return Ok(None),
            (None, Err(error)) => bail!("{KEY_VARIABLE}: {error}"),
        };
        let key = ApiKey::new(&text).map_err(|reason| anyhow::anyhow!("{from}: {reason}"))?;
        Ok(Some(key))
    }

    /// All models, and the one that others share their base with.
    fn open(
        &self,
        serving: &Serving<'_>,
        middle: RemoteMiddle<'_>,
    ) -> Result<(ServedModels, Base)> {
        let Serving { model, weights, device, voice, .. } = serving;
        let path = hub::folder("model.path", model, *voice)?;
        let base = self.base.as_ref();
        let base = base.map(|base| hub::folder("model.base", base, *voice)).transpose()?;
        let round = if self.best { WhichRound::Best } else { WhichRound::Last };
        let choice = ModelChoice { path, round, base, weights: *weights };
        let folders = choice.folders()?;
        let template = self.chat_template.as_deref();
        let mut models = Vec::new();
        let served = |name: &str, decoder| ServedModel::new(name.to_owned(), decoder, template);
        let name = name_of(model);
        let mut cut = None;
        if self.adapter.is_empty() {
            let opened = middle.open(&folders, device)?;
            let OpenedDecoder { decoder, cut: at, .. } = opened;
            cut = at;
            models.push(served(&name, decoder)?);
        } else {
            if self.remote.server.is_some() {
                bail!(
                    "--adapter cannot be combined with --server, which has to have the same model"
                );
            }
            let base = fedra::apply::text_decoder::TextDecoder::open_base(&folders, device)?;
            let adapters = folders.adapter.iter().map(|own| (&name, own));
            let adapters = adapters.chain(self.adapter.iter().map(|(name, folder)| (name, folder)));
            for (name, folder) in adapters {
                let folder = adapter_folder(folder, self.best)?;
                let decoder = base.with_adapter(&folder, (&folders, device));
                let decoder = decoder
                    .map_err(|error| anyhow::anyhow!("--adapter {name}: {}", error.in_words()))?;
                remote_middle::check(&decoder, (&folders.model, device))?;
                models.push(served(name, decoder)?);
            }
            if folders.adapter.is_none() {
                models.insert(0, served(&name, base)?);
            }
        }
        // Adapters have the base's template, so what is to be known of it is said once.
        for note in models.first().iter().flat_map(|model| model.notes()) {
            voice.say(format_args!("note: {note}"));
        }
        let limits = WriteLimits { max_tokens: self.max_tokens, context: self.max_context };
        let models = ServedModels::new(models, limits, now())?;
        Ok((models, Base { path: folders.model, cut }))
    }
}

/// What decoders are made of besides their weights.
struct Base {
    path: PathBuf,
    cut: Option<fedra_plan::Cut>,
}

/// The folder of adapters, which may be in that of a run.
pub fn adapter_folder(folder: &Path, best: bool) -> Result<PathBuf> {
    if folder.join("adapter_config.json").is_file() {
        return Ok(folder.to_owned());
    }
    let name = if best { fedra::run_files::ADAPTER_BEST } else { fedra::run_files::ADAPTER };
    let inner = folder.join(name);
    if inner.is_dir() {
        return Ok(inner);
    }
    bail!(
        "--adapter: found no adapter_config.json in {}, nor a folder {name}, expected adapters or a run with some",
        folder.display()
    );
}

/// What clients call a model: its name at the hub, or that of its folder, or of the run around it.
fn name_of(model: &Path) -> String {
    let given = model.to_string_lossy();
    if let Some(name) = given.strip_prefix("hf:") {
        return name.to_owned();
    }
    let whole = model.canonicalize().unwrap_or_else(|_| model.to_owned());
    let named = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let own = if whole.is_file() {
        whole.file_stem().map(|stem| stem.to_string_lossy().into_owned())
    } else {
        named(&whole)
    };
    let is_part = own.as_deref().is_some_and(|own| FOLDERS.contains(&own));
    let run = whole.parent().filter(|_| is_part).and_then(named);
    run.or(own).unwrap_or_else(|| "model".to_owned())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What was answered.
#[derive(Default)]
struct Totals {
    answers: AtomicU64,
    tokens: AtomicU64,
}

/// Answers requests until the queue is closed.
fn work<'m>(
    (models, device): (&'m ServedModels, &Device),
    (decoders, queue): (&Decoders<'m>, &Queue),
    (secret, stops): (Seed, &AtomicBool),
    totals: &Totals,
) {
    while let Some(job) = queue.next() {
        let seed = secret.of("request").with(job.number);
        let is_chat = job.request.is_chat();
        let id = format!("{}-{:016x}", if is_chat { "chatcmpl" } else { "cmpl" }, seed.of("id").0);
        let origin = AnswerOrigin { id, created: now(), seed };
        let mut sink = Way::Waiting(job.responder);
        let stops = || stops.load(Ordering::SeqCst);
        // On a GPU answers are computed beside each other.
        let answer = || {
            let answer = || models.answer(&job.request, (decoders, origin), &mut sink, &stops);
            device.aside(answer)
        };
        // A fault of the program ends one answer, not the server; it was printed where it happened.
        let answered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(answer));
        queue.done();
        match answered {
            Ok(Answered::Whole(tokens)) => {
                totals.answers.fetch_add(1, Ordering::Relaxed);
                totals.tokens.fetch_add(tokens as u64, Ordering::Relaxed);
            }
            Ok(Answered::Refused(error)) if error.status == 500 => {
                crate::console::say(format_args!("an answer failed: {}", error.message));
            }
            Ok(Answered::Refused(_) | Answered::Gone) | Err(_) => {}
        }
    }
}
