//! A run that begins before all clients have come.

use std::sync::Arc;
use std::time::Duration;

use fedra_client::Silent;
use fedra_net::{FleetOptions, Start};
use fedra_plan::Round;
use fedra_wire::ClientId;

use crate::sites::{Joined, begin, join_all, options, run};
use crate::world::{World, recipe};

#[test]
fn rounds_train_and_score_without_a_client_that_never_comes() {
    let (world, place) = (World::new(3), tempfile::tempdir().unwrap());
    let (mut fleet, told) = world.listen(place.path(), options());
    let join = |number: u32| {
        let folder = place.path().join(number.to_string());
        Joined::start(world.client(number), &fleet.address(), folder)
    };
    let sites = [join(0), join(1)];
    let start = Start { wait_for: Some(2), start_after: None };
    fleet.wait(start).unwrap().unwrap();
    assert!(told.has("starting without hospital-3"), "{}", told.all());
    fleet.open(Round(0), Arc::new(Silent)).unwrap();
    let (_, reports) = run(&world, &recipe("fedavg", "{}", |_| {}), &mut fleet, 2);
    for report in reports {
        assert_eq!(report.arrived, [ClientId(0), ClientId(1)]);
        assert!(!report.scores.is_empty(), "{report:?}");
    }
    for site in sites {
        site.stop();
        site.end().unwrap();
    }
}

#[test]
fn what_was_sent_to_nobody_is_no_byte_down() {
    let (world, place) = (World::new(4), tempfile::tempdir().unwrap());
    let recipe = recipe("fedavg", "{}", |_| {});
    let (_, whole) = run(&world, &recipe, &mut world.local(), 1);
    let grace = Duration::from_millis(20);
    let (mut fleet, told) = world.listen(place.path(), FleetOptions { grace, ..options() });
    let mut sites = join_all(&world, &fleet.address(), place.path());
    begin(&mut fleet);
    for site in sites.split_off(2) {
        site.stop();
        site.end().unwrap();
    }
    // Until the server has heard that two of them left.
    let glance = Start { wait_for: None, start_after: Some(Duration::from_millis(50)) };
    while !["hospital-3 left", "hospital-4 left"].iter().all(|gone| told.has(gone)) {
        fleet.wait(glance).unwrap().unwrap();
    }
    let (_, reports) = run(&world, &recipe, &mut fleet, 1);
    let (found, whole) = (&reports[0], &whole[0]);
    assert_eq!((found.cohort.len(), found.arrived.len()), (4, 2));
    assert_eq!(2 * found.bytes.down.0, whole.bytes.down.0);
    assert_eq!(2 * found.bytes.full_down.0, whole.bytes.full_down.0);
    assert_eq!(2 * found.bytes.evaluation.0, whole.bytes.evaluation.0);
    for site in sites {
        site.stop();
        site.end().unwrap();
    }
}
