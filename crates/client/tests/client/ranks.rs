//! Clients whose adapters have different ranks: the shared correction is the mean of theirs.

use std::collections::BTreeMap;

use fedra_client::{LocalFleet, to_values};
use fedra_data::Task;
use fedra_engine::{
    AdapterMean, ClientId, Encoding, EngineError, EvaluationSet, Federation, Fleet, Outcome,
    ParamValues, Recipe, RoundReport, Sampler, Sink, TrainRequest, Verdict, layout_of,
};
use fedra_model::Adapters;
use fedra_plan::{Layer, Layout, ParamId, Part, Role, Round, Rule, Scope};
use fedra_seed::Seed;
use fedra_wire::{Expectation, Header, Kind, narrowed, open};

use crate::world::{Size, World, adamw};

/// The reports of a run.
#[derive(Default)]
struct Reports(Vec<RoundReport>);

impl Sink for Reports {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        self.0.push(report.clone());
        Ok(())
    }
}

const RANK: usize = 4;
const SEED: Seed = Seed(3);

fn world(magnitudes: bool) -> World {
    let adapters = Adapters::new(RANK, 6.0, [Role::Query, Role::Value, Role::Up]).unwrap();
    let adapters = if magnitudes { adapters.with_magnitudes() } else { adapters };
    let config = World::new(Task::Concepts, Size::SMALL).model.config().clone();
    World::of(Task::Concepts, Size::SMALL, (config, Some(adapters)))
}

fn recipe(world: &World, ranks: &[u16]) -> Recipe {
    let names = world.shards.clients.iter().map(|shard| shard.name.clone());
    let mut recipe = Recipe::new(adamw(1e-2));
    recipe.learns = Rule::Parts(Part::ADAPTER.into()) | Rule::Layers([Layer::Head].into());
    recipe.adapters = AdapterMean::Exact;
    recipe.ranks = names.zip(ranks).map(|(name, rank)| (name, *rank)).collect();
    recipe.evaluation.on = vec![EvaluationSet::CentralTest, EvaluationSet::ClientTest];
    recipe
}

fn fleet(world: &World, recipe: &Recipe) -> LocalFleet {
    world.fleet().with_ranks(&recipe.ranks).unwrap()
}

fn run(world: &World, recipe: &Recipe, rounds: u32) -> (ParamValues, Vec<RoundReport>) {
    let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
    let mut federation = Federation::new(recipe.clone(), layout, initial, SEED).unwrap();
    let mut reports = Reports::default();
    let mut fleet = fleet(world, recipe);
    federation.run(&mut fleet, &mut [&mut reports], rounds, &|| false).unwrap();
    (federation.model().clone(), reports.0)
}

/// `B A` of every adapted projection, in f64.
fn products(layout: &Layout, values: &ParamValues) -> BTreeMap<(Layer, Role), Vec<f64>> {
    let a_parts = layout.ids().filter(|id| id.part == Part::LoraA);
    let product = |id: ParamId| {
        let b = ParamId { part: Part::LoraB, ..id };
        let &[rank, inputs] = layout.get(id).unwrap().dims() else { panic!("a matrix") };
        let (a, b) = (values.get(id).unwrap(), values.get(b).unwrap());
        let element = |output: usize, input: usize| -> f64 {
            (0..rank)
                .map(|k| f64::from(b[output * rank + k]) * f64::from(a[k * inputs + input]))
                .sum()
        };
        let outputs = b.len() / rank;
        let all = (0..outputs).flat_map(|output| (0..inputs).map(move |input| (output, input)));
        ((id.layer, id.role), all.map(|(output, input)| element(output, input)).collect())
    };
    a_parts.map(product).collect()
}

/// The model of each client after the round that comes behind `completed`, and its weight.
fn clients_of(
    world: &World,
    (recipe, completed): (&Recipe, u32),
    model: &ParamValues,
) -> Vec<(Layout, ParamValues, f64)> {
    let mut fleet = fleet(world, recipe);
    fleet.restore(model, &mut std::iter::empty()).unwrap();
    let (shared, round) = (world.model.layout(), Round(completed));
    let learns = recipe.learns.select(shared).unwrap();
    let request = |client: &fedra_engine::ClientInfo| TrainRequest {
        client: client.id,
        round,
        seed: SEED.of("client").with(u64::from(round.0)).with(u64::from(client.id.0)),
        correction: None,
        plan: recipe.plan((&client.name, round), learns.clone(), shared).unwrap(),
        work: recipe.work.clone(),
        revocable: false,
        split: None,
    };
    let infos = fleet.clients().to_vec();
    let requests = infos.iter().map(request).collect();
    let mut models = Vec::new();
    fleet
        .train(requests, &mut |arrival| {
            let Outcome::Finished(reply) = arrival.outcome else { panic!("it trains") };
            let ClientId(number) = arrival.client;
            let info = &infos[number as usize];
            let layout = layout_of(&recipe.ranks, &info.name, shared).into_owned();
            let header = Header {
                client: arrival.client,
                ..Header::download(Kind::Change, Encoding::F32, round)
            };
            let change = open(reply.payload, &Expectation::of(&layout, &header)).unwrap();
            let before: ParamValues = narrowed(model.clone(), (shared, &layout));
            let mut after = before.subset(&learns);
            after.add_scaled(1.0, &change.tensors());
            models.push((layout, after, info.examples as f64));
            Ok(Verdict::Taken)
        })
        .unwrap();
    models
}

fn distance(found: &[f64], expected: &[f64]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let apart = norm(&mut found.iter().zip(expected).map(|(x, y)| x - y));
    apart / norm(&mut expected.iter().copied())
}

