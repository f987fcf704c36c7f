//! `FedFrozen` with real clients: query and key keep their bits under `AdamW` and its decay.

use crate::world::{Size, World, adamw, kept_by};
use fedra_client::to_values;
use fedra_data::Task;
use fedra_engine::methods::Method;
use fedra_engine::{Encoding, Federation, Recipe};
use fedra_plan::{Role, Scope};
use fedra_seed::Seed;

fn frozen(settings: &serde_json::Value, encoding: Encoding) -> Recipe {
    let mut base = Recipe::new(adamw(1e-2));
    base.work.encoding = encoding;
    base.evaluation.on.clear();
    Method::by_name("fedfrozen", settings).unwrap().recipe(base)
}

#[test]
fn frozen_query_and_key_stay_bit_identical_under_adamw_whatever_lies_beneath() {
    let world = World::new(Task::Diagnosis, Size { notes: 30, ..Size::SMALL });
    let layout = world.model.layout();
    let kernel = Scope::of_roles(layout, [Role::Query, Role::Key]);
    for (base, encoding) in [
        (serde_json::json!({ "name": "fedavg" }), Encoding::F32),
        (serde_json::json!({ "name": "fedyogi" }), Encoding::TopK { share: 0.1, feedback: true }),
        (serde_json::json!({ "name": "scaffold" }), Encoding::F32),
        (serde_json::json!({ "name": "feddyn" }), Encoding::F32),
    ] {
        let settings = serde_json::json!({ "warmup": 1, "base": base });
        let mut fleet = world.fleet();
        let start = to_values(&world.params);
        let recipe = frozen(&settings, encoding);
        let mut federation = Federation::new(recipe, layout.clone(), start, Seed(1)).unwrap();
        federation.run(&mut fleet, &mut [], 1, &|| false).unwrap();
        let warm = federation.model().clone();
        federation.run(&mut fleet, &mut [], 3, &|| false).unwrap();
        let (now, still) = (federation.model(), |id| warm.get(id) == federation.model().get(id));
        assert!(kernel.iter().all(still), "{base}");
        assert!(now.scope().iter().any(|id| !still(id)), "{base}");
        for state in kept_by(&fleet) {
            assert!((state.correction.scope() & &kernel).is_empty(), "{base}");
            assert!((state.residual.scope() & &kernel).is_empty(), "{base}");
        }
    }
}

#[test]
fn a_lower_rate_moves_query_and_key_less_and_the_rest_as_far() {
    let world = World::new(Task::Diagnosis, Size { notes: 30, ..Size::SMALL });
    let layout = world.model.layout();
    let kernel = Scope::of_roles(layout, [Role::Query, Role::Key]);
    let start = to_values(&world.params);
    let moved = |settings: &serde_json::Value| {
        let mut recipe = frozen(settings, Encoding::F32);
        recipe.work.max_steps = Some(1);
        let initial = start.clone();
        let mut federation = Federation::new(recipe, layout.clone(), initial, Seed(1)).unwrap();
        federation.run(&mut world.fleet(), &mut [], 1, &|| false).unwrap();
        federation.model().clone()
    };
    let full = moved(&serde_json::json!({ "warmup": 1 }));
    let slow = moved(&serde_json::json!({ "warmup": 0, "qk_rate": 0.5 }));
    for (id, start) in start.iter() {
        let (full, slow) = (full.get(id).unwrap(), slow.get(id).unwrap());
        if !kernel.contains(id) {
            assert_eq!(full, slow, "{id}");
            continue;
        }
        for ((start, full), slow) in start.iter().zip(full).zip(slow) {
            assert!((slow - start - 0.5 * (full - start)).abs() < 1e-6, "{id}");
        }
    }
}
