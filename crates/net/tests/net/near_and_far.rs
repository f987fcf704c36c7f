//! A federation over sockets is the federation in one process, to the bit.

use fedra_engine::{Encoding, MinArrivals, Recipe};
use fedra_net::Left;

use crate::world::{World, begin, join_all, options, recipe, run};

#[test]
fn sites_on_sockets_are_the_fleet_of_threads_to_the_bit() {
    let world = World::new(3);
    let int8 = |recipe: &mut Recipe| {
        recipe.work.download = Encoding::Int8 { feedback: false };
        recipe.work.encoding = Encoding::Int8 { feedback: true };
    };
    let recipes = [
        recipe("fedavg", "{}", int8),
        recipe("safl", r#"{"k": 1}"#, |_| {}),
        recipe("scaffold", "{}", |_| {}),
        recipe("fedper", "{}", |_| {}),
        recipe("fedfrozen", r#"{"warmup": 1}"#, |recipe| recipe.evaluation.attention = true),
        recipe("fedbabu", "{}", |_| {}),
        // Most attempts fail and are taken back.
        recipe("feddyn", "{}", |recipe| {
            recipe.conditions.fail = 0.5;
            recipe.min_arrivals = MinArrivals::Count(3);
            recipe.retries = 200;
        }),
    ];
    for recipe in recipes {
        let place = tempfile::tempdir().unwrap();
        let near = run(&world, &recipe, &mut world.local(), 3);
        let (mut fleet, told) = world.listen(place.path(), options());
        let sites = join_all(&world, &fleet.address(), place.path());
        begin(&mut fleet);
        let far = run(&world, &recipe, &mut fleet, 3);
        assert!(near.0 == far.0, "{}: {}", recipe.method, told.all());
        assert_eq!(near.1, far.1, "{}", recipe.method);
        fleet.finish("done");
        for site in sites {
            assert_eq!(site.end().unwrap(), Left::Ended("done".to_owned()));
        }
    }
}
