//! Five hundred clients of the tiny model share one process and a gigabyte.

use fedra_client::{LocalFleet, Shards};
use fedra_compute::Device;
use fedra_data::{Clinic, Encoder, Partition, Shares, Task, Tokenizer};
use fedra_engine::{Fleet, OptimiserConfig, Outcome, TrainRequest, Verdict, Work};
use fedra_model::{Head, Model, Preset};
use fedra_plan::{Cut, Plan, Round, Scope};
use fedra_seed::Seed;

const CLIENTS: usize = 500;
const GIGABYTE: u64 = 1_000_000_000;

/// The most memory this process ever had, in bytes; `None` where the system does not say.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(1024 * line.split_whitespace().nth(1)?.parse::<u64>().ok()?)
}

#[test]
fn five_hundred_clients_of_the_tiny_model_fit_in_a_gigabyte() {
    let clinic = Clinic { hospitals: 8, notes: CLIENTS, ..Clinic::default() };
    let table = clinic.generate(Task::Concepts, 1).unwrap();
    let texts: Vec<String> = table.examples.iter().map(|e| e.body.to_text()).collect();
    let tokenizer = Tokenizer::grow(texts.iter().map(String::as_str), 4096).unwrap();
    let none = Shares { central: 0.0, validation: 0.0, test: 0.0 };
    let division =
        Partition::Shards { clients: CLIENTS, shards: 1 }.divide(&table, none, 1).unwrap();
    let encoder = Encoder::new(&tokenizer, 32).unwrap();
    let shards = Shards::encode(&encoder, &table, &division).unwrap();

    let device = Device::cpu();
    let head = Head::Tokens { classes: table.labels.len() };
    let model = Model::new(Preset::Tiny.config(), head, None).unwrap();
    let params = model.fresh_params(&device, Seed(1)).unwrap();
    let layout = model.layout().clone();
    let mut fleet = LocalFleet::new(model, params, device, shards).unwrap();

    let work = Work::new(OptimiserConfig::Sgd { rate: 0.1, weight_decay: 0.0 });
    let order = |client: &fedra_engine::ClientInfo| TrainRequest {
        client: client.id,
        round: Round(0),
        seed: Seed(1).with(u64::from(client.id.0)),
        correction: None,
        plan: Plan::new(&layout, Scope::everything(&layout), Cut::none()).unwrap(),
        work: work.clone(),
        revocable: false,
        split: None,
    };
    let orders: Vec<TrainRequest> = fleet.clients().iter().map(order).collect();
    let (mut arrived, mut bytes) = (0, 0);
    let mut arrive = |arrival: fedra_engine::Arrival| {
        let Outcome::Finished(reply) = arrival.outcome else { panic!("{:?}", arrival.outcome) };
        bytes += reply.payload.len();
        arrived += 1;
        Ok(Verdict::Taken)
    };
    fleet.train(orders, &mut arrive).unwrap();
    assert_eq!(arrived, CLIENTS);
    // What the updates would take together shows that they were never there together.
    assert!(bytes as u64 > 2 * GIGABYTE, "{bytes}");
    if let Some(peak) = peak() {
        assert!(peak < GIGABYTE, "{peak} bytes");
    }
}
