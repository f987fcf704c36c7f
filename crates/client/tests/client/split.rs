//! A model cut between clients and a server is the model: same losses, same weights, same scores, at
//! every cut; and the server's half meets only rows and lengths.

use std::sync::{Arc, Mutex};

use fedra_client::{Connect, Peer, Purpose, Result, ServerSegment, Trainer, to_values};
use fedra_data::Task;
use fedra_engine::{
    ClientBlocks, EngineError, EvaluationSet, Federation, Fleet, Move, Noise, NoiseDraw, NoiseKind,
    Recipe, RoundReport, Sink, SplitConfig, SplitMode, Weighting, Work,
};
use fedra_model::Adapters;
use fedra_model::hf::Config;
use fedra_plan::{ByteCount, Layer, Part, Role, Rule, Scope};
use fedra_seed::Seed;
use fedra_wire::{ClientId, ParamValues, RowEncoding};

use crate::world::{Size, World, adamw, bits, sgd};

/// Weights after many steps of the cut and the uncut model differ by no more than this, relatively.
const TOLERANCE: f32 = 1e-5;
pub const BLOCKS: u16 = 3;

fn bert() -> World {
    encoder(Task::Diagnosis)
}

pub fn encoder(task: Task) -> World {
    let size = Size { width: 16, ..Size::SMALL };
    let config = Config {
        vocab_size: 600,
        hidden_size: size.width,
        num_hidden_layers: usize::from(BLOCKS),
        num_attention_heads: 2,
        intermediate_size: 2 * size.width,
        max_position_embeddings: size.longest,
        ..Config::bert()
    };
    World::of(task, size, (config, None))
}

pub fn llama(adapters: Option<Adapters>) -> World {
    decoder(Task::Language, adapters)
}

fn decoder(task: Task, adapters: Option<Adapters>) -> World {
    let size = Size { width: 16, notes: 30, ..Size::SMALL };
    let config = Config {
        vocab_size: 600,
        hidden_size: size.width,
        num_hidden_layers: usize::from(BLOCKS),
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        head_dim: Some(4),
        intermediate_size: 2 * size.width,
        max_position_embeddings: size.longest,
        tie_word_embeddings: true,
        ..Config::llama()
    };
    World::of(task, size, (config, adapters))
}

#[derive(Default)]
struct Reports(Vec<RoundReport>);

impl Sink for Reports {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        self.0.push(RoundReport { seconds: 0.0, slowest: 0.0, phases: None, ..report.clone() });
        Ok(())
    }
}

/// Twelve steps a client in a round, however few batches an epoch of it has.
fn recipe(work: Work) -> Recipe {
    let mut recipe = Recipe::new(Work { epochs: 12, max_steps: Some(12), ..work });
    recipe.learns = but_key_bias();
    recipe.evaluation.on = vec![EvaluationSet::CentralTest, EvaluationSet::ClientTest];
    recipe
}

/// Attention does not depend on the bias of keys, so its gradient is rounding and nothing else, and
/// `AdamW` would make steps of it.
fn but_key_bias() -> Rule {
    let (keys, biases) = (Rule::Roles([Role::Key].into()), Rule::Parts([Part::Bias].into()));
    Rule::Everything - Rule::Intersection(vec![keys, biases])
}

pub fn run(world: &World, recipe: &Recipe, rounds: u32) -> (ParamValues, Vec<RoundReport>) {
    let mut fleet = world.fleet();
    let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
    let mut federation = Federation::new(recipe.clone(), layout, initial, Seed(3)).unwrap();
    if let Some(split) = &recipe.split {
        let model = (world.model.clone(), world.device.clone());
        let middle = Arc::new(ServerSegment::new(model, split.clone(), fleet.clients()));
        federation.with_middle(middle.clone());
        fleet = fleet.with_middle(middle, Seed(8));
    }
    let mut reports = Reports::default();
    federation.run(&mut fleet, &mut [&mut reports], rounds, &|| false).unwrap();
    (federation.model().clone(), reports.0)
}

pub fn cut(first: u16, last: u16) -> SplitConfig {
    SplitConfig::new(ClientBlocks { first, last })
}

#[track_caller]
pub fn assert_near(found: &ParamValues, expected: &ParamValues, what: &str) {
    for (id, expected) in expected.iter() {
        let found = found.get(id).unwrap();
        let norm = expected.iter().map(|value| value * value).sum::<f32>().sqrt();
        let off: f32 = found.iter().zip(expected).map(|(l, r)| (l - r) * (l - r)).sum();
        assert!(off.sqrt() <= TOLERANCE * norm.max(1e-3), "{what}: {id} is off by {}", off.sqrt());
    }
}

