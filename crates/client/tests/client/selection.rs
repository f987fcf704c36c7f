//! Choosing blocks on real models: scores, shallow clients, and work that is not done.

use crate::world::{Size, World, adamw};
use fedra_client::{Prober, to_values};
use fedra_compute::Tape;
use fedra_data::{Target, Task};
use fedra_engine::methods::Method;
use fedra_engine::{
    Encoding, EvaluationSet, Federation, Fleet, HeadProbe, Outcome, ParamValues, Recipe, Reply,
    Verdict, Work,
};
use fedra_model::{Batch, BlockProbe, Relevant};
use fedra_plan::{AttentionSide, Layer, Probe, RelevantTokens, Role, Round, Scope};
use fedra_seed::Seed;
use fedra_wire::{ClientId, Expectation, HeadSlices, Kind, decode};
use std::collections::BTreeMap;

const ENTITIES: Probe =
    Probe::Attention { side: AttentionSide::Key, tokens: RelevantTokens::Entities };

fn recipe(name: &str, settings: &str) -> Recipe {
    let settings: serde_json::Value = serde_json::from_str(settings).unwrap();
    Method::by_name(name, settings).unwrap().recipe(Recipe::new(adamw(1e-2)))
}

#[test]
fn a_score_is_the_mean_over_examples_however_they_are_packed() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let examples = &world.shards.clients[0].train.encoded()[..5];
    let labels = &world.shards.labels;
    let prober = Prober { model: &world.model, device: &world.device, labels };
    for probe in
        [ENTITIES, Probe::Attention { side: AttentionSide::Key, tokens: RelevantTokens::Cls }]
    {
        let score = |examples| prober.probe(&world.params, probe, ("x", examples)).unwrap();
        let together = score(examples);
        for block in 0..2 {
            let alone: f64 =
                examples.chunks(1).map(|example| score(example).as_slice()[block]).sum::<f64>()
                    / 5.0;
            assert!((together.as_slice()[block] - alone).abs() < 1e-12, "{probe} block {block}");
        }
    }
}

#[test]
fn a_relative_gradient_is_the_gradient_over_the_weights() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let examples = &world.shards.clients[0].train.encoded()[..5];
    let labels = &world.shards.labels;
    let prober = Prober { model: &world.model, device: &world.device, labels };
    let score = |probe| prober.probe(&world.params, probe, ("x", examples)).unwrap();
    let (plain, relative) = (score(Probe::GradientNorm), score(Probe::RelativeGradient));
    for block in 0..2_u16 {
        let scope = Scope::of_blocks(world.model.layout(), [block]);
        let squares = scope.iter().map(|id| world.params.get(id).unwrap().sum_of_squares());
        let norm = squares.sum::<f64>().sqrt();
        let block = usize::from(block);
        let expected = plain.as_slice()[block] / norm;
        assert!((relative.as_slice()[block] - expected).abs() < 1e-9 * expected);
    }
}

/// Three rounds with the first client one block deep.
fn shallow(world: &World, recipe: Recipe) -> (ParamValues, BTreeMap<String, f64>) {
    let name = world.shards.clients[0].name.clone();
    let recipe = Recipe { depths: [(name, 1)].into(), ..recipe };
    let mut fleet = world.fleet().with_depths(&recipe.depths).unwrap();
    let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
    let mut federation = Federation::new(recipe, layout, initial, Seed(1)).unwrap();
    federation.run(&mut fleet, &mut [], 3, &|| false).unwrap();
    let scores = federation.examine(&mut fleet, EvaluationSet::ClientTest).unwrap().unwrap();
    (federation.model().clone(), scores.each[0].scores.clone())
}

