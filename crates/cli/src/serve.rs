//! `fedra serve`: coordinates a federation whose clients are on other machines. With `--model` it serves a decoder: its
//! middle blocks, or all of it to clients of OpenAI's protocol.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use fedra::config::Party;
use fedra::folder::output_folder::OverwritePolicy;
use fedra::prepare::client_counts::{ClientCounts, CountsOfClient};
use fedra::run::federate::Ending;
use fedra::run::serve::{Host, Serving};
use fedra::run::start::Output;
use fedra::text::grid::counted;
use fedra::{Error, Experiment};
use fedra_client::Observer;
use fedra_compute::{SecretKey, WeightFormat};
use fedra_engine::{EngineError, ParamValues};
use fedra_flower::{Admission, Apps, Endpoint, NodeKeys, StockClients, Task};
use fedra_net::{
    Capacity, Carrier, Demand, Federated, FleetOptions, NetFleet, Routes, RunEnd, Runtime,
    ServerOptions, ServerSecurity, Start, with_middle,
};
use fedra_plan::{ByteCount, Layout, Round};

use crate::console;
use crate::device::DeviceFlags;
use crate::experiment::Overrides;
use crate::flags::{Quiet, Verbosity, whole};
use crate::flower::AtSuperLink;
use crate::hub;
use crate::interrupt;
use crate::join::Said;
use crate::model_server::{self, CutFlags};
use crate::openai::{self, OpenAiFlags, Serving as ServingModels};
use crate::run;
use crate::tensor_names::tensor_names;
use crate::terminal::Terminal;
use crate::tls::Tls;
use crate::weights::FormerFlag;

const EXAMPLES: &str = "\
Examples:
  fedra serve experiments/clinic-concepts.toml --listen 127.0.0.1:7400
  fedra serve study.toml --listen 0.0.0.0:7400 --out runs/study \\
      --tls-cert certs/server.pem --tls-key certs/server.key --tls-ca certs/ca.pem
  fedra serve study.toml --superlink https://link.example:8000 --ca certs/ca.pem
  fedra serve --model models/smollm2 --first 1 --last 1 --listen 127.0.0.1:7400
  fedra serve --model runs/answers --openai

A server that was stopped or killed resumes when the same command is given again. docs/deploy.md
describes a whole deployment, and docs/chat.md the OpenAI protocol.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Serve {
    /// Experiment file in TOML
    #[arg(value_name = "FILE.toml", required_unless_present = "model")]
    file: Option<PathBuf>,
    /// Serve this decoder, a folder or hf:ORG/NAME; its middle blocks to `fedra generate`, or all of it to clients of
    /// OpenAI's protocol (--openai); there is no experiment
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "out", "force"])]
    model: Option<PathBuf>,
    #[command(flatten)]
    openai: OpenAiFlags,
    #[command(flatten)]
    ends: CutFlags,
    /// With --model: store weights as f32, bf16, int8 or int4 [default: f32]
    #[arg(long, value_name = "FORMAT", requires = "model", value_parser = WeightFormat::from_str)]
    weights: Option<WeightFormat>,
    #[command(flatten)]
    former: FormerFlag,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    device: DeviceFlags,
    /// Address to listen on, as in 127.0.0.1:7400 or [::]:7400 [default: 127.0.0.1:8080 with --openai]
    #[arg(
        long,
        value_name = "ADDR",
        required_unless_present_any = ["superlink", "is_on"],
        conflicts_with = "superlink"
    )]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    flower: AtSuperLink,
    /// A client at the SuperLink that is a Flower app; EXAMPLES is its number of training examples. It receives the
    /// whole model under Hugging Face's names and trains it (FedAvg only). It is the node with its key in
    /// --node-keys, or else the first node without a key
    #[arg(long, value_name = "NAME=EXAMPLES", requires = "superlink", value_parser = stock_client)]
    stock: Vec<(String, u64)>,
    /// Folder with the public keys of the clients at the SuperLink; files such as north.key.pub identify the
    /// nodes [default: nodes are not authenticated]
    #[arg(long, value_name = "DIR", requires = "superlink")]
    node_keys: Option<PathBuf>,
    #[command(flatten)]
    tls: Tls,
    /// Where results go [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace the run that the folder holds
    #[arg(long)]
    force: bool,
    /// Begin once N clients have joined [default: all]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, None))]
    wait_for: Option<u32>,
    /// Begin after this time if at least one client has joined
    #[arg(long, value_name = "SECONDS")]
    start_after: Option<u64>,
    /// Time limit of a client for one request
    #[arg(long, value_name = "SECONDS", default_value_t = 3600,
          value_parser = whole::<u64>(1, Some(31_536_000)))]
    deadline: u64,
    /// How long a client may be disconnected; then the round continues without it
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = whole::<u64>(0, Some(31_536_000)))]
    grace: u64,
    /// Wait for absent clients before a round is repeated; a round with too few updates is (federation.retries), and
    /// the wait doubles each time, up to ten minutes
    #[arg(long, value_name = "SECONDS", default_value_t = 30, hide_short_help = true,
          value_parser = whole::<u64>(0, Some(31_536_000)))]
    retry_after: u64,
    /// Most connections at a time; each client needs one, and two where the model is cut
    /// [default: 1000, with --openai 256, or what the system allows]
    #[arg(long, value_name = "N", conflicts_with = "superlink",
          value_parser = whole::<u32>(1, None))]
    max_connections: Option<u32>,
    #[command(flatten)]
    quiet: Quiet,
}

