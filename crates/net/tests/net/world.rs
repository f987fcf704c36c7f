//! A small federation: the synthetic clinic, a tiny model, and as many sites as there are hospitals.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use fedra_client::{Client, LocalFleet, Middle, Shards, to_params, to_values};
use fedra_compute::{Device, Params, Seed};
use fedra_data::{Clinic, Encoder, Partition, Shares, Task, WordTokenizer};
use fedra_engine::methods::Method;
use fedra_engine::{
    EngineError, EvaluationSet, Federation, Fleet, OptimiserConfig, Recipe, RoundReport, Sink, Work,
};
use fedra_model::hf::{BertConfig, Config};
use fedra_model::{Head, Model};
use fedra_net::{
    Agreement, Dialer, Federated, FleetListener, FleetOptions, JoinListener, Left, NetError,
    NetFleet, Routes, Runtime, ServerOptions, ServerSecurity, Site, Start, join, with_middle,
};
use fedra_wire::{ClientId, ParamValues};

pub struct World {
    pub model: Model,
    pub params: Params,
    pub shards: Shards,
}

impl World {
    pub fn new(hospitals: usize) -> Self {
        let clinic = Clinic { hospitals, notes: 8 * hospitals, ..Clinic::default() };
        let table = clinic.generate(Task::Concepts, 1).unwrap();
        let texts: Vec<String> = table.examples.iter().map(|e| e.body.to_text()).collect();
        let tokenizer = WordTokenizer::grow(texts.iter().map(String::as_str), 200).unwrap();
        let division = Partition::Client.divide(&table, Shares::default(), 1).unwrap();
        let encoder = Encoder::new(&tokenizer, 24).unwrap();
        let shards = Shards::encode(&encoder, &table, &division).unwrap();
        let head = Head::Tokens { classes: table.labels.len() };
        let config = Config::Bert(BertConfig {
            vocab_size: 200,
            hidden_size: 16,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            intermediate_size: 32,
            max_position_embeddings: 24,
            ..BertConfig::default()
        });
        let model = Model::new(config, head, None).unwrap();
        let params = model.fresh_params(&Device::cpu(), Seed(1)).unwrap();
        Self { model, params, shards }
    }

    pub fn local(&self) -> LocalFleet {
        let (model, params) = (self.model.clone(), self.params.clone());
        LocalFleet::new(model, params, Device::cpu(), self.shards.clone()).unwrap()
    }

    pub fn client(&self, number: u32) -> Client {
        let shard = self.shards.clients[number as usize].clone();
        let labels = (self.shards.task, self.shards.labels.clone());
        let model = (self.model.clone(), self.params.clone());
        Client::new(ClientId(number), shard, labels, model, Device::cpu()).unwrap()
    }

    pub fn names(&self) -> Vec<String> {
        self.shards.clients.iter().map(|shard| shard.name.clone()).collect()
    }

    pub fn agreement() -> Agreement {
        Agreement::from([("seed".to_owned(), "3".to_owned())])
    }

    /// A fleet that listens on a free port of this machine.
    pub fn listen(&self, folder: &Path, options: FleetOptions) -> (NetFleet, Told) {
        self.listen_with(ServerSecurity::Plain, folder, options)
    }

    pub fn listen_with(
        &self,
        security: ServerSecurity,
        folder: &Path,
        options: FleetOptions,
    ) -> (NetFleet, Told) {
        self.listen_to(security, folder, (options, None)).unwrap()
    }

    /// The same with the server's half of a cut model.
    pub fn listen_cut(
        &self,
        folder: &Path,
        options: FleetOptions,
        middle: &Arc<Middle>,
    ) -> (NetFleet, Told) {
        self.listen_to(ServerSecurity::Plain, folder, (options, Some(middle))).unwrap()
    }

    fn listen_to(
        &self,
        security: ServerSecurity,
        folder: &Path,
        (options, middle): (FleetOptions, Option<&Arc<Middle>>),
    ) -> Result<(NetFleet, Told), NetError> {
        let told = Told::default();
        let federated = Federated {
            names: self.names(),
            agreement: Self::agreement(),
            layout: self.model.layout().clone(),
            initial: to_values(&self.params),
            routes: match middle {
                None => Routes::default(),
                Some(middle) => with_middle(Routes::default(), middle, &self.names()),
            },
        };
        let server = ServerOptions::new("127.0.0.1:0".parse().unwrap(), security);
        let (fleet, layout) = (self.local(), self.model.layout().clone());
        let central = move |model: &ParamValues| {
            let params = to_params(&Device::cpu(), &layout, model).unwrap();
            let scores = fleet.score(&params, &fleet.shards().central_test).unwrap();
            Ok(scores.scored(None))
        };
        let listener = Box::new(told.clone());
        let place = (&server, folder);
        let fleet = NetFleet::listen(federated, place, options, listener, Box::new(central))?;
        Ok((fleet, told))
    }
}

