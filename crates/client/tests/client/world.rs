//! A small federation: a narrow encoder, a few hospitals, and work to do.

use fedra_client::{Examples, LocalFleet, Shards, TrainTask, Writing};
use fedra_compute::{Device, Params, ThreadPool};
use fedra_data::{
    AnswerForm, AnswerRules, Answers, Clinic, Division, Encoded, Encoder, Holding, LabelSet, Row,
    Table, TableBuilder, Target, Task, Tokenizer,
};
use fedra_engine::{
    ClientInfo, ClientState, Download, Encoding, Fleet, OptimiserConfig, SharedPayload,
    TrainRequest, Work,
};
use fedra_model::hf::Config;
use fedra_model::{Adapters, Head, Model};
use fedra_plan::{Cut, Layer, Plan, Role, Round, Scope};
use fedra_seed::Seed;
use fedra_wire::{Header, Kind, ParamValues, encode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the clients keep, all at once.
pub fn kept_by(fleet: &LocalFleet) -> Vec<ClientState> {
    let states = fleet.states().into_iter().map(|kept| kept.state().map(Arc::unwrap_or_clone));
    states.collect::<Result<_, _>>().unwrap()
}

/// Brings every client up to date with these values.
pub fn send(fleet: &mut LocalFleet, round: Round, values: &ParamValues) {
    let header = Header::download(Kind::Values, Encoding::F32, round);
    let payload: SharedPayload =
        encode(fleet.model.layout(), &header, values, None).unwrap().into();
    let download = |client: &ClientInfo| Download {
        client: client.id,
        round,
        encoding: Encoding::F32,
        payload: payload.clone(),
    };
    let downloads: Vec<Download> = fleet.clients().iter().map(download).collect();
    assert_eq!(fleet.sync(&downloads).unwrap(), []);
}

pub struct World {
    pub model: Model,
    pub params: Params,
    pub device: Device,
    pub shards: Shards,
}

/// What a world is made of.
#[derive(Clone, Copy)]
pub struct Size {
    pub hospitals: usize,
    pub notes: usize,
    pub width: usize,
    pub longest: usize,
}

impl Size {
    pub const SMALL: Self = Self { hospitals: 3, notes: 45, width: 16, longest: 48 };
}

impl World {
    pub fn new(task: Task, size: Size) -> Self {
        let config = Config {
            vocab_size: 600,
            hidden_size: size.width,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            intermediate_size: 2 * size.width,
            max_position_embeddings: size.longest,
            ..Config::bert()
        };
        Self::of(task, size, (config, None))
    }

    /// The same with a model of the test's choice, of 600 tokens and the size's longest sequence.
    pub fn of(task: Task, size: Size, (config, adapters): (Config, Option<Adapters>)) -> Self {
        let clinic = Clinic { hospitals: size.hospitals, notes: size.notes, ..Clinic::default() };
        // The clinic asks no language model; its notes are as good a text as any.
        let (asked, in_text) = match task.answer_form() {
            AnswerForm::Text => (Task::Diagnosis, true),
            AnswerForm::Labels => (task, false),
        };
        let mut table = clinic.generate(asked, 1).unwrap();
        let texts: Vec<String> = table.examples.iter().map(|e| e.body.to_text()).collect();
        let tokenizer = Tokenizer::grow(texts.iter().map(String::as_str), 600).unwrap();
        let tokenizer = Arc::new(tokenizer);
        if in_text && task != Task::Language {
            table = prompted(task, &table);
        }
        let division = divided(&table);
        let rules = AnswerRules { max_new_tokens: 8, end: Some(3), ..AnswerRules::default() };
        let encoder = Encoder::new(tokenizer.as_ref(), size.longest).unwrap().with_rules(rules);
        let mut shards = Shards::encode(&encoder, &table, &division).unwrap();
        if task == Task::Language {
            shards = of_next_tokens(shards);
        }
        if task == Task::Generation {
            let writing = Writing { tokenizer, max_new_tokens: 8, stop: vec![3] };
            shards = shards.with_writing(&writing);
        }
        let classes = table.labels.len();
        let head = match task {
            Task::Concepts | Task::Tokens => Head::Tokens { classes },
            Task::Diagnosis | Task::Classes => Head::Sequence { classes, pooler: false },
            Task::Language | Task::Choice | Task::Generation | Task::Chat | Task::Preference => {
                Head::Language
            }
        };
        let device = Device::cpu();
        let model = Model::new(config, head, adapters).unwrap();
        let params = model.fresh_params(&device, Seed(1)).unwrap();
        Self { model, params, device, shards }
    }

    pub fn fleet(&self) -> LocalFleet {
        let (params, shards) = (self.params.clone(), self.shards.clone());
        LocalFleet::new(self.model.clone(), params, self.device.clone(), shards).unwrap()
    }

    pub fn everything(&self) -> Scope {
        Scope::everything(self.model.layout())
    }

    pub fn head(&self) -> Scope {
        Scope::of_layers(self.model.layout(), [Layer::Head])
    }

    /// All but query and key.
    pub fn without_kernel(&self) -> Scope {
        self.everything() - Scope::of_roles(self.model.layout(), [Role::Query, Role::Key])
    }

    pub fn lesson<'a>(&'a self, scope: &'a Scope, work: &'a Work) -> TrainTask<'a> {
        TrainTask {
            client: "hospital-1",
            examples: self.shards.clients[0].train.encoded(),
            round: Round(0),
            scope,
            work,
            labels: &self.shards.labels,
            moments: None,
            correction: fedra_client::Correction::Nothing,
            seed: Seed(5),
            key: None,
        }
    }

    /// A plan in which this part learns and nothing is personal.
    pub fn plan(&self, learns: Scope) -> Plan {
        Plan::new(self.model.layout(), learns, Cut::none()).unwrap()
    }

    /// The same order for every client.
    pub fn orders(&self, clients: &[ClientInfo], round: Round) -> Vec<TrainRequest> {
        let order = |client: &ClientInfo| TrainRequest {
            client: client.id,
            round,
            seed: Seed(9).with(u64::from(round.0)).with(u64::from(client.id.0)),
            correction: None,
            plan: self.plan(self.everything()),
            work: adamw(1e-2),
            revocable: false,
            split: None,
        };
        clients.iter().map(order).collect()
    }
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