impl Serve {
    /// Runs it.
    pub fn run(self) -> Result<ExitCode> {
        fedra_compute::Allocator.keep_little();
        let voice = self.quiet.voice();
        let capacity = Capacity::of_process(self.max_connections.map(|most| most as usize));
        let nobody_known = Demand { clients: 0, each: 1 };
        if let Some(model) = self.model.as_ref().filter(|_| self.openai.is_on()) {
            let possible = capacity.connections(nobody_known).map_err(anyhow::Error::msg)?;
            let usual = if self.max_connections.is_some() { possible } else { openai::CONNECTIONS };
            let connections = possible.min(usual);
            let serving = ServingModels {
                model,
                weights: self.former.over(self.weights),
                device: self.device.open(voice)?,
                listen: self.listen,
                connections,
                voice,
            };
            return self.openai.serve(&serving, self.openai.middle(self.ends, &self.tls));
        }
        self.openai.refuse_without()?;
        let flags =
            [(self.node_keys.is_some(), "--node-keys"), (!self.stock.is_empty(), "--stock")];
        let network = match (self.listen, self.flower.endpoint(&self.tls, &flags)?) {
            (Some(listen), None) => {
                let security = self.tls.security("--listen", &listen.to_string())?;
                Network::Own(ServerOptions::new(listen, security))
            }
            (_, Some(endpoint)) => Network::SuperLink(endpoint),
            (None, None) => bail!("give --listen or --superlink"),
        };
        let Some(file) = &self.file else {
            let Some(path) = &self.model else { bail!("give an experiment file or --model") };
            let Network::Own(mut listen) = network else {
                bail!("--superlink cannot be combined with --model: a decoder needs streams");
            };
            listen.connections = capacity.connections(nobody_known).map_err(anyhow::Error::msg)?;
            let path = hub::folder("--model", path, voice)?;
            let device = self.device.open(voice)?;
            let weights = self.former.over(self.weights).unwrap_or_default();
            return model_server::serve((&path, self.ends), (&device, weights), &listen);
        };
        self.ends.refuse_without("--model (an experiment's cut is [split])")?;
        let overrides = self.device.over(self.overrides.as_given());
        let open = || Experiment::open_for(file, Some(Party::Server), &overrides);
        let experiment = hub::opened(voice, open)?;
        if !self.stock.is_empty() {
            refuse_with_stock(&experiment)?;
        }
        let usual = || Path::new("runs").join(&experiment.name);
        let folder = self.out.clone().unwrap_or_else(usual);
        let over = if self.force { OverwritePolicy::AnyRun } else { OverwritePolicy::Nothing };
        let output = Output { folder, over };
        let seconds = Duration::from_secs;
        let mut sites = Sites {
            network,
            capacity,
            stock: self.stock,
            keys: self.node_keys.as_deref().map(NodeKeys::open).transpose()?,
            options: FleetOptions {
                deadline: seconds(self.deadline),
                grace: seconds(self.grace),
                retry_after: seconds(self.retry_after),
                farewell: seconds(self.grace),
                ..FleetOptions::default()
            },
            start: Start {
                wait_for: self.wait_for.map(|count| count as usize),
                start_after: self.start_after.map(seconds),
            },
            voice,
            has_run: false,
        };
        let served = fedra::serve(&experiment, &output, &Terminal::new(voice), &mut sites);
        let ending = match served {
            Err(error) if sites.has_run && error.is_breakdown() => {
                let status = crate::ended(Err(error.into()));
                console::say(RUN_IS_OVER);
                return Ok(status);
            }
            other => other?,
        };
        let how = if sites.has_run {
            ": within a minute in the same run, later in that of another `flwr run`"
        } else {
            ""
        };
        let go_on = format!(" in {}; the same command resumes{how}", output.folder.display());
        Ok(run::show(&ending, &output.folder, voice, &go_on))
    }
}

