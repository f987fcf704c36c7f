//! Processes that are killed, and what is lost then: nothing.

use crate::place::{Place, Process, TINY};

/// Enough rounds to be killed in; clients keep corrections, so a state that was lost would show.
const LONG: [&str; 7] = [
    TINY,
    "--set",
    "method={ name = 'scaffold' }",
    "--set",
    "federation.rounds=40",
    "--set",
    "threads=1",
];

fn check_same(place: &Place) {
    place.run("run --out near --quiet", &LONG);
    assert!(place.model("near") == place.model("far"));
    assert_eq!(place.log("near"), place.log("far"));
}

#[test]
fn a_server_that_is_killed_goes_on_and_its_sites_with_it() {
    let place = Place::new();
    let (mut server, address) = place.serve("far", &LONG);
    let sites = place.join_all(&address, &LONG);
    let again = || place.start(&format!("serve --listen {address} --out far"), &LONG);
    place.wait_for_rounds("far", 2);
    server.kill();
    server = again();
    place.wait_for_rounds("far", 9);
    server.interrupt();
    let (status, told) = server.end();
    assert!(status != Some(0) && told.contains("the same command resumes"), "{told}");
    let told = place.refusal("run --resume far", &[]);
    assert!(told.contains("the run in far is over a network"), "{told}");
    again().succeed();
    sites.into_iter().for_each(Process::succeed);
    check_same(&place);
    let told = place.refusal(&format!("serve --listen {address} --out far"), &LONG);
    assert!(told.contains("found a complete run of the same file"), "{told}");
}

#[test]
fn a_site_that_is_killed_comes_back_with_what_it_kept() {
    let place = Place::new();
    let (server, address) = place.serve("far", &LONG);
    let mut sites = place.join_all(&address, &LONG);
    for rounds in [1, 8] {
        place.wait_for_rounds("far", rounds);
        sites.remove(1).kill();
        sites.insert(1, place.join(2, &address, &LONG));
    }
    server.wait_for("hospital-2 left");
    server.succeed();
    sites.into_iter().for_each(Process::succeed);
    check_same(&place);
}

#[test]
fn a_site_that_lost_its_folder_says_so_and_takes_part() {
    let place = Place::new();
    let (server, address) = place.serve("far", &LONG);
    let mut sites = place.join_all(&address, &LONG);
    place.wait_for_rounds("far", 2);
    sites.remove(1).kill();
    std::fs::remove_dir_all(place.path("state-2")).unwrap();
    sites.insert(1, place.join(2, &address, &LONG));
    server.wait_for("its client state is lost");
    sites[1].wait_for("warning: the client state after round");
    server.succeed();
    sites.into_iter().for_each(Process::succeed);
    let all_came = |report: &serde_json::Value| report["arrived"].as_array().unwrap().len() == 3;
    assert!(place.log("far").iter().all(all_came));
}

/// A folder in the place of the file that a state would be written to: the disk says no, as a full one
/// does.
#[test]
fn a_site_whose_disk_fails_says_so_itself_and_the_others_hear_that_the_run_is_over() {
    let place = Place::new();
    let all = [&LONG[..], &["--set", "federation.min_arrivals=1.0"]].concat();
    let (server, address) =
        place.serve("far", &[&all[..], &["--grace", "1", "--retry-after", "1"]].concat());
    std::fs::create_dir_all(place.path("state-2/state-0-trained.fedra.part")).unwrap();
    let sites = place.join_all(&address, &all);
    let mut ends = sites.into_iter().map(Process::end);
    let (first, second) = (ends.next().unwrap(), ends.next().unwrap());
    assert_eq!(second.0, Some(1), "{}", second.1);
    assert!(second.1.contains("error: writing state-2/state-0-trained.fedra"), "{}", second.1);
    assert!(!second.1.contains("done"), "{}", second.1);
    assert_eq!(first.0, Some(1), "{}", first.1);
    assert!(first.1.contains("error: the server gave up: "), "{}", first.1);
    assert!(!first.1.contains("done") && !first.1.contains("hint:"), "{}", first.1);
    assert_eq!(server.end().0, Some(1));
}

/// Two processes as one client, each with a folder of its own: the newer stays, the older is told and ends
/// with a status after which no unit starts it again.
#[test]
fn of_two_processes_of_one_client_the_newer_stays() {
    let place = Place::new();
    let (server, address) = place.serve("far", &LONG);
    let mut sites = place.join_all(&address, &LONG);
    place.wait_for_rounds("far", 2);
    let line = format!("join --server {address} --client hospital-2 --state state-newer");
    let newer = place.start(&line, &LONG);
    let (status, said) = sites.remove(1).end();
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("error: another process joined as hospital-2"), "{said}");
    // With the folder of a process that is at work there is no second one.
    let told = place.refusal(&line, &LONG);
    assert!(told.contains("another process is using this folder"), "{told}");
    server.wait_for("hospital-2 joined");
    let heard = server.said();
    server.succeed();
    newer.succeed();
    sites.into_iter().for_each(Process::succeed);
    assert!(heard.matches("its client state is lost").count() <= 1, "{heard}");
    let all_came = |report: &serde_json::Value| report["arrived"].as_array().unwrap().len() == 3;
    assert!(place.log("far").iter().all(all_came));
}

#[test]
fn a_site_that_waits_in_vain_leaves_after_the_time_of_its_choice() {
    let place = Place::new();
    let line = "join --server 127.0.0.1:1 --client hospital-1 --state state-1 --give-up-after 1";
    let (status, said) = place.start(line, &[TINY]).end();
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("error: no answer for 1 s: cannot reach 127.0.0.1:1"), "{said}");
    assert_eq!(said.matches("trying again").count(), 1, "{said}");
}

#[test]
fn more_clients_than_connections_or_files_are_refused_before_anybody_waits() {
    let place = Place::new();
    let line = "serve --listen 127.0.0.1:0 --out far --max-connections 2";
    let told = place.refusal(line, &[TINY]);
    let expected = "--max-connections: found 2, expected at least 3 for the experiment's 3 clients";
    assert!(told.contains(expected), "{told}");
    let told = place.refusal_with_files(66, "serve --listen 127.0.0.1:0 --out far", &[TINY]);
    assert!(told.contains("--listen: found a limit of 2 connections, expected 3"), "{told}");
    assert!(told.contains("LimitNOFILE="), "{told}");
    assert!(!place.path("far").join("rounds.jsonl").exists());
}

/// As a process without a descriptor left: another start may do better, so a unit starts it again.
#[test]
fn a_lack_of_descriptors_is_no_refusal() {
    let place = Place::new();
    let line = "join --server 127.0.0.1:1 --client hospital-1 --state state-1 --give-up-after 1";
    let (status, said) = place.end_with_files(5, line, &[TINY]);
    assert!(said.contains("Too many open files"), "{said}");
    assert_eq!(status, Some(1), "{said}");
}