#[test]
fn a_client_with_one_block_trains_and_is_scored_beside_clients_with_two() {
    let world = World::new(Task::Concepts, Size::SMALL);
    for (name, settings) in [("fedavg", "{}"), ("safl", r#"{"k":2,"embeddings":"learn"}"#)] {
        let (model, scores) = shallow(&world, recipe(name, settings));
        assert!(scores.contains_key("span_f1"), "{scores:?}");
        let initial = to_values(&world.params);
        let moved = |layer| {
            let scope = Scope::of_layers(world.model.layout(), [layer]);
            scope.iter().any(|id| initial.get(id) != model.get(id))
        };
        assert!(moved(Layer::Block(0)) && moved(Layer::Block(1)) && moved(Layer::Head), "{name}");
    }
}

#[test]
fn a_model_of_the_first_blocks_is_the_deep_one_that_skips_the_others() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let one = world.model.shallow(1).unwrap();
    assert_eq!(one.layout().blocks(), 1);
    let inside = |id| world.model.layout().get(id) == one.layout().get(id);
    assert!(one.layout().ids().all(inside));
    assert_eq!(world.model.shallow(9).unwrap().layout(), world.model.layout());
}

/// What the first client answers when its work is changed like this.
fn answer(world: &World, change: impl Fn(&mut Work)) -> Reply {
    let mut fleet = world.fleet();
    let clients = fleet.clients()[..1].to_vec();
    let mut orders = world.orders(&clients, Round(4));
    change(&mut orders[0].work);
    let mut replies = Vec::new();
    fleet
        .train(orders, &mut |arrival| {
            match arrival.outcome {
                Outcome::Finished(reply) => replies.push(reply),
                Outcome::Failed(failure) => panic!("{failure:?}"),
            }
            Ok(Verdict::Taken)
        })
        .unwrap();
    replies.pop().unwrap()
}

#[test]
fn of_each_block_only_the_heads_with_the_most_relevant_attention_go_up() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let layout = world.model.layout();
    let encoding = Encoding::Heads { share: 0.5, of: 2 };
    let read = |reply: &Reply, encoding| {
        let expected = Expectation {
            layout,
            kind: Kind::Change,
            encoding,
            round: Round(4),
            client: ClientId(0),
            scope: None,
        };
        decode(&reply.payload, &expected).unwrap().1
    };
    let whole = read(&answer(&world, |_| ()), Encoding::F32);
    let some = answer(&world, |work| {
        work.encoding = encoding;
        work.head_probe = Some(HeadProbe { probe: ENTITIES, examples: u32::MAX });
    });
    let some = read(&some, encoding);

    // The same masses, one example at a time.
    let mut probe = BlockProbe::new(Relevant::All);
    let outside = world.shards.labels.index("O");
    for example in world.shards.clients[0].train.encoded() {
        let Target::PerToken(labels) = &example.target else { panic!("concepts label words") };
        let marks = labels.iter().map(|label| label.is_some() && *label != outside).collect();
        probe.set_relevant(Relevant::Marked(marks));
        let batch = Batch::packed(example.ids.clone(), vec![example.ids.len()]).unwrap();
        let mut tape = Tape::new(&world.device);
        world.model.probe_blocks(&mut tape, world.params.frozen(), &batch, &mut probe).unwrap();
    }
    for (heads, scores) in probe.heads().iter().zip(probe.by_example()) {
        assert!((heads.iter().sum::<f64>() - scores.iter().sum::<f64>()).abs() < 1e-9);
    }
    let best = |block: u16| {
        let masses = &probe.heads()[usize::from(block)];
        usize::from(masses[1] > masses[0])
    };
    let mut sliced = 0;
    for (id, whole) in whole.iter() {
        let found = some.get(id).unwrap();
        let Some(slices) = HeadSlices::of(id, *layout.get(id).unwrap(), 2) else {
            assert_eq!(found, whole, "{id}");
            assert!(id.role != Role::Query, "{id}");
            continue;
        };
        sliced += 1;
        let best = best(id.layer.block().unwrap());
        for range in slices.places(best) {
            assert_eq!(found[range.clone()], whole[range], "{id}");
        }
        for range in slices.places(1 - best) {
            assert!(found[range].iter().all(|value| *value == 0.0), "{id}");
        }
    }
    // Query, key and value with their biases, and the output, of two blocks.
    assert_eq!(sliced, 2 * 7);
}
