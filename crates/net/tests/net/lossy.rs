//! Networks that break, lose and damage what they carry, again and again: sites outlive them.

use std::time::Duration;

use fedra_net::certs::{Authority, Days};
use fedra_net::{FleetOptions, Left, NetError, ServerSecurity};

use crate::place::Place;
use crate::proxy::{FaultPlan, InjectedFault, Proxy};
use crate::sites::{Joined, begin, join_all, join_all_with, options, run, wait_until};
use crate::world::{World, recipe};

/// Certificates of a server on this machine and of all clients of a world, in their order.
fn certified(place: &Place, world: &World) -> (ServerSecurity, Vec<ServerSecurity>) {
    let ours = Authority::generate().unwrap();
    let server = ours.server(&["127.0.0.1".to_owned()], Days(1)).unwrap();
    let client = |name: &String| {
        let signed = ours.client(name, Days(1)).unwrap();
        ServerSecurity::Tls(place.identity(name, &signed, &ours))
    };
    let clients = world.names().iter().map(client).collect();
    (ServerSecurity::Tls(place.identity("server", &server, &ours)), clients)
}

/// A server that waits for those who are away when the run ends.
fn patient() -> FleetOptions {
    FleetOptions { farewell: Duration::from_secs(20), ..options() }
}

#[test]
fn connections_that_break_again_and_again_cost_no_bit() {
    let world = World::new(3);
    let recipe = recipe("scaffold", "{}", |recipe| recipe.evaluation.attention = true);
    let rounds = 12;
    let near = run(&world, &recipe, &mut world.local(), rounds);
    let place = tempfile::tempdir().unwrap();
    let (mut fleet, told) = world.listen(place.path(), patient());
    let proxy = Proxy::start(&fleet.address(), FaultPlan::CALM);
    let sites = join_all(&world, &proxy.address, place.path());
    begin(&mut fleet);
    let cutting = std::thread::spawn(move || {
        let mut cuts = 0;
        for wait in [10, 290, 310, 330, 280, 305] {
            std::thread::sleep(Duration::from_millis(wait));
            cuts += proxy.cut();
        }
        (cuts, proxy)
    });
    let far = run(&world, &recipe, &mut fleet, rounds);
    assert!(near.0 == far.0 && near.1 == far.1, "{}", told.all());
    assert!(told.has(" left: "), "nothing was cut: {}", told.all());
    let (cuts, _proxy) = cutting.join().unwrap();
    assert!(cuts > 0);
    fleet.end(fedra_net::RunEnd::Complete, "done");
    for site in sites {
        assert_eq!(site.end().unwrap(), Left::Ended("done".to_owned()));
    }
}

/// A federation over a bad network under TLS: it ends as in one process, to the bit, and so do its sites.
fn outlive(faults: FaultPlan, rounds: u32) {
    let (world, place) = (World::new(3), Place::new());
    let recipe = recipe("scaffold", "{}", |_| {});
    let near = run(&world, &recipe, &mut world.local(), rounds);
    let (security, clients) = certified(&place, &world);
    let (mut fleet, told) = world.listen_with(security, place.path(), options());
    let proxy = Proxy::start(&fleet.address(), faults);
    let sites = join_all_with(&world, &proxy.address, (place.path(), &clients));
    begin(&mut fleet);
    let far = run(&world, &recipe, &mut fleet, rounds);
    let happened = proxy.happened();
    assert!(near.0 == far.0 && near.1 == far.1, "{faults:?}: {}", told.all());
    for fault in InjectedFault::ALL {
        assert!(happened.contains(&fault), "{fault:?} never happened: {happened:?}");
    }
    fleet.end(fedra_net::RunEnd::Complete, "done");
    for site in sites {
        let all = site.told.clone();
        let ended = site.end();
        assert!(matches!(ended, Ok(Left::Ended(_))), "{faults:?}: {ended:?}\n{}", all.all());
    }
}

#[test]
fn a_network_that_damages_what_it_carries_costs_no_bit() {
    outlive(FaultPlan { seed: 5, apart: 200_000, count: 24 }, 10);
}

/// On demand: `FEDRA_FAULTS` says how many, 2000 where it does not, `FEDRA_FAULT_SEED` from which seed.
#[test]
#[ignore = "takes minutes: a long run over a bad network, see CONTRIBUTING.md"]
fn a_network_that_damages_what_it_carries_for_long_costs_no_bit() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let count = number("FEDRA_FAULTS").unwrap_or(2000);
    let seed = number("FEDRA_FAULT_SEED").unwrap_or(1) as u64;
    outlive(FaultPlan { seed, apart: 100_000, count }, count as u32 / 4);
}

