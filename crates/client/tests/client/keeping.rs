//! Where idle clients' states lie shows in no bit of what they do.

use std::path::Path;

use crate::world::{Size, World, adamw, kept_by, with_threads};
use fedra_client::{LocalFleet, to_values};
use fedra_data::Task;
use fedra_engine::methods::Method;
use fedra_engine::{
    ClientState, Encoding, Federation, Fleet, Recipe, Sampler, StateHandle, StateStore,
};
use fedra_engine::{EngineError, ParamValues};
use fedra_seed::Seed;
use serde_json::{Value, json};

/// Every kind of state there is, by the method or encoding that keeps it.
fn recipes() -> Vec<Recipe> {
    let of = |name: &str, settings: Value, encoding| {
        let mut base = Recipe::new(adamw(1e-2));
        base.work.encoding = encoding;
        base.evaluation.on.clear();
        base.sampler = Sampler::Uniform(3);
        Method::by_name(name, settings).unwrap().recipe(base)
    };
    let mut watched = of("scaffold", json!({}), Encoding::F32);
    watched.evaluation.attention = true;
    // Half-way, what is remembered of query and key is dropped.
    let frozen = json!({ "warmup": 2, "base": { "name": "feddyn" } });
    vec![
        of("scaffold", json!({}), Encoding::F32),
        of("feddyn", json!({}), Encoding::F32),
        of("fedper", json!({}), Encoding::F32),
        of("fedavg", json!({}), Encoding::Int8 { feedback: true }),
        of("local-only", json!({}), Encoding::TopK { share: 0.1, feedback: true }),
        of("fedfrozen", frozen, Encoding::F32),
        watched,
    ]
}

fn fleet(world: &World, scratch: Option<&Path>) -> LocalFleet {
    let mut fleet = world.fleet();
    if let Some(path) = scratch {
        fleet.state_store = StateStore::on_disk(path).unwrap();
    }
    fleet
}

fn start(world: &World, recipe: &Recipe) -> Federation {
    let (layout, start) = (world.model.layout().clone(), to_values(&world.params));
    Federation::new(recipe.clone(), layout, start, Seed(1)).unwrap()
}

/// The model and the states after some rounds.
fn run(
    federation: &mut Federation,
    fleet: &mut LocalFleet,
    rounds: u32,
) -> (ParamValues, Vec<ClientState>) {
    federation.run(fleet, &mut [], rounds, &|| false).unwrap();
    (federation.model().clone(), kept_by(fleet))
}

#[test]
fn memory_and_disk_give_the_same_bits_on_any_number_of_threads_and_after_a_resume() {
    let world = World::new(Task::Diagnosis, Size { hospitals: 5, notes: 40, ..Size::SMALL });
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path().join("scratch");
    for recipe in recipes() {
        let name = &recipe.method;
        let expected = run(&mut start(&world, &recipe), &mut fleet(&world, None), 4);
        assert!(!expected.1.is_empty(), "{name} keeps something");
        for threads in [1, 3] {
            let found = with_threads(threads, || {
                run(&mut start(&world, &recipe), &mut fleet(&world, Some(&scratch)), 4)
            });
            assert!(found == expected, "{name} on disk, {threads} threads");
        }
        // From either place into either, through a checkpoint.
        for places in [[Some(&*scratch), None], [None, Some(&*scratch)], [Some(&*scratch); 2]] {
            let saved = tempfile::tempdir().unwrap();
            let mut first = start(&world, &recipe);
            first.keep_checkpoints(saved.path());
            run(&mut first, &mut fleet(&world, places[0]), 2);
            let (mut second, mut clients) = (start(&world, &recipe), fleet(&world, places[1]));
            assert!(second.resume(saved.path(), &mut clients).unwrap());
            assert!(run(&mut second, &mut clients, 4) == expected, "{name} resumed, {places:?}");
        }
        assert!(!scratch.exists());
    }
}

#[test]
fn a_branch_goes_back_to_states_that_have_been_replaced_on_disk() {
    let world = World::new(Task::Diagnosis, Size { hospitals: 5, notes: 40, ..Size::SMALL });
    let folder = tempfile::tempdir().unwrap();
    for recipe in recipes() {
        let mut fleet = fleet(&world, Some(&folder.path().join("scratch")));
        let mut trunk = start(&world, &recipe);
        run(&mut trunk, &mut fleet, 2);
        let moment = trunk.moment(&fleet);
        let expected = run(&mut trunk, &mut fleet, 4);
        let mut branch = moment.branch(recipe.clone(), &mut fleet).unwrap();
        assert!(run(&mut branch, &mut fleet, 4) == expected, "{}", recipe.method);
    }
}

#[test]
fn a_state_of_another_model_is_refused_on_its_way_in() {
    let world = World::new(Task::Diagnosis, Size { notes: 30, ..Size::SMALL });
    let other = World::new(Task::Diagnosis, Size { notes: 30, width: 32, ..Size::SMALL });
    let (mut here, mut there) = (fleet(&world, None), fleet(&other, None));
    let scaffold = &recipes()[0];
    run(&mut start(&other, scaffold), &mut there, 1);
    let shared = to_values(&world.params);
    let refused = here.restore(&shared, &mut there.states().iter().map(StateHandle::state));
    assert!(matches!(refused, Err(EngineError::Wire(_))), "{refused:?}");
}
