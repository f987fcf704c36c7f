//! A private run with canaries among its clients' rows, and what a curious server saw of them.
//!
//! A canary is a row of the client whose tokens and labels are drawn at random: nobody has its like, so
//! its gradient is large and its own. Each is put among the rows that the client learns from, or not, by
//! a coin. The run is an ordinary one, by the same code as any other. The server keeps what it sees
//! anyway, the model of each round and every client's update, and reads the noised sums back from them:
//!
//! ```text
//! update = - rate (sum of clipped gradients + sigma C z) / B
//! ```
//! That holds exactly for one plain SGD step a round and closely for a few; other work is refused. What
//! the guarantee speaks of is the noised sum, whatever is made of it afterwards.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fedra_client::{
    ClientError, Correction, Examples, Observer, TrainTask, Trainer, to_params_over,
};
use fedra_compute::{Device, Generator, Params, Seed};
use fedra_data::{Encoded, LabelSet, Target};
use fedra_engine::{
    Arrival, ClientId, ClientInfo, ClipRule, LocalRule, OptimiserConfig, Outcome, ParamValues,
    PrivateSteps, RoundProgress, Work,
};
use fedra_model::Model;
use fedra_plan::{ByteCount, Round, Scope};
use fedra_wire::{Encoding, Expectation, Kind, open};

use crate::config::{ConfigError, Experiment};
use crate::error::Result;
use crate::forecast::private::PrivacySummary;
use crate::listener::{Event, Listener, Rounds};
use crate::process::locked;
use crate::run::federate::{Ending, Run};
use crate::study::scratch_run::run_in_scratch;

/// A run that was watched.
pub struct CanaryRun {
    /// What it guarantees and has spent.
    pub privacy: PrivacySummary,
    /// The orders that its clients' steps were made under.
    pub steps: PrivateSteps,
    model: Model,
    base: Params,
    device: Device,
    work: Work,
    /// Its clients and their canaries.
    pub clients: Vec<CanaryClient>,
    /// The model before each round.
    models: Vec<ParamValues>,
    updates: BTreeMap<(Round, ClientId), ParamValues>,
}

/// A client and its canaries.
pub struct CanaryClient {
    /// Its own rows.
    rows: Examples,
    canaries: Vec<Encoded>,
    /// Whether each canary was among what it learnt from.
    pub coins: Vec<bool>,
}

/// How a server reads what clients sent: it need not believe that they did as they were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reading {
    /// Gradients were clipped as agreed.
    Clipped,
    /// They were not clipped at all.
    Unclipped,
}

impl Reading {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Clipped, Self::Unclipped];
}

/// What a server knows of one release of one client.
pub struct Sight {
    /// Which client.
    pub client: usize,
    /// The noised sum over the clip norm, less what the client's own rows gave, for one step's noise.
    pub released: Vec<f32>,
    /// The canaries' gradients over the clip norm, clipped or not, one after another.
    pub gradients: Vec<f32>,
}

impl CanaryRun {
    /// Runs the experiment with so many canaries; `None` when it was asked to stop on the way.
    pub fn run(
        experiment: &Experiment,
        canaries: usize,
        scratch: &Path,
        listener: &dyn Listener,
    ) -> Result<Option<Self>> {
        let mut run = Run::prepare(experiment)?;
        let steps = check(&run)?;
        let (model, device) = (run.prepared.model.clone(), run.device.clone());
        let base = run.prepared.base.clone();
        let clients = planted(&run, canaries, experiment.seed.of("canaries"))?;
        let inside = |client: &CanaryClient| -> Examples {
            let both = client.canaries.iter().zip(&client.coins);
            both.filter(|(_, inside)| **inside).map(|(canary, _)| canary.clone()).collect()
        };
        run.add_examples(&clients.iter().map(inside).collect::<Vec<_>>())?;
        let steps = run.recipe.private_steps().unwrap_or(steps);
        let work = run.recipe.work.clone();
        let first = fedra_client::to_values(&run.prepared.params);
        let watch = Watch { listener, payloads: Arc::default(), models: RefCell::new(vec![first]) };
        let ended = run_in_scratch(run, (experiment, scratch), &watch)?;
        let Ending::Complete(summary) = ended else { return Ok(None) };
        let Some(privacy) = summary.privacy else { return Err(not_private()) };
        let payloads = std::mem::take(&mut *locked(&watch.payloads));
        let mut updates = BTreeMap::new();
        for ((round, client), payload) in payloads {
            let expected = Expectation {
                layout: model.layout(),
                kind: Kind::Change,
                encoding: Encoding::F32,
                round,
                client,
                scope: None,
            };
            let opened = open(&payload, &expected).map_err(ClientError::from)?;
            updates.insert((round, client), opened.tensors());
        }
        let models = watch.models.into_inner();
        Ok(Some(Self { privacy, steps, model, base, device, work, clients, models, updates }))
    }

