//! Whole federations on the synthetic clinic: what they learn, and that every method runs.

use crate::world::{Size, World, adamw, with_threads};
use fedra_client::{LocalFleet, Shards, to_values};
use fedra_data::{LabelScore, Target, Task};
use fedra_engine::methods::Method;
use fedra_engine::{
    EvaluationSet, Federation, Fleet, ParamValues, Population, Recipe, RoundReport, Scored,
    Selection, Sink, Work,
};
use fedra_plan::{AttentionSide, Layer, Probe, RelevantTokens, Rule};
use fedra_seed::Seed;

/// A federation that has run: its central score before and after, its reports, its model.
struct Run {
    before: Scored,
    after: Scored,
    reports: Vec<RoundReport>,
    model: ParamValues,
}

struct Reports(Vec<RoundReport>);

impl Sink for Reports {
    fn round(&mut self, report: &RoundReport) -> Result<(), fedra_engine::EngineError> {
        self.0.push(report.clone());
        Ok(())
    }
}

fn run(world: &World, shards: Shards, recipe: Recipe, rounds: u32) -> Run {
    let (model, params) = (world.model.clone(), world.params.clone());
    let mut fleet = LocalFleet::new(model, params, world.device.clone(), shards).unwrap();
    let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
    let mut federation = Federation::new(recipe, layout, initial, Seed(1)).unwrap();
    let central = |federation: &Federation, fleet: &mut dyn Fleet| {
        let scores = federation.examine(fleet, EvaluationSet::CentralTest).unwrap();
        scores.unwrap().each.remove(0)
    };
    let before = central(&federation, &mut fleet);
    let mut reports = Reports(Vec::new());
    federation.run(&mut fleet, &mut [&mut reports], rounds, &|| false).unwrap();
    let after = central(&federation, &mut fleet);
    Run { before, after, reports: reports.0, model: federation.model().clone() }
}

#[test]
fn averaging_learns_to_find_concepts() {
    let size = Size { hospitals: 4, notes: 400, width: 32, longest: 64 };
    let world = World::new(Task::Concepts, size);
    let recipe = Recipe::new(Work { epochs: 2, batch: 16, ..adamw(5e-3) });
    let run = run(&world, world.shards.clone(), recipe, 6);
    assert!(run.after.loss < 0.6 * run.before.loss, "{:?} {:?}", run.before, run.after);
    // Saying O to every word scores zero.
    assert!(run.after.scores["span_f1"] > 0.4, "{:?}", run.after);
    let losses: Vec<f64> = run.reports.iter().filter_map(|report| report.loss).collect();
    assert!(losses.last() < losses.first(), "{losses:?}");
}

/// Diagnoses hang on context and take a from-scratch encoder longer than a test may last; in one
/// pair of hands a few seconds are enough to see that it learns. Ten rounds would be too many: these
/// few notes are then known by heart.
#[test]
fn one_party_with_every_note_learns_to_code_diagnoses() {
    let size = Size { hospitals: 3, notes: 600, width: 32, longest: 96 };
    let world = World::new(Task::Diagnosis, size);
    let base = Recipe::new(Work { epochs: 3, batch: 16, ..adamw(3e-3) });
    let run = run(&world, world.shards.pooled(), method("centralised").recipe(base), 4);
    let codes = world.shards.labels.len();
    let one_for_all = (0..codes as u32).map(|code| {
        let mut score = LabelScore::new(codes);
        for example in world.shards.central_test.encoded() {
            let Target::Many(truth) = &example.target else { panic!("diagnoses are sets") };
            score.add(truth, &[code]);
        }
        score.micro_f1()
    });
    let majority = one_for_all.fold(0.0, f64::max);
    assert!(run.after.loss < run.before.loss, "{:?} {:?}", run.before, run.after);
    assert!(run.after.scores["micro_f1"] > majority + 0.05, "{majority} {:?}", run.after);
}

fn method(name: &str) -> Method {
    let none: serde_json::Map<String, serde_json::Value> = serde_json::Map::new();
    Method::by_name(name, serde_json::Value::Object(none)).unwrap()
}

#[test]
fn every_method_of_the_engine_runs_on_this_fleet() {
    let world = World::new(Task::Concepts, Size::SMALL);
    for name in Method::NAMES {
        let recipe = method(name).over(2).recipe(Recipe::new(adamw(1e-3)));
        let shards = match recipe.population {
            Population::Pooled => world.shards.pooled(),
            Population::Federated => world.shards.clone(),
        };
        let clients = shards.clients.len();
        let run = run(&world, shards, recipe, 2);
        for report in &run.reports {
            assert_eq!(report.arrived.len(), clients, "{name}: {report:?}");
        }
        assert!(run.after.loss.is_finite(), "{name}");
    }
}

#[test]
fn blocks_chosen_by_attention_are_all_that_changes_on_any_number_of_threads() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let probe = Probe::Attention { side: AttentionSide::Key, tokens: RelevantTokens::Entities };
    let learns = Rule::Chosen | Rule::Layers([Layer::Head].into());
    let selection = Selection { k: 1, probe: Some(probe), ..Selection::default() };
    let recipe = Recipe { learns, selection, ..Recipe::new(Work { epochs: 2, ..adamw(1e-2) }) };
    let model = |threads| {
        let (world, recipe) = (&world, recipe.clone());
        with_threads(threads, || run(world, world.shards.clone(), recipe, 2))
    };
    let alone = model(1);
    let initial = to_values(&world.params);
    let chosen = &alone.reports.iter().flat_map(|report| report.blocks.clone()).collect();
    for (id, values) in alone.model.iter() {
        let may_change = match id.layer {
            Layer::Embedding => false,
            Layer::Block(number) => std::collections::BTreeSet::contains(chosen, &number),
            Layer::Head => true,
        };
        assert_eq!(Some(values) != initial.get(id), may_change, "{id}");
    }
    for threads in [2, 3] {
        assert!(model(threads).model == alone.model, "{threads} threads");
    }
}
