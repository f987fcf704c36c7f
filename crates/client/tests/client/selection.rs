//! Choosing blocks on real models: scores, shallow clients, and work that is not done.

use crate::world::{Size, World, adamw};
use fedra_client::{Prober, to_tensors};
use fedra_data::Task;
use fedra_engine::methods::Method;
use fedra_engine::{EvaluationSet, Federation, Recipe, Tensors};
use fedra_plan::{AttentionSide, Probe, RelevantTokens, Scope, Site};
use fedra_seed::Seed;
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
fn shallow(world: &World, recipe: Recipe) -> (Tensors, BTreeMap<String, f64>) {
    let name = world.shards.clients[0].name.clone();
    let recipe = Recipe { depths: [(name, 1)].into(), ..recipe };
    let mut fleet = world.fleet().with_depths(&recipe.depths).unwrap();
    let (layout, initial) = (world.model.layout().clone(), to_tensors(&world.params));
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
        let initial = to_tensors(&world.params);
        let moved = |site| {
            let scope = Scope::of_sites(world.model.layout(), [site]);
            scope.iter().any(|id| initial.get(id) != model.get(id))
        };
        assert!(moved(Site::Block(0)) && moved(Site::Block(1)) && moved(Site::Head), "{name}");
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