    /// By how much a canary counts in a sight of a client: the share of steps that it is in, for one
    /// step's noise.
    pub fn weight(&self, client: usize) -> f64 {
        let examples = self.examples(client);
        let steps = self.work.steps(self.steps.public_rows(examples));
        self.steps.rate(self.work.step_batch(), examples) * (steps as f64).sqrt()
    }

    fn examples(&self, client: usize) -> u64 {
        let CanaryClient { rows, coins, .. } = &self.clients[client];
        (rows.len() + coins.iter().filter(|inside| **inside).count()) as u64
    }

    /// Hands over every release as the server reads it, under the clip norm that was agreed on.
    pub fn sights(
        &self,
        (reading, clip): (Reading, f64),
        see: &mut dyn FnMut(Sight) -> Result<()>,
    ) -> Result<()> {
        let device = &self.device;
        for ((round, client), update) in &self.updates {
            let (place, scope) = (client.0 as usize, update.scope());
            let over = (self.model.layout(), &self.base);
            let params = to_params_over(device, over, &self.models[round.0 as usize])?;
            let model = &self.model;
            let read = Reader { model, device, params: &params, scope, reading, clip };
            let OptimiserConfig::Sgd { rate, .. } = self.work.solver else { continue };
            let examples = self.examples(place);
            let mean = self.steps.mean_batch(self.work.step_batch(), examples) as f64;
            let steps = self.work.steps(self.steps.public_rows(examples)) as f64;
            let (share, root) = (self.steps.rate(self.work.step_batch(), examples), steps.sqrt());
            let scale = -mean / (f64::from(rate) * clip * root);
            let mut released = update.scaled(scale);
            let CanaryClient { rows, canaries, .. } = &self.clients[place];
            for row in rows.encoded() {
                released.add_scaled(-((share * root) as f32), &read.gradient(row)?);
            }
            let mut gradients = Vec::with_capacity(canaries.len() * released.elements());
            for canary in canaries {
                gradients.extend(read.gradient(canary)?.flattened());
            }
            see(Sight { client: place, released: released.flattened(), gradients })?;
        }
        Ok(())
    }
}

/// Gradients of single rows at one model.
struct Reader<'a> {
    model: &'a Model,
    device: &'a Device,
    params: &'a Params,
    scope: Scope,
    reading: Reading,
    clip: f64,
}

impl Reader<'_> {
    /// The gradient of a row over the clip norm: one plain step at rate one is its negative.
    fn gradient(&self, row: &Encoded) -> Result<ParamValues> {
        let work =
            Work { batch: 1, ..Work::new(OptimiserConfig::Sgd { rate: 1.0, weight_decay: 0.0 }) };
        let trainer = Trainer { model: self.model, device: self.device, cache: ByteCount(0) };
        let task = TrainTask {
            client: "the auditor",
            examples: std::slice::from_ref(row),
            round: Round(0),
            scope: &self.scope,
            work: &work,
            labels: &LabelSet::default(),
            moments: None,
            correction: Correction::Nothing,
            seed: Seed(0),
            key: None,
        };
        let mut params = self.params.clone();
        let change = trainer.train(&mut params, &task)?.change;
        let factor = match self.reading {
            Reading::Clipped => -1.0 / change.squares().sqrt().max(self.clip),
            Reading::Unclipped => -1.0 / self.clip,
        };
        Ok(change.scaled(factor))
    }
}

/// Refuses what cannot be audited in this way.
fn check(run: &Run) -> Result<PrivateSteps> {
    let recipe = &run.recipe;
    let Some(steps) = recipe.private_steps() else { return Err(not_private()) };
    let Work { solver, schedule, local, clip, encoding, dropout, .. } = &recipe.work;
    let plain_loss = recipe.work.class_weights.is_none() && recipe.work.label_smoothing == 0.0;
    let is_plain =
        matches!(solver, OptimiserConfig::Sgd { weight_decay, .. } if *weight_decay == 0.0);
    let sgd = "{ name = \"sgd\", rate = 0.1 }, from whose steps the sums can be computed";
    let clipping = format!("{:?}", steps.clipping);
    let norm = clip.map_or(String::new(), |norm| norm.to_string());
    for (is_right, key, found, expected) in [
        (is_plain, "work.optimiser", "another one".to_owned(), sgd),
        (
            schedule.is_constant(),
            "work.schedule",
            "a rate that changes".to_owned(),
            "\"constant\" without work.warmup",
        ),
        (*dropout == 0.0, "work.dropout", dropout.to_string(), "0"),
        (
            plain_loss,
            "work.class_weights or work.label_smoothing",
            "a loss with one of them".to_owned(),
            "the plain loss",
        ),
        (*local == LocalRule::Plain, "method", "a local rule".to_owned(), "a method without one"),
        (clip.is_none(), "work.clip", norm, "none together with privacy.clip"),
        (*encoding == Encoding::F32, "wire.encoding", encoding.to_string(), "\"f32\""),
        (steps.clipping == ClipRule::Flat, "privacy.clipping", clipping, "\"flat\""),
        (recipe.split.is_none(), "split", "a cut model".to_owned(), "a whole one"),
    ] {
        ConfigError::new(key, found, format_args!("{expected} for an audit")).when(!is_right)?;
    }
    Ok(steps)
}