/// What was said, and whether to stop.
#[derive(Clone, Default)]
pub struct Told {
    pub lines: Arc<Mutex<Vec<String>>>,
    pub stop: Arc<AtomicBool>,
}

impl Told {
    pub fn has(&self, part: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.contains(part))
    }

    pub fn all(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }
}

impl FleetListener for Told {
    fn told(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

impl JoinListener for Told {
    fn told(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// A site on a thread.
pub struct Joined {
    pub told: Told,
    thread: JoinHandle<Result<Left, NetError>>,
}

impl Joined {
    pub fn start(client: Client, address: &str, folder: PathBuf) -> Self {
        let (told, address) = (Told::default(), address.to_owned());
        let listener = told.clone();
        let thread = std::thread::spawn(move || {
            let mut site = Site::new(client, World::agreement(), &folder)?;
            let runtime = Runtime::start()?;
            let dialer = Dialer::new(&address, &ServerSecurity::Plain)?;
            join(&mut site, (&runtime, &dialer), &listener)
        });
        Self { told, thread }
    }

    pub fn stop(&self) {
        self.told.stop.store(true, Ordering::SeqCst);
    }

    pub fn end(self) -> Result<Left, NetError> {
        self.thread.join().unwrap()
    }
}

/// All sites of a world.
pub fn join_all(world: &World, address: &str, folder: &Path) -> Vec<Joined> {
    let one = |number: u32| {
        let name = &world.shards.clients[number as usize].name;
        Joined::start(world.client(number), address, folder.join(name))
    };
    (0..world.shards.clients.len() as u32).map(one).collect()
}

#[derive(Default)]
pub struct Reports(pub Vec<RoundReport>);

impl Sink for Reports {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        let report = RoundReport {
            seconds: 0.0,
            slowest: 0.0,
            phases: None,
            most_updates_held: 0,
            memory: None,
            ..report.clone()
        };
        self.0.push(report);
        Ok(())
    }
}

pub fn recipe(name: &str, settings: &str, change: impl Fn(&mut Recipe)) -> Recipe {
    let solver = OptimiserConfig::AdamW {
        rate: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.01,
    };
    let mut work = Work::new(solver);
    work.batch = 8;
    let settings: serde_json::Value = serde_json::from_str(settings).unwrap();
    let mut recipe = Method::by_name(name, settings).unwrap().recipe(Recipe::new(work));
    recipe.evaluation.on = vec![
        EvaluationSet::CentralTest,
        EvaluationSet::ClientValidation,
        EvaluationSet::ClientTest,
    ];
    change(&mut recipe);
    recipe
}

pub type Outcome = (Vec<u32>, Vec<RoundReport>);

/// The bits of a model.
pub fn bits(model: &ParamValues) -> Vec<u32> {
    model.iter().flat_map(|(_, values)| values.iter().map(|value| value.to_bits())).collect()
}

/// Runs a recipe from the start.
pub fn run(world: &World, recipe: &Recipe, fleet: &mut dyn Fleet, rounds: u32) -> Outcome {
    let initial = to_values(&world.params);
    let layout = world.model.layout().clone();
    let mut federation = Federation::new(recipe.clone(), layout, initial, Seed(3)).unwrap();
    let mut reports = Reports::default();
    federation.run(fleet, &mut [&mut reports], rounds, &|| false).unwrap();
    (bits(federation.model()), reports.0)
}

/// Waits for all sites and opens the fleet before its first round.
pub fn begin(fleet: &mut NetFleet) {
    fleet.wait(Start::default()).unwrap().unwrap();
    fleet.open(fedra_plan::Round(0), Arc::new(fedra_client::Silent)).unwrap();
}

pub const QUICK: Duration = Duration::from_secs(20);

pub fn options() -> FleetOptions {
    FleetOptions { deadline: QUICK, ..FleetOptions::default() }
}