pub fn all_cuts() -> impl Iterator<Item = (u16, u16)> {
    (0..BLOCKS).flat_map(|first| (0..BLOCKS - first).map(move |last| (first, last)))
}

#[test]
fn loss_weights_and_scores_of_a_cut_model_are_those_of_the_whole_at_every_cut() {
    let adapters = Adapters::new(2, 4.0, [Role::Query, Role::Value, Role::Down]).unwrap();
    let lora = Rule::Parts([Part::LoraA, Part::LoraB].into());
    for (what, world, learns) in [
        ("bert", bert(), but_key_bias()),
        ("llama", llama(None), Rule::Everything),
        ("llama that chooses", decoder(Task::Choice, None), Rule::Everything),
        ("llama with adapters", llama(Some(adapters)), lora),
    ] {
        let mut whole = recipe(adamw(1e-3));
        whole.learns = learns;
        whole.work.clip = Some(0.5);
        let (expected, reports) = run(&world, &whole, 2);
        for (first, last) in all_cuts() {
            let what = format!("{what}, p = {first}, q = {last}");
            let recipe = Recipe { split: Some(cut(first, last)), ..whole.clone() };
            let (found, cut_reports) = run(&world, &recipe, 2);
            assert_near(&found, &expected, &what);
            for (found, expected) in cut_reports.iter().zip(&reports) {
                let (found, expected) = (found.loss.unwrap(), expected.loss.unwrap());
                assert!((found - expected).abs() < 1e-5 * expected, "{what}: {found} {expected}");
            }
            let at_clients = |reports: &[RoundReport]| reports[1].scores[1].clone();
            let (found, expected) = (at_clients(&cut_reports), at_clients(&reports));
            assert_eq!(found.mean.get("accuracy"), expected.mean.get("accuracy"), "{what}");
            let (found, expected) = (found.loss, expected.loss);
            assert!((found - expected).abs() < 1e-5 * expected, "{what}: {found} {expected}");
        }
    }
}

#[test]
fn a_cut_model_is_not_asked_to_write_text() {
    let world = decoder(Task::Generation, None);
    let mut recipe = recipe(adamw(1e-3));
    recipe.split = Some(cut(1, 1));
    let mut fleet = world.fleet();
    let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
    let mut federation = Federation::new(recipe.clone(), layout, initial, Seed(3)).unwrap();
    let model = (world.model.clone(), world.device.clone());
    let middle = Arc::new(ServerSegment::new(model, cut(1, 1), fleet.clients()));
    federation.with_middle(middle.clone());
    fleet = fleet.with_middle(middle, Seed(8));
    let refused = federation.run(&mut fleet, &mut [], 1, &|| false).unwrap_err().to_string();
    assert!(refused.contains("the task generation"), "{refused}");
}

/// Copies that meet after every step of plain gradient descent are one copy that takes the mean
/// step; and one client alone is served alike in every mode.
#[test]
fn the_modes_agree_where_their_arithmetic_does() {
    let world = bert();
    let mut base = recipe(sgd(0.1));
    base.weighting = Weighting::Uniform;
    base.learns = Rule::Blocks([1].into());
    let mode = |mode, average_every| {
        let split = SplitConfig { mode, average_every, ..cut(1, 1) };
        run(&world, &Recipe { split: Some(split), ..base.clone() }, 2).0
    };
    let batched = mode(SplitMode::Batched, None);
    let meeting = mode(SplitMode::Replicated, Some(1));
    assert_near(&batched, &meeting, "batched, and copies that meet after every step");
    let apart = mode(SplitMode::Replicated, None);
    let turns = mode(SplitMode::Sequential, None);
    for (left, right) in [(&batched, &apart), (&apart, &turns), (&turns, &batched)] {
        assert_ne!(bits(left), bits(right), "modes differ with several clients");
    }

    let mut world = world;
    world.shards.clients.truncate(1);
    let alone = |mode| {
        let split = SplitConfig { mode, ..cut(1, 1) };
        bits(&run(&world, &Recipe { split: Some(split), ..base.clone() }, 2).0)
    };
    let expected = alone(SplitMode::Replicated);
    assert_eq!(alone(SplitMode::Batched), expected);
    assert_eq!(alone(SplitMode::Sequential), expected);
}

/// With one copy and clients in turn, the middle sees one long series of steps.
#[test]
fn a_sequential_middle_learns_as_if_all_batches_came_from_one_place() {
    let world = bert();
    let mut recipe = recipe(sgd(0.1));
    recipe.learns = Rule::Blocks([1].into());
    recipe.split = Some(SplitConfig { mode: SplitMode::Sequential, ..cut(1, 1) });
    let (found, _) = run(&world, &recipe, 1);

    let scope = Scope::of_blocks(world.model.layout(), [1]);
    let mut params = world.params.clone();
    for (number, shard) in world.shards.clients.iter().enumerate() {
        let task = fedra_client::TrainTask {
            examples: shard.train.encoded(),
            seed: Seed(3).of("client").with(0).with(number as u64),
            key: None,
            ..world.lesson(&scope, &recipe.work)
        };
        let cache = ByteCount(0);
        let trainer = Trainer { model: &world.model, device: &world.device, cache };
        trainer.train(&mut params, &task).unwrap();
    }
    assert_near(&found, &to_values(&params), "clients in turn");
}

