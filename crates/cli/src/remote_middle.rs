//! A decoder whose middle may be at a server: opened, and made ready to write.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::apply::text_decoder::TextDecoder;
use fedra::apply::trained_model::ModelFolders;
use fedra::prepare::generation_config::GenerationConfig;
use fedra::prepare::pretrained::Pretrained;
use fedra_client::Perturbation;
use fedra_client::generate::{CachedDecoder, Leaving};
use fedra_compute::{Device, Seed};
use fedra_engine::{Noise, NoiseDraw, NoiseKind};
use fedra_model::{Loaded, Model};
use fedra_net::{DecodeDialer, Dialer, NetDecodePeer, Runtime, ServerSecurity};
use fedra_plan::{Cut, Side};
use fedra_wire::RowEncoding;

use crate::flags::{Verbosity, one_of};
use crate::join::Said;
use crate::model_server::{self, CutFlags, identity, load_side};
use crate::tls::Tls;

const ENCODINGS: [(&str, RowEncoding); 3] =
    [("f32", RowEncoding::F32), ("bf16", RowEncoding::Bf16), ("int8", RowEncoding::Int8)];

/// The middle of the decoder at a server.
#[derive(Args)]
pub struct RemoteFlags {
    /// Let this server run the middle blocks (`fedra serve --model`); text never leaves this machine
    #[arg(long, value_name = "HOST:PORT")]
    pub server: Option<String>,
    /// Name of this client; with TLS, the name in the certificate [default: the certificate's, or "client"]
    #[arg(long, value_name = "NAME", requires = "server", hide_short_help = true)]
    client: Option<String>,
    /// Encoding of the hidden states on the wire
    #[arg(long, value_name = "ENCODING", default_value = "f32", requires = "server",
          hide_short_help = true, value_parser = one_of(ENCODINGS))]
    encoding: RowEncoding,
    /// Noise on hidden states before they are sent: relative=GAMMA, absolute=SCALE or clipped=NORM,SIGMA
    #[arg(long, value_name = "KIND=SIZE", requires = "server", hide_short_help = true,
          value_parser = parse_noise)]
    noise: Option<NoiseKind>,
}

/// The flags together with what they share with others.
#[derive(Clone, Copy)]
pub struct RemoteMiddle<'f> {
    /// Where the middle is, if it is not here.
    pub flags: &'f RemoteFlags,
    /// What stays here.
    pub ends: CutFlags,
    /// How the server is spoken to.
    pub tls: &'f Tls,
}

/// A model that is ready to write, as far as it is here.
pub struct OpenedDecoder {
    /// Its folder, or that of its base.
    pub path: PathBuf,
    /// The model.
    pub decoder: TextDecoder,
    /// Where it is cut.
    pub cut: Option<Cut>,
}

impl RemoteMiddle<'_> {
    /// Refuses flags that say how a server is reached where there is none.
    pub fn check(&self) -> Result<()> {
        if self.flags.server.is_none() {
            self.ends.refuse_without("--server")?;
            self.tls.refuse_without("--server")?;
        }
        Ok(())
    }

    /// The model, as far as it is here.
    pub fn open(&self, folders: &ModelFolders, device: &Device) -> Result<OpenedDecoder> {
        let path = folders.model.clone();
        let (decoder, cut) = match (&self.flags.server, &folders.adapter) {
            (Some(_), Some(adapter)) => bail!(
                "--model: found the adapters {}, expected a whole model: the server has to have the same one\n\
                 hint: a run with adapters writes the whole model too, into its folder model",
                adapter.display()
            ),
            (Some(_), None) => {
                let Pretrained { tokenizer, .. } = Pretrained::open(&path)?;
                let (loaded, cut) =
                    load_side(&path, (self.ends, Side::Client), (device, folders.weights))?;
                let generation = GenerationConfig::of(&path, &loaded)?;
                (TextDecoder { loaded, tokenizer, generation }, Some(cut))
            }
            (None, _) => (TextDecoder::open(folders, device)?, None),
        };
        check(&decoder, (&path, device))?;
        Ok(OpenedDecoder { path, decoder, cut })
    }

    /// A decoder that has read nothing.
    pub fn decoder<'o>(
        &self,
        loaded: &'o Loaded,
        (path, cut): (&Path, Option<&Cut>),
        device: &Device,
    ) -> Result<CachedDecoder<'o>> {
        let given = (&loaded.model, &loaded.params);
        Ok(match (&self.flags.server, cut) {
            (Some(server), Some(cut)) => {
                let peer = self.dial(server, (path, &loaded.model), cut)?;
                let decoder = CachedDecoder::cut(device, given, cut, Box::new(peer))?;
                match self.flags.leaving()? {
                    None => decoder,
                    Some(leaving) => decoder.with_leaving(leaving),
                }
            }
            (Some(_) | None, _) => CachedDecoder::whole(device, given.0, given.1)?,
        })
    }

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
        let client = self.flags.client.clone().or(certified).unwrap_or_else(|| "client".to_owned());
        let way = (Arc::new(Runtime::start()?), Dialer::new(server, &security)?);
        let blocks = model_server::blocks(cut)?;
        let blocks = (blocks.start, blocks.end);
        let model = (identity(path)?, model.width());
        let mut dialer = DecodeDialer::new(way, client, model, (blocks, self.flags.encoding));
        dialer.listener = Some(Arc::new(Said(Verbosity::Lively)));
        Ok(dialer.open()?)
    }
}

impl RemoteFlags {
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

/// Whether a model writes text, and fits where it is.
pub fn check(decoder: &TextDecoder, (path, device): (&Path, &Device)) -> Result<()> {
    device.check().context("the model does not fit on the device")?;
    if !decoder.loaded.model.is_decoder() {
        bail!(
            "--model: {} is an encoder, which reads texts and cannot continue them; give a decoder\n\
             hint: fedra predict labels texts",
            path.display()
        );
    }
    Ok(())
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
