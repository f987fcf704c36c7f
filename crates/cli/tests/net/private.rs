//! A private federation of processes: noise is the sites' own, and so are their ledgers.

use std::fs;

use crate::place::{Place, TINY, mode_of};

#[test]
fn sites_keep_count_of_their_own_and_come_to_the_epsilon_of_the_server() {
    let place = Place::new();
    let flags = [TINY, "--set", "privacy.epsilon=8", "--set", "threads=1"];
    place.run("run --out near --quiet", &flags);
    let (server, address) = place.serve("far", &flags);
    let sites = place.join_all(&address, &flags);
    server.succeed();
    for site in sites {
        site.succeed();
    }
    let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap();
    let summary: serde_json::Value =
        serde_json::from_str(&read(place.path("far").join("summary.json"))).unwrap();
    let epsilon = summary["privacy"]["epsilon"].as_f64().unwrap();
    assert!((7.9..=8.0).contains(&epsilon), "{epsilon}");
    // The noise of a simulation is everybody's, that of a site is its own.
    assert!(place.model("near") != place.model("far"));
    let mut worst: f64 = 0.0;
    for site in 1..=3 {
        let folder = place.path(&format!("state-{site}"));
        let output = place.output("account ledger --json", &[folder.to_str().unwrap()]);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        worst = worst.max(told["pld"].as_f64().unwrap());
        assert_eq!(told["events"], 3);
        assert_eq!(mode_of(&folder.join("noise.key")), 0o600);
    }
    assert!((worst - epsilon).abs() < 1e-9, "{worst}, {epsilon}");
}

#[test]
fn a_site_that_guaranteed_something_does_not_work_for_a_server_that_did_not() {
    let place = Place::new();
    let plain = [TINY, "--set", "threads=1"];
    let private = [TINY, "--set", "threads=1", "--set", "privacy.epsilon=8"];
    let (server, address) = place.serve("far", &plain);
    let site = place.join(1, &address, &private);
    let (status, said) = site.end();
    assert_ne!(status, Some(0));
    assert!(said.contains("privacy"), "{said}");
    server.kill();
}

#[test]
fn a_site_does_not_go_on_without_its_key_or_its_ledger() {
    let place = Place::new();
    let flags = [TINY, "--set", "privacy.epsilon=8", "--set", "threads=1"];
    let (server, address) = place.serve("far", &flags);
    let sites = place.join_all(&address, &flags);
    server.succeed();
    for site in sites {
        site.succeed();
    }
    let state = place.path("state-1");
    let parts = [
        ("noise.key", "noise.key is missing"),
        ("ledger.jsonl", "ledger.jsonl is missing"),
        ("ledger.end", "removed entries cannot be detected"),
    ];
    for (lost, said) in parts {
        let kept = fs::read(state.join(lost)).unwrap();
        fs::remove_file(state.join(lost)).unwrap();
        let (status, heard) = place.join(1, &address, &flags).end();
        assert!(status != Some(0) && heard.contains(said), "{heard}");
        fs::write(state.join(lost), kept).unwrap();
    }
}

#[test]
fn a_site_that_lost_its_folder_is_not_let_into_a_private_run_again() {
    let place = Place::new();
    let flags = [TINY, "--set", "privacy.noise=1", "--set", "federation.rounds=400"];
    let (server, address) = place.serve("far", &flags);
    let mut sites = place.join_all(&address, &flags);
    place.wait_for_rounds("far", 2);
    sites.remove(1).kill();
    fs::rename(place.path("state-2"), place.path("state-lost")).unwrap();
    let (status, heard) = place.join(2, &address, &flags).end();
    assert!(status != Some(0) && heard.contains("the state folder is new"), "{heard}");
    // So it is after the server was gone, too.
    server.kill();
    drop(sites);
    let (server, address) = place.serve("far", &flags);
    let (status, heard) = place.join(2, &address, &flags).end();
    assert!(status != Some(0) && heard.contains("the state folder is new"), "{heard}");
    // With its folder it continues.
    fs::remove_dir_all(place.path("state-2")).unwrap();
    fs::rename(place.path("state-lost"), place.path("state-2")).unwrap();
    let _sites = place.join_all(&address, &flags);
    let before = place.log("far").len();
    place.wait_for_rounds("far", before + 2);
    server.kill();
}

#[test]
fn a_site_whose_ledger_cannot_be_written_says_so_and_ends() {
    let place = Place::new();
    let flags = [TINY, "--set", "privacy.noise=1", "--set", "federation.rounds=400"];
    let (server, address) = place.serve("far", &flags);
    let mut sites = place.join_all(&address, &flags);
    place.wait_for_rounds("far", 2);
    // As on a full disk: the file that comes before `ledger.end` cannot be written any more.
    let part = place.path("state-2").join("ledger.end.part");
    while fs::create_dir(&part).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let (status, heard) = sites.remove(1).end();
    assert_eq!(status, Some(1), "{heard}");
    assert!(heard.contains("privacy: writing") && heard.contains("ledger.end"), "{heard}");
    server.wait_for("privacy: writing");
    // Once it can be written, the site continues.
    fs::remove_dir(&part).unwrap();
    let _again = place.join(2, &address, &flags);
    let before = place.log("far").len();
    place.wait_for_rounds("far", before + 3);
    server.kill();
}
