//! Two processes that join as one client: the newer stays, the older is told and ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fedra_client::to_values;
use fedra_compute::Seed;
use fedra_engine::Federation;
use fedra_net::{Left, NetError};

use crate::proxy::{FaultPlan, Proxy};
use crate::sites::{Joined, begin, join_all, options, wait_until};
use crate::world::{Reports, World, recipe};

/// A federation in busy rounds, which go on until a second process of the second client has trained and the
/// first one has ended.
fn join_twice(wait: Duration, is_cut: bool) {
    let (world, place) = (World::new(3), tempfile::tempdir().unwrap());
    let (mut fleet, told) = world.listen(place.path(), options());
    let (address, proxy) = (fleet.address(), Proxy::start(&fleet.address(), FaultPlan::CALM));
    let mut sites = join_all(&world, &proxy.address, place.path());
    begin(&mut fleet);
    let recipe = recipe("scaffold", "{}", |_| {});
    let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
    let mut federation = Federation::new(recipe, layout, initial, Seed(3)).unwrap();
    let (mut reports, is_done) = (Reports::default(), AtomicBool::new(false));
    let (older, newer) = std::thread::scope(|scope| {
        let joining = scope.spawn(|| {
            let older = sites.remove(1);
            older.wait_for("round 2: trained");
            std::thread::sleep(wait);
            let newer = Joined::start(world.client(1), &address, place.path().join("newer"));
            newer.wait_for("joined");
            if is_cut {
                // What the older one was told may be lost on the way: it dials again.
                proxy.cut();
            }
            wait_until("the older one ends", || older.has_ended());
            newer.wait_for("trained");
            is_done.store(true, Ordering::SeqCst);
            (older, newer)
        });
        let stop = || is_done.load(Ordering::SeqCst) || joining.is_finished();
        federation.run(&mut fleet, &mut [&mut reports], 4000, &stop).unwrap();
        joining.join().unwrap()
    });
    let all = told.all();
    assert!(reports.0.iter().all(|report| report.arrived.len() == 3), "{all}");
    fleet.end(fedra_net::RunEnd::Complete, "done");
    for site in sites {
        assert_eq!(site.end().unwrap(), Left::Ended("done".to_owned()));
    }
    let ended = older.end().unwrap_err();
    assert!(matches!(ended, NetError::Replaced(_)), "{ended:?}\n{all}");
    assert!(ended.to_string().starts_with("another process joined as hospital-2"), "{ended}");
    assert_eq!(newer.end().unwrap(), Left::Ended("done".to_owned()));
    // The newer one has a folder of its own, so what the older one kept is missed once, and never again.
    assert_eq!(all.matches("its client state is lost").count(), 1, "{all}");
    assert_eq!(all.matches("hospital-2 joined").count(), 2, "{all}");
}

#[test]
fn in_busy_rounds_the_newer_of_two_processes_stays_and_the_older_one_ends() {
    for trial in 0..8 {
        join_twice(Duration::from_millis(7 * trial), false);
    }
}

#[test]
fn so_it_is_where_the_older_one_did_not_hear_why_its_connection_ended() {
    for trial in 0..4 {
        join_twice(Duration::from_millis(7 * trial), true);
    }
}
