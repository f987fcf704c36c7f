//! A site that comes back to a run with other examples than it took part with.

use std::path::Path;
use std::time::Duration;

use fedra_client::{Client, Examples};
use fedra_data::Target;
use fedra_net::{FleetOptions, JOURNAL, NetError};

use crate::sites::{Joined, begin, join_all, options, run};
use crate::world::{World, recipe};

/// The same rows of the first hospital with one tag of one word changed.
fn with_other_label(world: &World) -> Client {
    let mut encoded = world.shards.clients[0].train.encoded().to_vec();
    let Target::PerToken(tags) = &mut encoded[0].target else { panic!("expected tags") };
    let tag = tags.iter_mut().find(|tag| tag.is_some()).unwrap();
    *tag = Some(u32::from(*tag == Some(0)));
    let train: Examples = encoded.into_iter().collect();
    let mut changed = World {
        model: world.model.clone(),
        params: world.params.clone(),
        shards: world.shards.clone(),
    };
    changed.shards.clients[0].train = train;
    changed.client(0)
}

fn refusal(site: Joined) -> String {
    match site.end() {
        Err(NetError::Refused(reason)) => reason,
        other => panic!("expected a refusal, found {other:?}"),
    }
}

#[test]
fn a_site_whose_examples_changed_is_refused_and_one_with_a_new_folder_is_announced() {
    let (world, place) = (World::new(2), tempfile::tempdir().unwrap());
    let impatient = FleetOptions { grace: Duration::from_millis(200), ..options() };
    let (mut fleet, told) = world.listen(place.path(), impatient);
    let address = fleet.address();
    let sites = join_all(&world, &address, place.path());
    begin(&mut fleet);
    let _reports = run(&world, &recipe("fedavg", "{}", |_| {}), &mut fleet, 1);
    for site in sites {
        site.stop();
        site.end().unwrap();
    }
    let folder = |name: &str| place.path().join(name);
    let name = world.names()[0].clone();
    let written = std::fs::read_to_string(place.path().join(JOURNAL)).unwrap();
    let secret = std::fs::read_to_string(folder(&name).join("data.secret")).unwrap();
    assert!(written.contains("\"examples\"") && !written.contains(secret.trim()), "{written}");
    assert_eq!(mode_of(&folder(&name).join("data.secret")), 0o600);

    let changed = Joined::start(with_other_label(&world), &address, folder(&name));
    let reason = refusal(changed);
    assert!(reason.contains("have changed since it took part"), "{reason}");
    // That is what a round says of it afterwards, not how its former process left.
    let other = Joined::start(world.client(1), &address, folder(&world.names()[1]));
    other.wait_for("joined");
    let (_, reports) = run(&world, &recipe("fedavg", "{}", |_| {}), &mut fleet, 1);
    let failed = &reports[0].failed;
    assert_eq!(failed.len(), 1, "{failed:?}");
    let told_of = "is not connected: it was refused: the examples of";
    assert!(failed[0].reason.starts_with(told_of), "{failed:?}");
    other.stop();
    other.end().unwrap();

    let same = Joined::start(world.client(0), &address, folder(&name));
    same.wait_for("joined");
    same.stop();
    same.end().unwrap();
    assert!(!told.has("its state folder is new"), "{}", told.all());

    let moved = Joined::start(world.client(0), &address, folder("elsewhere"));
    moved.wait_for("the server cannot tell whether its examples have changed");
    moved.stop();
    moved.end().unwrap();
}

fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
