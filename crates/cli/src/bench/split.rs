//! `fedra bench split`: how fast a decoder writes, whole and cut between a client and a server.
//!
//! Kinds of decoding take turns, repeat by repeat, so that a busy minute of the machine hits all of
//! them; the median over all tokens of all repeats is reported, and the best token beside it. The cut
//! decoder's middle is behind mutual TLS on loopback, as `fedra serve --model` has it, and for
//! comparison in the same thread.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::config::DeviceReport;
use fedra::process::peak_resident_bytes;
use fedra_client::generate::{
    CachedDecoder, DecodePeer, DecodeSessions, LocalPeer, Sampling, SessionLimits,
};
use fedra_compute::{Device, Params, Precision, Seed, Tensor, WeightFormat};
use fedra_model::{Head, Model, Preset, WeightStorage};
use fedra_net::certs::{Authority, Days, Signed};
use fedra_net::{
    DecodeDialer, DecodeHost, Dialer, Identity, NetDecodePeer, Routes, Runtime, Server,
    ServerOptions, ServerSecurity, with_sessions,
};
use fedra_plan::Cut;
use fedra_wire::RowEncoding;
use serde_json::{Value, json};

use super::decode::{filled, usual};
use super::report::{Format, least, median, rounded};
use crate::device::{DeviceFlags, peers_precision};
use crate::flags::Threads;
use crate::weights::{FormerFlag, WeightsFlag};
use crate::{files, model_server};

pub const EXAMPLES: &str = "\
Examples:
  fedra bench split                                  4,000 tokens of context, one block at each end
  fedra bench split --context 100 --first 4 --last 2 --threads 2 --json
  fedra bench split --whole-only --weights bf16      only the uncut decoder, weights as bf16";

/// Write tokens behind a random context with fresh weights of a known shape.
#[derive(Args)]
pub struct SplitBench {
    /// Model shape, of a decoder
    #[arg(long, default_value = "smollm2", value_parser = super::step::shapes())]
    shape: Preset,
    /// Use only the first N blocks of the shape
    #[arg(long)]
    blocks: Option<usize>,
    /// Tokens of context
    #[arg(long, default_value_t = 4000)]
    context: usize,
    /// Tokens to generate in each repeat
    #[arg(long, default_value_t = 32)]
    tokens: usize,
    /// Blocks after the embedding that the client keeps
    #[arg(long, default_value_t = 1, value_name = "BLOCKS")]
    first: u16,
    /// Blocks before the head that the client keeps
    #[arg(long, default_value_t = 1, value_name = "BLOCKS")]
    last: u16,
    #[command(flatten)]
    threads: Threads,
    /// Number of repeats; the median is reported
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    #[command(flatten)]
    weights: WeightsFlag,
    #[command(flatten)]
    former: FormerFlag,
    #[command(flatten)]
    device: DeviceFlags,
    /// Measure the uncut decoder only
    #[arg(long)]
    whole_only: bool,
    #[command(flatten)]
    format: Format,
}

impl SplitBench {
    /// Measures and prints.
    pub fn run(self) -> Result<()> {
        if self.context == 0 || self.tokens == 0 || self.repeats == 0 {
            bail!("--context, --tokens and --repeats must be at least 1");
        }
        let (object, words) = self.threads.pool()?.install(|| self.measure())?;
        self.format.print(object, words);
        Ok(())
    }

