//! `fedra join`: one site of a federation, with its own rows alone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::config::Party;
use fedra::listener::Finishes;
use fedra::process::PeakMemory;
use fedra::run_files::LEDGER;
use fedra::text::grid::grouped;
use fedra::{Experiment, Joining};
use fedra_client::{Agreed, Client, Observer, PrivacyGuard};
use fedra_compute::{Seed, ThreadPool};
use fedra_engine::PrivateSelection;
use fedra_flower::{Endpoint, FlowerError, Membership, NodeKey, StockRun};
use fedra_net::{ClientNode, CutDialer, Dialer, Left, Listener, NetError, Runtime, ServerSecurity};
use fedra_privacy::Unit;

use crate::console;
use crate::device::DeviceFlags;
use crate::experiment::Overrides;
use crate::files;
use crate::flags::{Quiet, Verbosity, whole};
use crate::flower::AtSuperLink;
use crate::hub;
use crate::interrupt;
use crate::site_steps::SiteSteps;
use crate::tensor_names::tensor_names;
use crate::terminal::Terminal;
use crate::tls::Tls;

const EXAMPLES: &str = "\
Examples:
  fedra join experiments/clinic-concepts.toml --server 127.0.0.1:7400 --client hospital-1
  fedra join study.toml --server server.example:7400 --client north --set data.path=north.jsonl \\
      --tls-cert certs/clients/north.pem --tls-key certs/clients/north.key --tls-ca certs/ca.pem
  fedra join study.toml --superlink https://link.example:8000 --client north \\
      --set data.path=north.jsonl --key north.key --ca certs/ca.pem

After a lost connection the client reconnects, with growing waits. A client that was killed
resumes from --state when the same command is given again. docs/deploy.md describes a whole
deployment.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Join {
    /// Experiment file in TOML: the server's, with this client's rows
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    device: DeviceFlags,
    /// The server's address
    #[arg(
        long,
        value_name = "HOST:PORT",
        required_unless_present = "superlink",
        conflicts_with = "superlink"
    )]
    server: Option<String>,
    #[command(flatten)]
    flower: AtSuperLink,
    /// Key of this node at the SuperLink, as `fedra flower key` writes it [default: one in --state]
    #[arg(long = "key", value_name = "FILE", requires = "superlink")]
    node_key: Option<PathBuf>,
    /// The client of the experiment that runs here
    #[arg(long, value_name = "NAME")]
    client: String,
    /// Take part in a FedAvg run of a Flower app at the SuperLink; it sends the whole model under Hugging
    /// Face's names, and this client trains it as the experiment says. Ctrl-C leaves
    #[arg(long, requires = "superlink")]
    stock: bool,
    /// Folder for the client state [default: runs/NAME-CLIENT]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(flatten)]
    tls: Tls,
    /// Seed of the noise at a cut, to repeat a run; anyone who knows it can subtract the noise
    /// [default: a secret number in --state]
    #[arg(long, value_name = "N")]
    noise_seed: Option<u64>,
    /// End with status 2 after this time without an answer of the server, or, at a SuperLink, without a run for
    /// this client [default: never]
    #[arg(long, value_name = "SECONDS",
          value_parser = whole::<u64>(1, Some(31_536_000)))]
    give_up_after: Option<u64>,
    #[command(flatten)]
    quiet: Quiet,
}