#[test]
fn a_site_waits_for_a_server_behind_a_forwarder_and_a_stranger_is_told_what_is_wrong() {
    let (world, place) = (World::new(2), Place::new());
    let (security, clients) = certified(&place, &world);
    let (mut fleet, told) = world.listen_with(security, place.path(), options());
    let proxy = Proxy::start(&fleet.address(), FaultPlan::CALM);
    let sites = join_all_with(&world, &proxy.address, (place.path(), &clients));
    begin(&mut fleet);
    for site in &sites {
        site.wait_for("joined");
    }
    proxy.down(true);
    for site in &sites {
        // Whoever was welcome waits, and says so once.
        site.wait_for("trying again until it answers");
    }
    let folder = place.path().join("stranger");
    let stranger = Joined::start_with(world.client(0), (&proxy.address, &clients[0]), folder);
    let ended = stranger.end().unwrap_err();
    assert!(ended.to_string().contains("does that port use TLS?"), "{ended}");
    std::thread::sleep(Duration::from_millis(300));
    proxy.down(false);
    let outcome = run(&world, &recipe("fedavg", "{}", |_| {}), &mut fleet, 2);
    assert!(outcome.1.iter().all(|report| report.arrived.len() == 2), "{}", told.all());
    fleet.end(fedra_net::RunEnd::Complete, "done");
    for site in sites {
        let said = site.told.all();
        assert_eq!(said.matches("trying again").count(), 1, "{said}");
        assert_eq!(site.end().unwrap(), Left::Ended("done".to_owned()));
    }
}

#[test]
fn a_certificate_that_is_refused_ends_a_site_that_was_welcome_before() {
    let (world, place, other) = (World::new(1), Place::new(), Place::new());
    let (security, clients) = certified(&place, &world);
    let (fleet, _) = world.listen_with(security, place.path(), options());
    let proxy = Proxy::start(&fleet.address(), FaultPlan::CALM);
    let mut fleet = fleet;
    let site = join_all_with(&world, &proxy.address, (place.path(), &clients)).remove(0);
    begin(&mut fleet);
    site.wait_for("joined");
    // A server of another CA takes the place of the first.
    let (security, _) = certified(&other, &world);
    let (second, _) = world.listen_with(security, other.path(), options());
    proxy.lead_to(&second.address());
    proxy.cut();
    let ended = site.end().unwrap_err();
    assert!(matches!(ended, NetError::Distrusted { .. }), "{ended:?}");
    assert!(ended.to_string().contains("signed by another CA"), "{ended}");
    fleet.pause();
    second.pause();
}

#[test]
fn a_site_that_is_away_when_the_run_ends_hears_so_and_one_that_waits_in_vain_leaves() {
    let (world, place) = (World::new(2), tempfile::tempdir().unwrap());
    let (mut fleet, told) = world.listen(place.path(), patient());
    let proxy = Proxy::start(&fleet.address(), FaultPlan::CALM);
    let near = Joined::start(world.client(0), &fleet.address(), place.path().join("near"));
    let far = Joined::start(world.client(1), &proxy.address, place.path().join("far"));
    begin(&mut fleet);
    far.wait_for("joined");
    proxy.down(true);
    far.wait_for("trying again");
    wait_until("the server has noticed", || fleet.absent() == ["hospital-2"]);
    let back = told.clone();
    let returning = std::thread::spawn(move || {
        wait_until("the server waits", || back.has("waiting for hospital-2"));
        proxy.down(false);
        proxy
    });
    fleet.end(fedra_net::RunEnd::Complete, "all rounds are complete");
    let _proxy = returning.join().unwrap();
    let complete = Left::Ended("all rounds are complete".to_owned());
    assert_eq!(far.end().unwrap(), complete);
    assert_eq!(near.end().unwrap(), complete);

    let nobody = Proxy::start("127.0.0.1:1", FaultPlan::CALM);
    nobody.down(true);
    let folder = place.path().join("alone");
    let alone = Joined::start_giving_up(world.client(0), &nobody.address, folder);
    let Left::Alone(reason) = alone.end().unwrap() else { panic!("it did not give up") };
    assert!(reason.starts_with("no answer for 1 s: "), "{reason}");
}

#[test]
fn a_site_whose_loss_is_noticed_after_the_end_of_the_run_hears_so() {
    let (world, place) = (World::new(2), tempfile::tempdir().unwrap());
    let (mut fleet, told) = world.listen(place.path(), patient());
    let proxy = Proxy::start(&fleet.address(), FaultPlan::CALM);
    let near = Joined::start(world.client(0), &fleet.address(), place.path().join("near"));
    let far = Joined::start(world.client(1), &proxy.address, place.path().join("far"));
    begin(&mut fleet);
    far.wait_for("joined");
    let unnoticed = proxy.lose();
    far.wait_for("trying again");
    assert_eq!(fleet.absent(), Vec::<String>::new(), "{}", told.all());
    let returning = std::thread::spawn(move || {
        // By now the server has told all those whom it believes to be there.
        std::thread::sleep(Duration::from_millis(300));
        drop(unnoticed);
        std::thread::sleep(Duration::from_millis(300));
        proxy.down(false);
        proxy
    });
    fleet.end(fedra_net::RunEnd::Complete, "done");
    assert!(told.has("waiting for hospital-2"), "{}", told.all());
    let _proxy = returning.join().unwrap();
    for site in [near, far] {
        assert_eq!(site.end().unwrap(), Left::Ended("done".to_owned()));
    }
}
