//! A small federation: the synthetic clinic, a tiny model, and as many sites as there are hospitals.
//!
//! The suite over all fleets, in another crate, is made of the same.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fedra_client::{Client, LocalFleet, Observer, Shards, to_params, to_values};
use fedra_compute::{Device, Params, Seed};
use fedra_data::{Clinic, Division, Encoder, Holding, Table, Task, Tokenizer};
use fedra_engine::methods::Method;
use fedra_engine::{EngineError, EvaluationSet, OptimiserConfig, Recipe, RoundReport, Sink, Work};
use fedra_model::hf::Config;
use fedra_model::{Head, Model};
use fedra_net::{CentralTest, ConfigFingerprint, Federated, Listener, Routes};
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
        let tokenizer = Tokenizer::grow(texts.iter().map(String::as_str), 200).unwrap();
        let division = divided(&table);
        let encoder = Encoder::new(&tokenizer, 24).unwrap();
        let shards = Shards::encode(&encoder, &table, &division).unwrap();
        let head = Head::Tokens { classes: table.labels.len() };
        let config = Config {
            vocab_size: 200,
            hidden_size: 16,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            intermediate_size: 32,
            max_position_embeddings: 24,
            ..Config::bert()
        };
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

    pub fn agreement() -> ConfigFingerprint {
        ConfigFingerprint::from([("seed".to_owned(), "3".to_owned())])
    }

    /// What a fleet of sites is made for.
    pub fn federated(&self, routes: Routes) -> Federated {
        Federated {
            names: self.names(),
            agreement: Self::agreement(),
            layout: self.model.layout().clone(),
            ranks: BTreeMap::new(),
            initial: to_values(&self.params),
            routes,
        }
    }

    /// Scores the server's model as one process does.
    pub fn central(&self) -> CentralTest {
        let (fleet, layout) = (self.local(), self.model.layout().clone());
        Box::new(move |model: &ParamValues, _observer: &dyn Observer| {
            let params = to_params(&Device::cpu(), &layout, model).unwrap();
            let scores = fleet.score(&params, &fleet.shards.central_test).unwrap();
            Ok(scores.scored(None))
        })
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

impl Listener for Told {
    fn told(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// The reports of a run, without what clocks and memories say.
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

/// The bits of a model.
pub fn bits(model: &ParamValues) -> Vec<u32> {
    model.iter().flat_map(|(_, values)| values.iter().map(|value| value.to_bits())).collect()
}

/// Every client's first three notes are for testing everybody, for its validation and for its test: a few
/// notes are too few to be drawn, and tests count on having some of each.
fn divided(table: &Table) -> Division {
    let mut clients: BTreeMap<String, (BTreeMap<String, usize>, Holding)> = BTreeMap::new();
    let mut central_test = Vec::new();
    for (row, example) in table.examples.iter().enumerate() {
        let client = example.client.clone().unwrap();
        let (notes, holding) = clients.entry(client.clone()).or_default();
        holding.client = client;
        let name = example.document.clone().unwrap_or_else(|| row.to_string());
        let count = notes.len();
        match *notes.entry(name).or_insert(count) % 16 {
            0 => central_test.push(row),
            1 => holding.validation.push(row),
            2 => holding.test.push(row),
            _ => holding.train.push(row),
        }
    }
    Division { clients: clients.into_values().map(|(_, held)| held).collect(), central_test }
}
