//! Two processes that join as one client: the newer stays, the older is told and ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fedra_net::{Left, NetError};

use crate::proxy::{Proxy, Weather};
use crate::sites::{Joined, begin, join_all, options, run, wait_until};
use crate::world::{World, recipe};

/// A federation in busy rounds into which a second process of the second client comes.
fn join_twice(wait: Duration, is_cut: bool) {
    let (world, place) = (World::new(3), tempfile::tempdir().unwrap());
    let (mut fleet, told) = world.listen(place.path(), options());
    let (address, proxy) = (fleet.address(), Proxy::start(&fleet.address(), Weather::CALM));
    let mut sites = join_all(&world, &proxy.address, place.path());
    begin(&mut fleet);
    let (world, is_over) = (&world, &AtomicBool::new(false));
    let (older, newer) = std::thread::scope(|scope| {
        let (told, place) = (&told, &place);
        let joining = scope.spawn(move || {
            wait_until("rounds", || told.has("hospital-2 joined"));
            std::thread::sleep(wait);
            let folder = place.path().join("newer");
            let newer = Joined::start(world.client(1), &address, folder);
            newer.wait_for("joined");
            if is_cut {
                // What the older one was told is lost on the way: it dials again.
                proxy.cut();
            }
            let older = sites.remove(1);
            wait_until("the older one ends", || {
                older.has_ended() || is_over.load(Ordering::SeqCst)
            });
            assert!(older.has_ended(), "it is still there");
            (older, newer, sites, proxy)
        });
        let recipe = recipe("scaffold", "{}", |_| {});
        let reports = run(world, &recipe, &mut fleet, 40).1;
        is_over.store(true, Ordering::SeqCst);
        let (older, newer, sites, _proxy) = joining.join().unwrap();
        assert!(reports.iter().all(|report| report.arrived.len() == 3), "{}", told.all());
        fleet.finish("done");
        for site in sites {
            assert_eq!(site.end().unwrap(), Left::Ended("done".to_owned()));
        }
        (older.end(), newer)
    });
    let all = told.all();
    assert!(matches!(&older, Err(NetError::Replaced(_))), "{older:?}\n{all}");
    let said = older.unwrap_err().to_string();
    assert!(said.starts_with("another process joined as hospital-2"), "{said}");
    assert_eq!(newer.end().unwrap(), Left::Ended("done".to_owned()));
    // The newer one has a folder of its own, so what the older one kept is missed once, and never again.
    assert_eq!(all.matches("it has lost the state that it kept").count(), 1, "{all}");
    if !is_cut {
        assert_eq!(all.matches("hospital-2 joined").count(), 2, "{all}");
    }
}

#[test]
fn in_busy_rounds_the_newer_of_two_processes_stays_and_the_older_one_ends() {
    for trial in 0..6 {
        join_twice(Duration::from_millis(20 + 13 * trial), false);
    }
}

#[test]
fn so_it_is_where_the_older_one_did_not_hear_why_its_connection_ended() {
    for trial in 0..3 {
        join_twice(Duration::from_millis(20 + 17 * trial), true);
    }
}