/// Refuses an experiment in which a Flower app cannot take part: it receives all weights of the model and trains them.
fn refuse_with_stock(experiment: &Experiment) -> Result<()> {
    let weights = experiment.raw.model.weights;
    if weights != WeightFormat::F32 {
        bail!(
            "--stock: found model.weights = \"{weights}\", expected \"f32\": a Flower app receives all weights"
        );
    }
    if experiment.recipe.method != "fedavg" {
        let found = &experiment.recipe.method;
        bail!(
            "--stock: found the method {found}, expected fedavg: a Flower app trains the whole model"
        );
    }
    if !experiment.recipe.ranks.is_empty() {
        bail!(
            "--stock: found federation.ranks, expected no such key: a Flower app trains the whole model"
        );
    }
    Ok(())
}

/// What has to be done after a breakdown where messages went through a SuperLink.
const RUN_IS_OVER: &str = "hint: its run at the SuperLink has ended: that command needs another `flwr run`, and \
                           clients that have left have to be started again";

/// What carries messages.
enum Network {
    /// Our own server.
    Own(ServerOptions),
    /// A SuperLink.
    SuperLink(Endpoint),
}

/// The network behind a federation.
struct Sites {
    network: Network,
    capacity: Capacity,
    stock: Vec<(String, u64)>,
    keys: Option<NodeKeys>,
    options: FleetOptions,
    start: Start,
    voice: Verbosity,
    /// Whether a run of a SuperLink was taken.
    has_run: bool,
}

impl Host for Sites {
    type Fleet = NetFleet;

    fn meet(&mut self, serving: Serving<'_>) -> fedra::Result<Option<(NetFleet, ClientCounts)>> {
        interrupt::waits_for_others();
        let Serving { names, agreement, layout, ranks, initial, middle, central, folder } = serving;
        if let Some(wanted) = self.start.wait_for.filter(|wanted| *wanted > names.len()) {
            let clients = counted(names.len() as u64, "client");
            return Err(Error::Refused(format!(
                "--wait-for: found {wanted}, expected at most the experiment's {clients}"
            )));
        }
        let options = self.options.clone();
        let listener = Box::new(Said(self.voice));
        let refused = |error: fedra_net::NetError| {
            if error.lacks_descriptors() {
                // Started again, it may do better.
                let (doing, reason) = ("connect to the clients", error.to_string());
                return Error::Engine(EngineError::Fleet { doing, reason });
            }
            Error::Refused(error.to_string())
        };
        let mut fleet = match &self.network {
            Network::Own(server) => {
                let routes = match &middle {
                    None => Routes::default(),
                    Some(middle) => with_middle(Routes::default(), middle, &names),
                };
                let each = if middle.is_some() { 2 } else { 1 };
                let demand = Demand { clients: names.len(), each };
                let connections = self.capacity.connections(demand).map_err(Error::Refused)?;
                let server = &ServerOptions { connections, ..server.clone() };
                let federated = Federated { names, agreement, layout, ranks, initial, routes };
                let fleet =
                    NetFleet::listen(federated, (server, folder), options, listener, central);
                let fleet = fleet.map_err(refused)?;
                let how = match server.security {
                    ServerSecurity::Tls(_) => "mutual TLS",
                    ServerSecurity::Plain => "no TLS: clients are not authenticated",
                };
                self.voice.say(format_args!("listening on {} ({how})", fleet.address()));
                fleet
            }
            Network::SuperLink(endpoint) => {
                if middle.is_some() {
                    let expected = "no [split] with a SuperLink, which stores and forwards: rows of a split \
                                    model would wait a third of a second at each crossing";
                    return Err(Error::Refused(format!("--superlink: expected {expected}")));
                }
                self.check_keys(&names)?;
                let stock = self.stock_clients((&names, &layout), &initial)?;
                // The client app of such clients comes with the run.
                let apps = if stock.is_some() { Apps::Any } else { Apps::Ours };
                let admission = Admission { stock, keys: self.keys.clone() };
                let task = Task::acquire(endpoint, (apps, folder), &*listener);
                let task = task.map_err(|error| Error::Refused(error.to_string()))?;
                let Some(task) = task else { return Ok(None) };
                self.has_run = true;
                let routes = Routes::default();
                let federated = Federated { names, agreement, layout, ranks, initial, routes };
                let start = |reception, _routes, _runtime: &Runtime| {
                    Ok(Box::new(task.start(reception, admission)?) as Box<dyn Carrier>)
                };
                let fleet =
                    NetFleet::over(federated, (folder, options), (listener, central), start);
                let fleet = fleet.map_err(refused)?;
                let how = match (endpoint.is_encrypted(), &self.keys) {
                    (true, Some(_)) => "TLS; nodes are authenticated by key",
                    (true, None) => "TLS; nodes are not authenticated",
                    (false, Some(_)) => "no TLS; nodes are authenticated by key",
                    (false, None) => "no TLS; nodes are not authenticated",
                };
                self.voice.say(format_args!("coordinating through {} ({how})", fleet.address()));
                fleet
            }
        };
        let Some(census) = fleet.wait(self.start).map_err(refused)? else { return Ok(None) };
        let counts = |(name, counts): (String, fedra_net::Counts)| {
            let fedra_net::Counts { train, validation, test, tokens } = counts;
            CountsOfClient { name, train, validation, test, tokens }
        };
        Ok(Some((fleet, ClientCounts { clients: census.into_iter().map(counts).collect() })))
    }