    /// The result, as an object and in words.
    fn measure(&self) -> Result<(Value, String)> {
        let device = self.device.open_apart()?;
        let model = self.model()?;
        let blocks = model.layout().blocks();
        let cut = || Cut::keep(self.first, self.last, blocks).context("--first and --last");
        let cut = if self.whole_only { Cut::none() } else { cut()? };
        let format = self.former.over(self.weights.format()).unwrap_or_else(|| usual(&device));
        let model = model.clone().stored_as(WeightStorage::of_all(format, model.layout()));
        let params = filled(&device, &model)?;
        let words = model.layout().iter().next().context("a model has parameters")?.1.dims()[0];
        let mut draw = Seed(1).generator();
        let context: Vec<u32> = (0..self.context).map(|_| draw.below(words) as u32).collect();

        let given = (&model, &params);
        let mut whole = Writer::new(CachedDecoder::whole(&device, &model, &params)?);
        let prompt_s = whole.read(&context)?;
        let at_cut = |peer: Box<dyn DecodePeer>| -> Result<Writer<'_>> {
            Ok(Writer::new(CachedDecoder::cut(&device, given, &cut, peer)?))
        };
        let far = if self.whole_only {
            None
        } else {
            Some(Loopback::start((&model, &params, &device), &cut)?)
        };
        let mut sides = match &far {
            None => None,
            Some(far) => {
                let near = at_cut(Box::new(local_peer(&device, given, &cut)?))?;
                let mut sides = (far, at_cut(Box::new(far.dial()?))?, near);
                sides.1.read(&context)?;
                sides.2.read(&context)?;
                Some(sides)
            }
        };
        let mut uncached = Vec::new();
        for _ in 0..self.repeats {
            whole.write(self.tokens)?;
            if let Some((far, split, near)) = &mut sides {
                near.write(self.tokens)?;
                split.write(self.tokens)?;
                uncached.push(at_cut(Box::new(far.dial()?))?.read(&context)?);
            }
        }
        let differ = |(_, split, _): &(_, Writer<'_>, _)| split.tokens != whole.tokens;
        if device.precision() == Precision::F32 && sides.as_ref().is_some_and(differ) {
            bail!("the split decoder wrote other tokens than the whole one");
        }
        let per_s = |seconds: &[f64]| Some(rounded(1.0 / median(seconds)?, 3));
        let row = 2 * (model.width() * size_of::<f32>() + fedra_wire::FRAME_HEADER);
        let (shape, threads) = (self.shape.name(), self.threads.count());
        let precision =
            if format == WeightFormat::F32 { peers_precision(&device) } else { format.name() };
        let (prompt_s, whole_per_s) = (rounded(prompt_s, 3), per_s(&whole.seconds).unwrap_or(0.0));
        let split = sides.as_ref().and_then(|(_, split, _)| per_s(&split.seconds));
        let near = sides.as_ref().and_then(|(.., near)| per_s(&near.seconds));
        let uncached = per_s(&uncached);
        let object = json!({
            "shape": shape,
            "blocks": model.blocks(),
            "device": DeviceReport::of(&device).device,
            "precision": precision,
            "context": self.context,
            "tokens": self.tokens,
            "repeats": self.repeats,
            "threads": threads,
            "first": self.first,
            "last": self.last,
            // Seconds to read the context.
            "prompt_s": prompt_s,
            // Uncut, with a cache; then by the fastest token.
            "whole_tokens_per_s": whole_per_s,
            "whole_best_tokens_per_s": rounded(1.0 / least(&whole.seconds), 3),
            // Cut, with a cache at each side: the middle behind TLS on loopback, then in one thread.
            "cached_tokens_per_s": split,
            "near_tokens_per_s": near,
            // Cut, with the context sent again for each token over TLS.
            "uncached_tokens_per_s": uncached,
            // What crosses the cut for a token, both ways, as frames.
            "bytes_per_token": sides.is_some().then_some(row as f64),
            // Of the process, and of tensors on the device.
            "peak_bytes": peak_resident_bytes().unwrap_or(0),
            "device_peak_bytes": device.usage().peak_bytes,
        });
        let Self { context, first, last, .. } = self;
        let beside = match (split, near, uncached) {
            (Some(cut), Some(near), Some(uncached)) => format!(
                "\n  cut {first}+{last}, cached    {cut} over TLS, {near} in one thread\n  \
                 cut {first}+{last}, no cache  {uncached} over TLS"
            ),
            (_, _, _) => String::new(),
        };
        let place = match &device {
            Device::Cpu(_) | Device::Meta(_) => format!("{threads} threads"),
            Device::Cuda(_) => DeviceReport::of(&device).device,
        };
        let words = format!(
            "{shape} in {precision} on {place} behind {context} tokens (read in {prompt_s} s), \
             tokens per second:\n  whole, cached      {whole_per_s}{beside}"
        );
        Ok((object, words))
    }

    /// The shape with room for the context.
    fn model(&self) -> Result<Model> {
        let needed = self.context + self.tokens * self.repeats + 1;
        let mut config = self.shape.config();
        if !config.causal {
            bail!("--shape: found {}, an encoder, expected a decoder", self.shape.name())
        }
        config.max_position_embeddings = config.max_position_embeddings.max(needed);
        let model = Model::new(config, Head::Language, None)?;
        Ok(model.shallow(self.blocks.unwrap_or(usize::MAX))?)
    }
}

