//! A run that begins before all clients have come.

use std::sync::Arc;

use fedra_client::Silent;
use fedra_net::Start;
use fedra_plan::Round;
use fedra_wire::ClientId;

use crate::sites::{Joined, options, run};
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
    assert!(told.has("beginning without hospital-3"), "{}", told.all());
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