/// The same notes as prompts with answers of several lengths, or with the words that follow.
fn prompted(task: Task, table: &Table) -> Table {
    let mut builder = TableBuilder::new(task);
    for (number, example) in table.examples.iter().enumerate() {
        let text = example.body.to_text();
        let words: Vec<&str> = text.split_whitespace().collect();
        let (prompt, rest) = words.split_at(words.len().min(6 + number % 5));
        let row = Row::text(prompt.join(" ")).with_client(example.client.clone().unwrap());
        let row = if task == Task::Generation {
            Row { answers: Answers::Text(format!("the {}", rest.join(" "))), ..row }
        } else {
            let answers = Answers::Choice(vec![
                ("a".to_owned(), "pain".to_owned()),
                ("b".to_owned(), format!("no {}", prompt[0])),
                ("c".to_owned(), "no pain at all today".to_owned()),
            ]);
            Row { answers, ..row.with_labels([["a", "b", "c"][number % 3]]) }
        };
        builder.push(row).unwrap();
    }
    builder.finish()
}

/// The same texts, with each token's next one to be told.
fn of_next_tokens(mut shards: Shards) -> Shards {
    let next = |examples: &Examples| -> Examples {
        let one = |example: &Encoded| {
            let ids = example.ids.iter().skip(1).copied().map(Some).chain([None]);
            Encoded { target: Target::PerToken(ids.collect()), ..example.clone() }
        };
        examples.encoded().iter().map(one).collect()
    };
    (shards.task, shards.labels) = (Task::Language, LabelSet::default());
    for shard in &mut shards.clients {
        for examples in [&mut shard.train, &mut shard.validation, &mut shard.test] {
            *examples = next(examples);
        }
    }
    shards.central_test = next(&shards.central_test);
    shards
}

fn work(solver: OptimiserConfig) -> Work {
    Work { batch: 8, ..Work::new(solver) }
}

pub fn sgd(rate: f32) -> Work {
    work(OptimiserConfig::Sgd { rate, weight_decay: 0.0 })
}

pub fn adamw(rate: f32) -> Work {
    let (beta1, beta2, epsilon) = (0.9, 0.999, 1e-8);
    work(OptimiserConfig::AdamW { rate, beta1, beta2, epsilon, weight_decay: 0.1 })
}

pub fn with_threads<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
    ThreadPool::new(threads).unwrap().install(run)
}

pub fn bits(tensors: &ParamValues) -> Vec<u32> {
    tensors.iter().flat_map(|(_, values)| values.iter().map(|value| value.to_bits())).collect()
}