/// The middle in this process, with nothing but its own weights.
fn local_peer(
    device: &Device,
    (model, params): (&Model, &Params),
    cut: &Cut,
) -> Result<impl DecodePeer + use<>> {
    let blocks = model_server::blocks(cut)?;
    let limits = SessionLimits { cache_bytes: usize::MAX, ..SessionLimits::default() };
    let sessions = DecodeSessions::new(device, (model.clone(), params), blocks, limits)?;
    Ok(LocalPeer::open(sessions)?)
}

/// The middle behind mutual TLS on this machine, with certificates made for the occasion.
struct Loopback {
    // In this order: the server ends before the thread it runs on.
    server: Server,
    dialer: Dialer,
    identity: (String, usize),
    blocks: (usize, usize),
    runtime: Arc<Runtime>,
    _host: Arc<DecodeHost>,
    _server_runtime: Runtime,
}

impl Loopback {
    fn start(given: (&Model, &Params, &Device), cut: &Cut) -> Result<Self> {
        const CLIENT: &str = "bench";
        let authority = Authority::generate()?;
        let days = Days(1);
        let ca = authority.signed(days)?;
        let place = std::env::temp_dir().join(format!("fedra-bench-{}", std::process::id()));
        files::make_folder(&place)?;
        let _removed_at_the_end = Folder(place.clone());
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = place.join(name);
            files::write(&path, text)?;
            Ok(path)
        };
        let ca = write("ca.pem", &ca.certificate)?;
        let identity = |name: &str, signed: &Signed| -> Result<Identity> {
            let certificate = write(&format!("{name}.pem"), &signed.certificate)?;
            let key = write(&format!("{name}.key"), &signed.key)?;
            Ok(Identity { certificate, key, ca: ca.clone() })
        };
        let server = identity("server", &authority.server(&["127.0.0.1".to_owned()], days)?)?;
        let client = identity(CLIENT, &authority.client(CLIENT, days)?)?;

        let limits = SessionLimits { cache_bytes: usize::MAX, ..SessionLimits::default() };
        let host = model_server::host(given, cut, CLIENT.to_owned(), limits)?;
        let server_runtime = Runtime::start()?;
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = ServerOptions::new(address, ServerSecurity::Tls(server));
        let routes = with_sessions(Routes::default(), &host);
        let server = Server::start(&server_runtime, &options, routes, |_, _| {})?;
        let address = server.address.to_string();
        Ok(Self {
            dialer: Dialer::new(&address, &ServerSecurity::Tls(client))?,
            server,
            identity: (CLIENT.to_owned(), given.0.width()),
            blocks: host.blocks,
            runtime: Arc::new(Runtime::start()?),
            _host: host,
            _server_runtime: server_runtime,
        })
    }

    fn dial(&self) -> Result<NetDecodePeer> {
        let way = (Arc::clone(&self.runtime), self.dialer.clone());
        let (name, _) = &self.identity;
        let how = (self.blocks, RowEncoding::F32);
        let dialer = DecodeDialer::new(way, name.clone(), self.identity.clone(), how);
        dialer.open().with_context(|| format!("dialling {}", self.server.address))
    }
}

/// A folder that goes when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_dir_all(&self.0);
    }
}

/// A decoder that writes greedily.
struct Writer<'a> {
    decoder: CachedDecoder<'a>,
    logits: Option<Tensor>,
    tokens: Vec<u32>,
    /// How long each token took.
    seconds: Vec<f64>,
}

impl<'a> Writer<'a> {
    fn new(decoder: CachedDecoder<'a>) -> Self {
        Self { decoder, logits: None, tokens: Vec::new(), seconds: Vec::new() }
    }

    /// Reads tokens; returns its seconds.
    fn read(&mut self, tokens: &[u32]) -> Result<f64> {
        let start = Instant::now();
        self.logits = Some(self.decoder.read(tokens)?);
        Ok(start.elapsed().as_secs_f64())
    }

    fn write(&mut self, tokens: usize) -> Result<()> {
        for _ in 0..tokens {
            let start = Instant::now();
            let logits = self.logits.as_ref().context("a prompt was read")?;
            let token = Sampling::Greedy.choose_from(logits, 0)?;
            self.tokens.push(token);
            self.logits = Some(self.decoder.read(&[token])?);
            self.seconds.push(start.elapsed().as_secs_f64());
        }
        Ok(())
    }
}