#[test]
fn a_cut_may_move_between_rounds_and_differ_between_clients_without_changing_a_weight() {
    let world = bert();
    let mut whole = recipe(adamw(1e-3));
    // Twelve steps in three rounds: what rounding makes of many more is no question of moving.
    whole.work.max_steps = Some(4);
    let (expected, _) = run(&world, &whole, 3);
    let mut split = cut(1, 1);
    split.moves = vec![Move { round: 2, first: 2, last: 0 }, Move { round: 3, first: 0, last: 1 }];
    split.clients.insert(world.shards.clients[1].name.clone(), ClientBlocks { first: 0, last: 2 });
    let recipe = Recipe { split: Some(split), ..whole };
    let (found, _) = run(&world, &recipe, 3);
    assert_near(&found, &expected, "moving cuts");
}

#[test]
fn what_learns_inside_a_cut_is_what_the_method_says() {
    let world = bert();
    let mut recipe = recipe(adamw(1e-3));
    let frozen = Rule::Roles([Role::Query, Role::Key].into());
    recipe.learns = Rule::Everything - frozen.clone();
    recipe.split = Some(cut(1, 1));
    let (found, _) = run(&world, &recipe, 1);
    let before = to_values(&world.params);
    let frozen = frozen.select(world.model.layout()).unwrap();
    for (id, values) in found.iter() {
        let moved = before.get(id).unwrap() != values;
        assert_eq!(moved, !frozen.contains(id), "{id}");
    }
}

/// Where nothing below a boundary learns, no gradient crosses it.
#[test]
fn gradients_cross_only_where_something_below_learns() {
    let world = bert();
    let crossing = |learns: Rule| {
        let mut recipe = recipe(adamw(1e-3));
        recipe.evaluation.on = vec![EvaluationSet::CentralTest];
        (recipe.learns, recipe.split) = (learns, Some(cut(1, 1)));
        run(&world, &recipe, 1).1[0].bytes.crossing
    };
    let head = crossing(Rule::Layers([Layer::Head].into()));
    assert!(head.hidden_up.0 > 0 && head.hidden_down == head.hidden_up);
    assert_eq!((head.gradient_up, head.gradient_down), (ByteCount(0), ByteCount(0)));
    let middle = crossing(Rule::Blocks([1].into()));
    assert_eq!((middle.gradient_up, middle.gradient_down), (middle.hidden_up, ByteCount(0)));
    let all = crossing(Rule::Everything);
    assert_eq!((all.gradient_up, all.gradient_down), (all.hidden_up, all.hidden_up));
    assert_eq!(all.exchanges, 2 * head.exchanges);
}

/// Records everything that passes between the halves.
#[derive(Debug)]
pub struct Tapped {
    pub middle: Arc<ServerSegment>,
    pub sent: Mutex<Vec<Vec<u8>>>,
}

impl Connect for Tapped {
    fn connect(&self, client: ClientId, purpose: Purpose) -> Result<Box<dyn Peer + '_>> {
        Ok(Box::new(Tap { tapped: self, peer: self.middle.connect(client, purpose)? }))
    }
}

struct Tap<'a> {
    tapped: &'a Tapped,
    peer: Box<dyn Peer + 'a>,
}

impl Peer for Tap<'_> {
    fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>> {
        self.tapped.sent.lock().unwrap().push(frame.clone());
        self.peer.exchange(frame)
    }
}