    fn secret(&mut self) -> fedra::Result<SecretKey> {
        fedra_net::secret_key().map_err(|error| Error::Refused(error.to_string()))
    }

    fn begin(
        &mut self,
        fleet: &mut NetFleet,
        completed: Round,
        observer: Arc<dyn Observer>,
    ) -> Result<(), EngineError> {
        fleet.open(completed, observer)
    }

    fn end(&mut self, fleet: NetFleet, ending: &fedra::Result<Ending>) {
        for (name, traffic) in fleet.traffic() {
            let (up, down) = (ByteCount(traffic.received), ByteCount(traffic.sent));
            self.voice
                .say(format_args!("on the wire since this start, {name}: {up} up, {down} down"));
        }
        match ending {
            Ok(Ending::Complete(_)) => fleet.end(RunEnd::Complete, "all rounds are complete"),
            // Sites wait for a server that can go on.
            Ok(Ending::Interrupted { .. }) => fleet.pause(),
            // What to do about it is for whoever has the server's folder.
            Err(error) => {
                let words = error.in_words();
                fleet.end(RunEnd::GaveUp, words.split("\nhint:").next().unwrap_or(&words));
            }
        }
    }
}

/// A client that is an app of Flower's own, as it is given: `north=120`.
fn stock_client(text: &str) -> Result<(String, u64), String> {
    let expected = || format!("found {text:?}, expected a name and a number, as in north=120");
    let (name, examples) = text.rsplit_once('=').ok_or_else(expected)?;
    let examples = examples.parse().ok().filter(|examples| *examples > 0);
    Ok((name.to_owned(), examples.ok_or_else(expected)?))
}

impl Sites {
    /// Whether those who are waited for can prove who they are.
    fn check_keys(&self, names: &[String]) -> fedra::Result<()> {
        let Some(keys) = &self.keys else { return Ok(()) };
        let vouched: Vec<String> = self.stock.iter().map(|(name, _)| name.clone()).collect();
        let waited_for = match self.start {
            Start { start_after: Some(_), .. } => 1,
            Start { wait_for, .. } => wait_for.unwrap_or(names.len()),
        };
        let remarks = keys.check(names, (waited_for, &vouched));
        let remarks = remarks.map_err(|error| Error::Refused(error.to_string()))?;
        for remark in remarks {
            self.voice.say(format_args!("note: {remark}"));
        }
        Ok(())
    }

    /// The clients that are apps of Flower's own, if any are.
    fn stock_clients(
        &self,
        (names, layout): (&[String], &Layout),
        initial: &ParamValues,
    ) -> fedra::Result<Option<StockClients>> {
        if self.stock.is_empty() {
            return Ok(None);
        }
        let refused = |reason: String| Error::Refused(format!("--stock: {reason}"));
        if let Some((found, _)) = self.stock.iter().find(|(name, _)| !names.contains(name)) {
            let expected = names.join(", ");
            return Err(refused(format!("found {found:?}, expected one of {expected}")));
        }
        let tensors = tensor_names(layout).map_err(|error| Error::Refused(error.to_string()))?;
        let (clients, layout, initial) = (self.stock.clone(), layout.clone(), initial.clone());
        Ok(Some(StockClients { clients, layout, initial, names: tensors }))
    }
}