impl Join {
    /// Runs it.
    pub fn run(self) -> Result<ExitCode> {
        fedra_compute::Allocator.keep_little();
        let voice = self.quiet.voice();
        let way = self.way()?;
        let overrides = self.device.over(self.overrides.as_given());
        let open = || Experiment::open_for(&self.file, Some(Party::Site), &overrides);
        let experiment = hub::opened(voice, open)?;
        let Joining { device, mut client, agreement, notes } =
            fedra::join(&experiment, &self.client, &Terminal::new(voice))?;
        let usual =
            || Path::new("runs").join(format!("{}-{}", experiment.name, file_name(&self.client)));
        let folder = self.state.clone().unwrap_or_else(usual);
        for note in &notes {
            voice.say(note);
        }
        voice.say(format_args!(
            "{} with {} training examples; client state in {}",
            self.client,
            grouped(client.info.examples),
            folder.display()
        ));
        // Rows that cross a cut are another release each time: what has begun is then finished.
        let is_counted = experiment.recipe.privacy.is_some() && experiment.recipe.split.is_some();
        let finishes = if is_counted { Finishes::Round } else { Finishes::Step };
        interrupt::within(match finishes {
            Finishes::Step => "step, if one is running",
            Finishes::Round => "request, if one is running",
        });
        let steps: Arc<dyn Observer> = Arc::new(SiteSteps::new(voice, finishes));
        client.observer = Arc::clone(&steps);
        let client = self.cut((client, steps), (&way, &experiment), &folder)?;
        let stock = self.stock_run(&experiment, &client)?;
        let client = guarded(client, &experiment, &folder)?;
        let mut site = ClientNode::new(client, agreement, &folder)?;
        let pool = match experiment.raw.threads {
            None => None,
            Some(threads) => Some(ThreadPool::new(threads).context("threads")?),
        };
        let listener = Said(voice);
        let go = || match way {
            Way::Server(runtime, dialer) => {
                fedra_net::join(&mut site, (&*runtime, &dialer), &listener).map_err(Into::into)
            }
            Way::SuperLink(endpoint) => {
                let key = self.node_key(&folder)?;
                let (folder, give_up_after) = (folder.clone(), self.patience());
                let membership = Membership { endpoint, key, folder, stock, give_up_after };
                fedra_flower::join(&mut site, membership, &listener)
            }
        };
        let left = match &pool {
            Some(pool) => pool.install(go),
            None => go(),
        };
        match left {
            // It worked until something of this machine failed: not a refusal.
            Err(FlowerError::Net(error)) if is_of_this_machine(&error) => {
                console::say(format_args!("error: {error}"));
                console::say("hint: once this is fixed, the same command joins again");
                Ok(ExitCode::FAILURE)
            }
            Err(error) => Err(error.into()),
            Ok(left) => {
                voice.say(format_args!("memory: {}", PeakMemory::of(&device)));
                Ok(ended(left, &listener))
            }
        }
    }

    /// How long nobody may answer.
    fn patience(&self) -> Option<Duration> {
        self.give_up_after.map(Duration::from_secs)
    }

    /// How the server is reached.
    fn way(&self) -> Result<Way> {
        let flags = [(self.node_key.is_some(), "--key"), (self.stock, "--stock")];
        if let Some(endpoint) = self.flower.endpoint(&self.tls, &flags)? {
            return Ok(Way::SuperLink(endpoint));
        }
        let Some(server) = &self.server else { bail!("give --server or --superlink") };
        let security = self.tls.security("--server", server)?;
        if let ServerSecurity::Tls(identity) = &security {
            let names = identity.names()?;
            if !names.contains(&self.client) {
                let found = names.join(", ");
                bail!("--tls-cert: found a certificate of {found:?}, expected {:?}", self.client);
            }
        }
        let mut dialer = Dialer::new(server, &security)?;
        dialer.patience = self.patience();
        Ok(Way::Server(Arc::new(Runtime::start()?), dialer))
    }

    /// The client with its way to the server's half of the model, where it is cut.
    fn cut(
        &self,
        (mut client, steps): (Client, Arc<dyn Observer>),
        (way, experiment): (&Way, &Experiment),
        folder: &Path,
    ) -> Result<Client> {
        if experiment.recipe.split.is_none() {
            return Ok(client);
        }
        let Way::Server(runtime, dialer) = way else {
            bail!(
                "--superlink cannot be combined with [split]: a SuperLink stores and forwards messages"
            );
        };
        let way = (Arc::clone(runtime), dialer.clone());
        let mut cut = CutDialer::new(way, self.client.clone(), client.model.width());
        cut.observer = Some(steps);
        if let (Some(seed), Some(_)) = (self.noise_seed, &experiment.recipe.privacy) {
            let expected = "no such flag with [privacy], where noise comes from the key in --state";
            bail!("--noise-seed: found {seed}, expected {expected}");
        }
        client.noise_seed = noise_seed(folder, self.noise_seed)?;
        client.connect = Some(Arc::new(cut));
        Ok(client)
    }

    /// How it takes part in a run that is none of ours, if it is to.
    fn stock_run(&self, experiment: &Experiment, client: &Client) -> Result<Option<StockRun>> {
        if !self.stock {
            return Ok(None);
        }
        let recipe = &experiment.recipe;
        if recipe.method != "fedavg" {
            bail!("--stock: found the method {}, expected fedavg", recipe.method);
        }
        if recipe.privacy.is_some() {
            bail!(
                "--stock cannot be combined with [privacy]: the Flower app does not account for privacy"
            );
        }
        let (names, seed) = (tensor_names(&client.layout)?, experiment.seed);
        Ok(Some(StockRun { recipe: recipe.clone(), seed, names }))
    }