#[test]
fn the_shared_correction_is_the_weighted_mean_of_the_clients_own_where_their_ranks_fit() {
    for magnitudes in [false, true] {
        let world = world(magnitudes);
        let layout = world.model.layout();
        for (ranks, fits) in [(&[1, 1, 2][..], true), (&[2, 1], false)] {
            let recipe = recipe(&world, ranks);
            let (before, _) = run(&world, &recipe, 2);
            let (after, reports) = run(&world, &recipe, 3);
            let clients = clients_of(&world, (&recipe, 2), &before);
            let total: f64 = clients.iter().map(|(_, _, weight)| weight).sum();
            let mut expected: BTreeMap<(Layer, Role), Vec<f64>> = BTreeMap::new();
            for (layout, model, weight) in &clients {
                for (place, product) in products(layout, model) {
                    let sum = expected.entry(place).or_insert_with(|| vec![0.0; product.len()]);
                    sum.iter_mut().zip(product).for_each(|(sum, x)| *sum += weight / total * x);
                }
            }
            let lost = reports[2].adapters.unwrap().lost;
            assert_eq!(lost < 1e-6, fits, "{ranks:?}: {lost}");
            let (mut apart, mut all) = (0.0, 0.0);
            for (place, found) in products(layout, &after) {
                let expected = &expected[&place];
                let off = distance(&found, expected);
                assert!(!fits || off < 1e-5, "{place:?} with {ranks:?}: {off:e}");
                let norm: f64 = expected.iter().map(|x| x * x).sum();
                (apart, all) = (apart + off * off * norm, all + norm);
            }
            // What the rank cannot hold is what the report says.
            assert!((f64::sqrt(apart / all) - lost).abs() < 1e-5, "{ranks:?}");
            // All other parts are plain means, magnitudes among them.
            let others = Scope::everything(layout)
                .filter(|id| id.layer == Layer::Head || id.part == Part::Magnitude);
            assert_eq!(others.iter().any(|id| id.part == Part::Magnitude), magnitudes);
            for id in &others {
                let mut mean = vec![0.0; after.get(id).unwrap().len()];
                for (_, model, weight) in &clients {
                    let values = model.get(id).unwrap();
                    mean.iter_mut()
                        .zip(values)
                        .for_each(|(sum, x)| *sum += weight / total * f64::from(*x));
                }
                let found: Vec<f64> =
                    after.get(id).unwrap().iter().copied().map(f64::from).collect();
                let off = distance(&found, &mean);
                assert!(off < 1e-5, "{id}: {off:e}");
            }
        }
    }
}

#[test]
fn the_models_own_rank_is_no_exception_and_a_lower_one_sends_less() {
    let world = world(false);
    let (plain, reports) = run(&world, &recipe(&world, &[]), 3);
    let (same, of_same) = run(&world, &recipe(&world, &[RANK as u16]), 3);
    assert!(plain == same);
    assert_eq!(of_same[2].bytes, reports[2].bytes);
    let (lower, of_lower) = run(&world, &recipe(&world, &[1]), 3);
    assert!(lower != plain);
    // Three projections in each of two blocks, three of four ranks, both factors, four bytes each.
    let inputs_and_outputs = 2 * (16 + 16) + (16 + 32);
    let less = 2 * 3 * inputs_and_outputs * 4;
    assert_eq!(reports[2].bytes.up.0 - of_lower[2].bytes.up.0, less);
    assert_eq!(reports[2].bytes.down.0 - of_lower[2].bytes.down.0, less);
}

#[test]
fn clients_of_other_ranks_resume_and_are_scored_with_what_they_have() {
    let world = world(true);
    let mut recipe = recipe(&world, &[1, 2]);
    recipe.sampler = Sampler::Uniform(2);
    let (whole, reports) = run(&world, &recipe, 5);
    let scores = &reports[4].scores;
    assert!(scores.iter().any(|set| set.on == EvaluationSet::ClientTest && set.each.len() == 3));
    let folder = tempfile::tempdir().unwrap();
    for rounds in [2, 3, 5] {
        let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
        let mut federation = Federation::new(recipe.clone(), layout, initial, SEED).unwrap();
        federation.keep_checkpoints(folder.path());
        let mut fleet = fleet(&world, &recipe);
        assert_eq!(federation.resume(folder.path(), &mut fleet).unwrap(), rounds > 2);
        federation.run(&mut fleet, &mut [], rounds, &|| false).unwrap();
        if rounds == 5 {
            assert!(federation.model() == &whole);
        }
    }
}

#[test]
fn what_ranks_cannot_be_combined_with_is_refused() {
    let world = world(false);
    let check = |change: &dyn Fn(&mut Recipe), expected: &str| {
        let mut recipe = recipe(&world, &[1]);
        change(&mut recipe);
        let names: Vec<&str> = world.shards.clients.iter().map(|it| it.name.as_str()).collect();
        let checked =
            recipe.check(3).and_then(|()| recipe.check_model(world.model.layout(), &names));
        let message = checked.unwrap_err().to_string();
        assert!(message.contains("federation.ranks") && message.contains(expected), "{message}");
    };
    check(&|recipe| recipe.adapters = AdapterMean::Separate, "model.lora.mean");
    check(&|recipe| recipe.work.download = Encoding::Bf16, "wire.download");
    check(&|recipe| recipe.personal = Rule::Layers([Layer::Head].into()), "personal");
    check(&|recipe| recipe.ranks = [("hospital-9".to_owned(), 1)].into(), "hospital-9");
    check(&|recipe| recipe.ranks.values_mut().for_each(|rank| *rank = RANK as u16 + 1), "5 of 4");
    check(&|recipe| recipe.ranks.values_mut().for_each(|rank| *rank = 0), "0 of 4");
}
