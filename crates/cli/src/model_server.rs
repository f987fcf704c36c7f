//! The middle of a saved decoder, for clients that keep its ends: sessions behind one address.

use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::prepare::fingerprint;
use fedra_client::generate::{DecodeSessions, Gathering, SessionLimits, SharedSessions};
use fedra_compute::{Device, Params, Seed, WeightFormat};
use fedra_model::{
    Classifier, Head, Loaded, Model, Wanted, WeightStorage, load_part_as, open_checkpoint,
};
use fedra_net::{
    DecodeHost, Routes, Runtime, Server, ServerOptions, ServerSecurity, with_sessions,
};
use fedra_plan::{ByteCount, Cut, Layout, Side};

use crate::{console, interrupt};

/// Where a decoder is cut.
#[derive(Args, Clone, Copy, Debug)]
pub struct CutFlags {
    /// Blocks after the embedding that a client keeps [default: 1]
    #[arg(long, value_name = "BLOCKS")]
    first: Option<u16>,
    /// Blocks before the head that a client keeps [default: 1]
    #[arg(long, value_name = "BLOCKS")]
    last: Option<u16>,
}

impl CutFlags {
    /// Refuses ends where nothing is cut by them.
    pub fn refuse_without(self, flag: &str) -> Result<()> {
        if self.first.is_some() || self.last.is_some() {
            bail!("--first and --last apply only with {flag}");
        }
        Ok(())
    }
}

/// How often somebody who wants to stop is heard.
const GLANCE: Duration = Duration::from_millis(100);

/// Loads one side of a saved decoder; values of the other side are never read.
pub fn load_side(
    path: &Path,
    (ends, side): (CutFlags, Side),
    (device, weights): (&Device, WeightFormat),
) -> Result<(Loaded, Cut)> {
    let checkpoint = open_checkpoint(path)?;
    let wanted = Wanted { head: Head::Language, classifier: Classifier::Stored, adapters: None };
    let model = Model::new(checkpoint.config().clone(), Head::Language, None)?;
    let (first, last) = (ends.first.unwrap_or(1), ends.last.unwrap_or(1));
    let cut = Cut::keep(first, last, model.layout().blocks()).context("--first and --last")?;
    let keep = |id: fedra_plan::ParamId| cut.side(id.layer) == side;
    let stored = |layout: &Layout| WeightStorage::of_all(weights, layout);
    let loaded = load_part_as(&checkpoint, wanted, (device, Seed(0)), keep, stored)?;
    Ok((loaded, cut))
}

/// What a client and a server have to have alike.
pub fn identity(path: &Path) -> Result<String> {
    Ok(fingerprint::of_model(path)?.to_string()[..16].to_owned())
}

/// The blocks that a server has.
pub fn blocks(cut: &Cut) -> Result<Range<usize>> {
    let blocks = cut.server_blocks().context("a cut has blocks at the server")?;
    Ok(usize::from(blocks.start)..usize::from(blocks.end))
}

/// Sessions over the middle of a model.
pub fn host(
    (model, params, device): (&Model, &Params, &Device),
    cut: &Cut,
    identity: String,
    limits: SessionLimits,
) -> Result<Arc<DecodeHost>> {
    let blocks = blocks(cut)?;
    let sessions = DecodeSessions::new(device, (model.clone(), params), blocks.clone(), limits)?;
    let sessions = SharedSessions::start(sessions, Gathering::default())?;
    let (blocks, width) = ((blocks.start, blocks.end), model.width());
    Ok(Arc::new(DecodeHost { sessions, blocks, width, model: identity }))
}

/// Serves the middle of a decoder, its weights in a format, until it is interrupted.
pub fn serve(
    (path, ends): (&Path, CutFlags),
    (device, weights): (&Device, WeightFormat),
    options: &ServerOptions,
) -> Result<ExitCode> {
    let (loaded, cut) = load_side(path, (ends, Side::Server), (device, weights))?;
    device.check().context("the model does not fit on the device")?;
    let limits = SessionLimits::default();
    let host = host((&loaded.model, &loaded.params, device), &cut, identity(path)?, limits)?;
    let runtime = Runtime::start()?;
    let how = match options.security {
        ServerSecurity::Tls(_) => "mutual TLS",
        ServerSecurity::Plain => "no TLS: clients are not authenticated",
    };
    let routes = with_sessions(Routes::default(), &host);
    let server = Server::start(&runtime, options, routes, |address, reason| {
        console::say(format_args!("{address}: {reason}"));
    })?;
    let (start, end) = host.blocks;
    console::say(format_args!(
        "blocks {start} to {} of {} at {} ({how})",
        end - 1,
        loaded.model.blocks(),
        server.address
    ));
    drop(loaded);
    interrupt::within("moment");
    while !interrupt::interrupted() {
        std::thread::sleep(GLANCE);
    }
    let usage = host.sessions.usage()?;
    console::say(format_args!(
        "{} steps in {} batches; {} sessions were open, with {} of caches",
        usage.steps,
        usage.batches,
        usage.sessions,
        ByteCount(usage.cache_bytes as u64)
    ));
    Ok(ExitCode::SUCCESS)
}
