//! Rounds with too few updates: they are repeated when those who were away are back, or after a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fedra_client::to_values;
use fedra_compute::Seed;
use fedra_engine::{EngineError, Federation, MinArrivals};
use fedra_net::{FleetOptions, FleetPhase, FleetStatus, Left, NetFleet, STATUS};

use crate::proxy::{FaultPlan, Proxy};
use crate::sites::{Joined, begin, options, wait_until};
use crate::world::{Reports, Told, World, recipe};

/// Nobody who is away is waited for within a round.
fn impatient(retry_after: Duration) -> FleetOptions {
    FleetOptions { grace: Duration::ZERO, retry_after, ..options() }
}

/// Two rounds that need everybody, with so many retries.
fn attempt(
    world: &World,
    fleet: &mut NetFleet,
    retries: u32,
    stop: &dyn Fn() -> bool,
) -> (Result<(), EngineError>, Reports) {
    let recipe = recipe("scaffold", "{}", |recipe| {
        (recipe.min_arrivals, recipe.retries) = (MinArrivals::Share(1.0), retries);
    });
    let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
    let mut federation = Federation::new(recipe, layout, initial, Seed(3)).unwrap();
    let mut reports = Reports::default();
    let ran = federation.run(fleet, &mut [&mut reports], 2, stop);
    (ran.map(drop), reports)
}

struct Away {
    place: tempfile::TempDir,
    fleet: NetFleet,
    told: Told,
    sites: [Joined; 2],
    proxy: Proxy,
}

/// Two sites, the second of which is away.
fn away(world: &World, options: FleetOptions) -> Away {
    let place = tempfile::tempdir().unwrap();
    let (mut fleet, told) = world.listen(place.path(), options);
    let proxy = Proxy::start(&fleet.address(), FaultPlan::CALM);
    let first = Joined::start(world.client(0), &fleet.address(), place.path().join("first"));
    let second = Joined::start(world.client(1), &proxy.address, place.path().join("second"));
    begin(&mut fleet);
    second.wait_for("joined");
    proxy.down(true);
    wait_until("the server has noticed", || fleet.absent() == ["hospital-2"]);
    Away { place, fleet, told, sites: [first, second], proxy }
}

#[test]
fn a_round_with_too_few_updates_waits_for_those_who_are_away() {
    let world = World::new(2);
    let Away { place, mut fleet, told, sites, proxy } =
        away(&world, impatient(Duration::from_mins(1)));
    let (waiting, status) = (told.clone(), place.path().join(STATUS));
    let returning = std::thread::spawn(move || {
        wait_until("the round is to be repeated", || waiting.has("too few updates for round 1"));
        let phase = || {
            let text = std::fs::read(&status).unwrap_or_default();
            serde_json::from_slice::<FleetStatus>(&text).map(|status| status.phase).ok()
        };
        wait_until("its status says so", || phase() == Some(FleetPhase::Retrying));
        proxy.down(false);
        proxy
    });
    let (ran, reports) = attempt(&world, &mut fleet, 1, &|| false);
    ran.unwrap();
    let _proxy = returning.join().unwrap();
    assert_eq!(reports.0.len(), 2);
    assert_eq!(reports.0[0].failed_attempts.len(), 1, "{:?}", reports.0[0]);
    assert!(reports.0.iter().all(|report| report.arrived.len() == 2));
    fleet.end(fedra_net::RunEnd::Complete, "done");
    for site in sites {
        assert_eq!(site.end().unwrap(), Left::Ended("done".to_owned()));
    }
}

#[test]
fn it_is_given_up_after_growing_waits_and_a_wait_can_be_ended() {
    let world = World::new(2);
    let wait = Duration::from_millis(60);
    let Away { place: _place, mut fleet, told, sites, proxy: _proxy } =
        away(&world, impatient(wait));
    let begun = Instant::now();
    let (ran, _) = attempt(&world, &mut fleet, 2, &|| false);
    assert!(matches!(ran, Err(EngineError::TooFewArrivals { attempts: 3, .. })), "{ran:?}");
    assert!(begun.elapsed() >= 3 * wait, "the second wait is twice as long as the first");
    assert_eq!(told.all().matches("too few updates").count(), 2, "{}", told.all());
    drop(fleet);
    sites.iter().for_each(Joined::stop);

    let Away { place: _place, mut fleet, told, sites, proxy: _proxy } =
        away(&world, impatient(Duration::from_hours(1)));
    let is_told = AtomicBool::new(false);
    let stop = || {
        is_told.fetch_or(told.has("too few updates"), Ordering::SeqCst);
        is_told.load(Ordering::SeqCst)
    };
    let (ran, reports) = attempt(&world, &mut fleet, 9, &stop);
    ran.unwrap();
    assert!(reports.0.is_empty() && is_told.load(Ordering::SeqCst));
    fleet.pause();
    sites.iter().for_each(Joined::stop);
}
