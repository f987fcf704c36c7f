//! How far attention moved, on real models: nothing, a known distance, and only where it can.

use fedra_client::{LocalFleet, PATTERN_EXAMPLES, to_values};
use fedra_data::Task;
use fedra_engine::{AttentionRequest, AttentionShift, ClientId, Fleet, StateHandle};
use fedra_plan::{Layer, ParamId, Part, Role, Round};
use fedra_seed::Seed;
use fedra_wire::ParamValues;

use crate::world::{Size, World, kept_by, send, with_threads};

const CLIENTS: [ClientId; 2] = [ClientId(0), ClientId(2)];

fn look(fleet: &mut LocalFleet, model: &ParamValues) -> Vec<Option<AttentionShift>> {
    send(fleet, Round(0), model);
    let request = AttentionRequest { clients: &CLIENTS, revocable: false, seed: Seed(4) };
    let shifts = fleet.compare_attention(&request).unwrap();
    assert_eq!(shifts.iter().map(|shift| shift.client).collect::<Vec<_>>(), CLIENTS);
    shifts.into_iter().map(|shift| shift.moved).collect()
}

/// The model with every number of a parameter changed.
fn changed(
    model: &ParamValues,
    (block, role, part): (u16, Role, Part),
    by: fn(f32) -> f32,
) -> ParamValues {
    let mut model = model.clone();
    let id = ParamId::new(Layer::Block(block), role, part);
    model.get_mut(id).unwrap().iter_mut().for_each(|value| *value = by(*value));
    model
}

#[test]
fn the_same_model_has_moved_by_exactly_nothing_and_the_first_look_compares_nothing() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let model = to_values(&world.params);
    let mut fleet = world.fleet();
    assert_eq!(look(&mut fleet, &model), [None, None]);
    let still = AttentionShift { since_first: vec![0.0; 2], since_last: vec![0.0; 2] };
    assert_eq!(look(&mut fleet, &model), [Some(still.clone()), Some(still)]);
    // Who has not looked remembers nothing.
    let states = kept_by(&fleet);
    assert_eq!(states.iter().map(|state| state.client).collect::<Vec<_>>(), CLIENTS);
}

#[test]
fn from_even_attention_to_a_single_token_is_the_distance_computed_by_hand() {
    // So few notes that every example is in the sample, and enough for both clients to have one.
    let is_small = |world: &World| {
        let train = |client: &ClientId| world.shards.clients[client.0 as usize].train.len();
        CLIENTS.iter().all(|client| (1..=PATTERN_EXAMPLES).contains(&train(client)))
    };
    let worlds = (12..40).map(|notes| World::new(Task::Concepts, Size { notes, ..Size::SMALL }));
    let world = worlds.into_iter().find(is_small).expect("one of them is small enough");
    let model = to_values(&world.params);
    let key = |part| (0, Role::Key, part);
    // Keys of nothing: every query looks at all n tokens alike, 1/n each.
    let even = changed(&model, key(Part::Weight), |_| 0.0);
    let even = changed(&even, key(Part::Bias), |_| 0.0);
    // Keys so large that each query looks at one token.
    let single = changed(&model, key(Part::Weight), |value| 1e7 * value);
    let mut fleet = world.fleet();
    look(&mut fleet, &even);
    let found = look(&mut fleet, &single);
    for (client, moved) in CLIENTS.iter().zip(found) {
        let examples = world.shards.clients[client.0 as usize].train.encoded();
        assert!(examples.len() <= PATTERN_EXAMPLES, "{}", examples.len());
        let lengths = || examples.iter().map(|example| example.ids.len() as f64);
        // (1 - 1/n + (n - 1) / n) / 2 = 1 - 1/n for each of an example's n queries and its heads.
        let expected = lengths().map(|n| n - 1.0).sum::<f64>() / lengths().sum::<f64>();
        let moved = moved.unwrap();
        assert!((moved.since_last[0] - expected).abs() < 1e-6, "{moved:?} {expected}");
        assert_eq!(moved.since_first, moved.since_last);
    }
    // Back where it was first: nothing since then, all the way since last.
    let moved = look(&mut fleet, &even)[0].clone().unwrap();
    assert_eq!(moved.since_first, [0.0, 0.0]);
    assert!(moved.since_last[0] > 0.5);
}

#[test]
fn a_block_whose_kernel_and_input_are_frozen_has_not_moved() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let model = to_values(&world.params);
    let moved = |next: &ParamValues| {
        let mut fleet = world.fleet();
        look(&mut fleet, &model);
        look(&mut fleet, next)[0].clone().unwrap().since_last
    };
    // Value and feed-forward of block 0 are behind its own attention and in front of block 1's.
    for role in [Role::Value, Role::Up] {
        let shifts = moved(&changed(&model, (0, role, Part::Weight), |value| 2.0 * value));
        assert!(shifts[0] == 0.0 && shifts[1] > 0.0, "{role:?}: {shifts:?}");
    }
    let shifts = moved(&changed(&model, (1, Role::Query, Part::Weight), |value| 2.0 * value));
    assert!(shifts[0] == 0.0 && shifts[1] > 0.0, "{shifts:?}");
}

#[test]
fn looking_does_not_depend_on_threads_and_is_carried_over_by_the_clients_state() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let model = to_values(&world.params);
    let next = changed(&model, (0, Role::Query, Part::Weight), |value| 1.5 * value);
    let both = |threads| {
        with_threads(threads, || {
            let mut fleet = world.fleet();
            look(&mut fleet, &model);
            look(&mut fleet, &next)
        })
    };
    assert_eq!(both(1), both(3));
    let (mut first, mut second) = (world.fleet(), world.fleet());
    look(&mut first, &model);
    second.restore(&model, &mut first.states().iter().map(StateHandle::state)).unwrap();
    assert_eq!(look(&mut second, &next), both(1));
}