    /// This node's key: the one that was given, or one of its own that it keeps.
    fn node_key(&self, folder: &Path) -> Result<NodeKey, FlowerError> {
        if let Some(file) = &self.node_key {
            return NodeKey::open(file);
        }
        let file = folder.join("node.key");
        let draw = || NodeKey::generate().map_err(std::io::Error::other);
        let unusable =
            |reason: String| FlowerError::File { file: file.display().to_string(), reason };
        let text =
            fedra_net::kept_secret(&file, draw).map_err(|error| unusable(error.to_string()))?;
        NodeKey::read(&text).map_err(unusable)
    }
}

/// Whether a file, or the device that computes, has failed here.
fn is_of_this_machine(error: &NetError) -> bool {
    matches!(error, NetError::System { .. })
        || matches!(error, NetError::Work(work) if work.is_device_failure())
}

/// How the server is reached.
enum Way {
    /// Over our own network.
    Server(Arc<Runtime>, Dialer),
    /// Through a SuperLink.
    SuperLink(Endpoint),
}

/// Says how it ended; the status of the process.
fn ended(left: Left, listener: &Said) -> ExitCode {
    match left {
        Left::Ended(reason) => {
            listener.told(&format!("done: {reason}"));
            ExitCode::SUCCESS
        }
        Left::GaveUp(reason) => {
            console::say(format_args!("error: the server gave up: {reason}"));
            ExitCode::FAILURE
        }
        Left::Alone(reason) => {
            console::say(format_args!("error: {reason}"));
            console::say(
                "hint: the federation may have finished without this client; the same command joins again",
            );
            // Whoever chose the time wants it to be left alone after it.
            ExitCode::from(2)
        }
        Left::Stopped => {
            console::say("left; the same command joins again");
            ExitCode::from(interrupt::STATUS)
        }
    }
}

/// The seed of a site's noise: its own secret, drawn once from the system and kept, so that a site that
/// is started again adds the same noise to the same text.
fn noise_seed(folder: &Path, given: Option<u64>) -> Result<Seed> {
    if let Some(seed) = given {
        return Ok(Seed(seed));
    }
    files::make_folder(folder)?;
    let file = folder.join("noise.seed");
    let draw = || fedra_net::secret_number().map(|number| format!("{number}\n"));
    let kept = fedra_net::kept_secret(&file, draw);
    let kept = kept.with_context(|| format!("cannot read or write {}", file.display()))?;
    let number = kept.trim().parse::<u64>();
    Ok(Seed(number.with_context(|| format!("{}: expected one number", file.display()))?))
}

/// The client with a secret of its own, and with a ledger that it keeps itself where its examples were
/// guaranteed something.
fn guarded(mut client: Client, experiment: &Experiment, folder: &Path) -> Result<Client> {
    let Some(privacy) = &experiment.recipe.privacy else { return Ok(client) };
    if privacy.guarantee.unit != Unit::Example {
        return Ok(client);
    }
    files::make_folder(folder)?;
    let (file, ledger) = (folder.join("noise.key"), folder.join(LEDGER));
    // Without the key the same answers would get different noise; without the ledger they would not be counted.
    let missing = match (file.exists(), ledger.exists()) {
        (true, true) | (false, false) => None,
        (true, false) => Some((LEDGER, "the earlier releases are unknown")),
        (false, true) => Some(("noise.key", "the same answers would get different noise")),
    };
    if let Some((name, why)) = missing {
        bail!(
            "{}: {name} is missing, so {why}\n\
             hint: restore it, or start over with another --state; earlier releases still count",
            folder.display()
        );
    }
    let key = fedra_net::kept_key(&file);
    let key = key.with_context(|| format!("cannot read or write {}", file.display()))?;
    let agreed = Agreed {
        block_scores: privacy.selection == PrivateSelection::PrivateUnaccounted,
        client_scores: privacy.client_scores,
        noise: experiment.raw.privacy.as_ref().and_then(|table| table.noise).map(|_| privacy.noise),
    };
    client.guard = Some(PrivacyGuard::open(privacy.guarantee, ledger, agreed)?);
    client.secret = key;
    Ok(client)
}

/// A client's name as a part of a folder's.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

/// What is heard of the other side.
pub struct Said(pub Verbosity);

impl Listener for Said {
    fn told(&self, line: &str) {
        self.0.say(line);
    }

    fn stops(&self) -> bool {
        interrupt::interrupted()
    }
}