fn not_private() -> crate::error::Error {
    let expected = "example-level differential privacy: [privacy] with unit = \"example\"";
    ConfigError::new("privacy", "none", expected).into()
}

/// Canaries for each client, as many for each as can be.
fn planted(run: &Run, canaries: usize, seed: Seed) -> Result<Vec<CanaryClient>> {
    let prepared = &run.prepared;
    let (shards, words) = (&prepared.shards, prepared.model.config().vocab_size);
    let count = shards.clients.len();
    let expected = format_args!("at least one for each of {count} clients");
    ConfigError::new("canaries", canaries, expected).when(canaries < count)?;
    let classes = shards.labels.len().max(1);
    let mut clients = Vec::with_capacity(count);
    for (place, shard) in shards.clients.iter().enumerate() {
        let mut generator = seed.with(place as u64).generator();
        let own = canaries / count + usize::from(place < canaries % count);
        let mut drawn = Vec::with_capacity(own);
        for _ in 0..own {
            let form = &shard.train.encoded()[generator.below(shard.train.len())];
            drawn.push(canary(form, (words, classes), &mut generator)?);
        }
        let coins = (0..own).map(|_| generator.uniform() < 0.5).collect();
        clients.push(CanaryClient { rows: shard.train.clone(), canaries: drawn, coins });
    }
    Ok(clients)
}

/// A row of the same form with random tokens and labels; what stands at both ends stays.
fn canary(
    form: &Encoded,
    (words, classes): (usize, usize),
    generator: &mut Generator,
) -> Result<Encoded> {
    let mut canary = form.clone();
    let last = canary.ids.len().saturating_sub(1);
    for id in canary.ids.iter_mut().take(last).skip(1) {
        *id = generator.below(words) as u32;
    }
    match &mut canary.target {
        Target::One(class) => *class = generator.below(classes) as u32,
        Target::Many(codes) => {
            *codes = (0..classes as u32).filter(|_| generator.uniform() < 0.5).collect();
        }
        Target::PerToken(labels) => {
            for label in labels.iter_mut().flatten() {
                *label = generator.below(classes) as u32;
            }
        }
        Target::Choice(_) | Target::Text(_) | Target::Preference(_) => {
            let expected = "a task with labels, for canaries with random ones";
            return Err(ConfigError::new("data.task", "answers in text", expected).into());
        }
    }
    Ok(canary)
}

/// Updates as they reached the server.
type Payloads = BTreeMap<(Round, ClientId), Vec<u8>>;

/// Keeps what a server sees of clients' answers, and lets somebody else follow too.
struct Server {
    follower: Arc<dyn Observer>,
    payloads: Arc<Mutex<Payloads>>,
}

impl Observer for Server {
    fn started(&self, client: &ClientInfo, round: Round) {
        self.follower.started(client, round);
    }

    fn progressed(&self, progress: &RoundProgress) {
        self.follower.progressed(progress);
    }

    fn stops(&self) -> bool {
        self.follower.stops()
    }

    fn finished(&self, client: &ClientInfo, round: Round, arrival: &Arrival) {
        self.follower.finished(client, round, arrival);
        if let Outcome::Finished(reply) = &arrival.outcome {
            locked(&self.payloads).insert((round, client.id), reply.payload.clone());
        }
    }
}

/// Keeps the models of all rounds, and lets somebody else follow too.
struct Watch<'a> {
    listener: &'a dyn Listener,
    payloads: Arc<Mutex<Payloads>>,
    models: RefCell<Vec<ParamValues>>,
}

impl Listener for Watch<'_> {
    fn hear(&self, event: Event<'_>) {
        self.listener.hear(event);
        if let Event::Model(_, model) = event {
            self.models.borrow_mut().push(model.clone());
        }
    }

    fn begin(&self, rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        let (follower, payloads) = (self.listener.begin(rounds), Arc::clone(&self.payloads));
        Arc::new(Server { follower, payloads })
    }

    fn stops(&self) -> bool {
        self.listener.stops()
    }
}