/// Two clients whose examples differ only in their labels send the same hidden states: no label
/// leaves with them. And a frame is exactly its header, its lengths and its rows.
#[test]
fn the_server_sees_rows_and_lengths_and_nothing_of_labels() {
    use fedra_client::Client;
    use fedra_engine::SegmentHost;
    let world = bert();
    let sent = |turned: bool| {
        let mut shard = world.shards.clients[0].clone();
        if turned {
            let mut encoded = shard.train.encoded().to_vec();
            for example in &mut encoded {
                let fedra_data::Target::Many(codes) = &mut example.target else { unreachable!() };
                *codes = (0..world.shards.labels.len() as u32)
                    .filter(|code| !codes.contains(code))
                    .collect();
            }
            shard.train = encoded.into_iter().collect();
        }
        let labels = (world.shards.task, world.shards.labels.clone());
        let model = (world.model.clone(), world.params.clone());
        let mut client =
            Client::new(ClientId(0), shard, labels, model, world.device.clone()).unwrap();
        let split = cut(1, 1);
        let model = (world.model.clone(), world.device.clone());
        let infos = [client.info.clone()];
        let middle = Arc::new(ServerSegment::new(model, split.clone(), &infos));
        middle.host(&to_values(&world.params)).unwrap();
        let mut request = world.orders(&infos, fedra_plan::Round(0)).remove(0);
        let cut = fedra_plan::Cut::keep(1, 1, BLOCKS).unwrap();
        request.plan =
            fedra_plan::Plan::new(world.model.layout(), world.everything(), cut).unwrap();
        request.split = Some(Arc::new(split));
        request.work.max_steps = Some(1);
        middle.begin(&[request.clone()], &std::collections::BTreeMap::new()).unwrap();
        let tapped = Arc::new(Tapped { middle, sent: Mutex::default() });
        client.connect = Some(tapped.clone());
        client.train(&request).unwrap();
        tapped.sent.lock().unwrap().clone()
    };
    let (plain, turned) = (sent(false), sent(true));
    assert_eq!(plain.len(), 2, "one frame forward, one back");
    assert!(plain[0] == turned[0], "hidden states do not depend on labels");
    assert!(plain[1] != turned[1], "gradients do");
    let parts = fedra_wire::frame_parts(&plain[0]).unwrap();
    assert_eq!(parts.metadata, fedra_wire::FRAME_HEADER + 4 * 8, "eight lengths");
    assert_eq!(parts.rows % (4 * world.model.width()), 0);
}

#[test]
fn half_the_bytes_cross_in_bf16_and_a_quarter_in_int8_at_nearly_the_same_loss() {
    let world = llama(None);
    let with = |encoding| {
        let mut recipe = recipe(adamw(1e-3));
        recipe.split = Some(SplitConfig { encoding, ..cut(1, 1) });
        let report = run(&world, &recipe, 2).1.remove(1);
        (report.loss.unwrap(), report.bytes.crossing.hidden_up.0 as f64)
    };
    let (loss, bytes) = with(RowEncoding::F32);
    let (half_loss, half) = with(RowEncoding::Bf16);
    assert!((half / bytes - 0.5).abs() < 1e-9);
    assert!((half_loss / loss - 1.0).abs() < 1e-3, "{half_loss} {loss}");
    let (byte_loss, byte) = with(RowEncoding::Int8);
    assert!((byte / bytes - 20.0 / 64.0).abs() < 1e-9);
    assert!((byte_loss / loss - 1.0).abs() < 1e-2, "{byte_loss} {loss}");
}

#[test]
fn noise_at_the_cut_reaches_training_and_scoring_and_is_the_clients_own() {
    let world = bert();
    let with = |noise: Option<Noise>| {
        let mut recipe = recipe(sgd(0.0));
        recipe.split = Some(SplitConfig { noise, ..cut(1, 1) });
        let report = run(&world, &recipe, 1).1.remove(0);
        (report.loss.unwrap(), report.scores[0].loss, report.scores[1].loss)
    };
    let kind = NoiseKind::Relative { gamma: 1.0 };
    let noise = Noise { kind, draw: NoiseDraw::Fresh, gradients: true, gradient_norm: None };
    let (plain, noised) = (with(None), with(Some(noise)));
    assert_ne!(plain.0, noised.0, "training");
    assert_eq!(plain.1, noised.1, "the central set never leaves the server");
    assert_ne!(plain.2, noised.2, "scoring at clients");
}

/// The mean of factors is not the mean of products; the exact mean is, as far as the rank can hold it.
#[test]
fn adapters_averaged_exactly_are_nearer_to_the_mean_of_their_products() {
    use fedra_engine::AdapterMean;
    let adapters = Adapters::new(2, 4.0, [Role::Query, Role::Value]).unwrap();
    let world = llama(Some(adapters));
    let with = |mean: AdapterMean, split: Option<SplitConfig>| {
        let mut recipe = recipe(adamw(1e-2));
        recipe.learns = Rule::Parts([Part::LoraA, Part::LoraB].into());
        (recipe.adapters, recipe.split) = (mean, split);
        run(&world, &recipe, 2)
    };
    let (_, separate) = with(AdapterMean::Separate, None);
    assert_eq!(separate[0].adapters, None);
    let (exact, reports) = with(AdapterMean::Exact, None);
    let lost = reports[1].adapters.unwrap().lost;
    assert!(lost > 0.0 && lost < 0.5, "three clients' products have a higher rank: {lost}");
    let (cut_model, _) = with(AdapterMean::Exact, Some(cut(1, 1)));
    assert_near(&cut_model, &exact, "the middle's adapters are averaged like the clients'");
}
