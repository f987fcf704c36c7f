//! `report.html`, `fedra report` and `--watch`, with the built program.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::place::{Place, text};

#[test]
fn a_run_leaves_a_page_and_report_makes_the_same_again() {
    let place = Place::new();
    place.succeed(&["run", "tiny.toml", "--out", "run", "--quiet"]);
    let page = place.path("run/report.html");
    let first = fs::read_to_string(&page).unwrap();
    for drawn in [
        "Score by round",
        "Loss by round",
        "Score against bytes",
        "Score by client",
        "Gain by client",
    ] {
        assert!(first.contains(drawn), "{drawn}");
    }
    for phase in ["sync", "train", "apply", "evaluate"] {
        assert!(first.contains(&format!("</svg>{phase}</li>")), "{phase}");
    }
    // A simulation has no client of its own: the page tells what the plan foresees.
    let plan = place.succeed(&["plan", "tiny.toml"]);
    let line = plan.lines().find(|line| line.starts_with("client memory")).unwrap();
    let foreseen = line.trim_start_matches("client memory").split(" at most").next().unwrap();
    assert!(first.contains(foreseen.trim()), "{line}");
    assert!(first.contains("estimated, for a separate machine"));
    let digest = place.summary("run")["inputs"]["rows"].as_str().unwrap().to_owned();
    assert!(first.contains(&digest), "{digest}");
    assert!(first.contains("fedra run experiment.toml --out ../again"));
    fs::remove_file(&page).unwrap();
    let told = place.succeed(&["report", "run"]);
    assert_eq!(told.trim(), "run/report.html");
    assert_eq!(fs::read_to_string(&page).unwrap(), first);
    // The command on the page is a command that works.
    let output = Command::new(env!("CARGO_BIN_EXE_fedra"))
        .current_dir(place.path("run"))
        .args(["run", "experiment.toml", "--out", "../again", "--quiet"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(place.weights("again"), place.weights("run"));
}

#[test]
fn a_folder_without_a_run_has_no_page_and_somebody_elses_page_is_not_replaced() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    let refused = place.refused(&["report", "empty"]);
    assert!(
        refused.contains("found neither experiment.toml nor compare.json in empty"),
        "{refused}"
    );
    assert!(!place.path("empty/report.html").exists());
    fs::write(place.path("empty/report.html"), "mine").unwrap();
    let refused = place.refused(&["run", "tiny.toml", "--out", "empty"]);
    assert!(refused.contains("found report.html in empty but no run"), "{refused}");
    assert_eq!(fs::read_to_string(place.path("empty/report.html")).unwrap(), "mine");
}

#[test]
fn a_comparison_leaves_one_page_with_links_to_those_of_its_runs() {
    let place = Place::new();
    let arguments =
        ["compare", "tiny.toml", "--sweep", "method.name=fedavg,local-only", "--seeds", "1"];
    let arguments = [&arguments[..], &["--out", "both", "--quiet"]].concat();
    place.succeed(&arguments);
    let page = fs::read_to_string(place.path("both/report.html")).unwrap();
    for run in ["fedavg/seed-3", "local-only/seed-3"] {
        assert!(page.contains(&format!("href=\"./{run}/report.html\"")), "{run}");
        assert!(place.path(&format!("both/{run}/report.html")).is_file(), "{run}");
    }
    assert!(page.contains("<h3>Score by variant</h3>") && page.contains("<h3>Score by round</h3>"));
    fs::remove_file(place.path("both/report.html")).unwrap();
    assert_eq!(place.succeed(&["report", "both"]).trim(), "both/report.html");
    assert_eq!(fs::read_to_string(place.path("both/report.html")).unwrap(), page);
}

#[test]
fn a_damaged_run_leaves_the_others_their_pages_and_is_named() {
    let place = Place::new();
    let arguments = ["compare", "tiny.toml", "--seeds", "2", "--out", "two", "--quiet"];
    place.succeed(&arguments);
    let log = place.path("two/tiny/seed-4/rounds.jsonl");
    fs::write(&log, "no report\n").unwrap();
    fs::create_dir(place.path("empty")).unwrap();
    for page in ["two/report.html", "two/tiny/seed-3/report.html"] {
        fs::remove_file(place.path(page)).unwrap();
    }
    let output = place.fedra(&["report", "empty", "two"]);
    let refused = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{refused}");
    assert_eq!(text(&output.stdout).trim(), "two/report.html");
    assert!(refused.contains("found neither experiment.toml nor compare.json"), "{refused}");
    assert!(refused.contains("rounds.jsonl: line 1 is no report"), "{refused}");
    let page = fs::read_to_string(place.path("two/report.html")).unwrap();
    assert!(page.contains("seed 4 is in no curve") && page.contains("line 1 is no report"));
    assert!(page.contains("<h3>Score by round</h3>"));
    assert!(place.path("two/tiny/seed-3/report.html").is_file());
}

/// What a server at an address of this machine says to a request.
fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_run_is_watched_on_loopback_by_those_who_ask_for_it_by_name() {
    let place = Place::new();
    let mut run = Command::new(env!("CARGO_BIN_EXE_fedra"))
        .current_dir(place.folder.path())
        .args(["run", "tiny.toml", "--out", "run", "--quiet", "--watch"])
        .args(["--set", "federation.rounds=100000"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    let address = line.strip_prefix("watch it at http://").unwrap().trim_end_matches('/');
    assert!(address.starts_with("127.0.0.1:"), "{line}");
    while !fs::read_to_string(place.path("run/rounds.jsonl")).is_ok_and(|log| log.contains('\n')) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let host = format!("Host: {address}\r\n");
    let page = ask(address, &format!("GET / HTTP/1.1\r\n{host}\r\n"));
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("of 100000 rounds so far") && page.contains("src=\"/refresh.js\""));
    // Names of hosts have no case.
    let port = address.trim_start_matches("127.0.0.1");
    let named = ask(address, &format!("GET / HTTP/1.1\r\nHost: LocalHost{port}\r\n\r\n"));
    assert!(named.starts_with("HTTP/1.1 200 OK\r\n"), "{named}");
    let script = ask(address, &format!("GET /refresh.js HTTP/1.1\r\n{host}\r\n"));
    assert!(script.contains("text/javascript") && script.contains("scrollTo"), "{script}");
    let long = "x".repeat(9000);
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), "421"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "421"),
        (format!("GET / HTTP/1.1\r\n{host}{host}\r\n"), "421"),
        (format!("POST / HTTP/1.1\r\n{host}\r\n"), "405"),
        (format!("GET /../summary.json HTTP/1.1\r\n{host}\r\n"), "404"),
        (format!("GET / HTTP/1.1\r\n{host}A: {long}\r\n"), "431"),
        ("\r\n\r\n".to_owned(), "421"),
    ] {
        let answer = ask(address, &request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    run.kill().unwrap();
    run.wait().unwrap();
}

#[test]
fn a_folder_that_is_no_run_is_refused_by_what_it_is() {
    let place = Place::new();
    let sets = ["--set", "federation.rounds=1", "--quiet"];
    for run in ["quick/public", "quick/fedavg", "compared/fedavg/seed-3", "runs/a"] {
        place.succeed(&[&["run", "tiny.toml", "--out", run], &sets[..]].concat());
    }
    let refused = |folder: &str, why: &str| {
        let output = place.fedra(&["report", folder]);
        assert_eq!(output.status.code(), Some(2), "{folder}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(why), "{folder}: {said}");
    };
    refused("quick", "; name the folder of one of them");
    refused("compared", "the comparison in compared is not complete");
    refused("compared", "hint: the same fedra compare command resumes it");
    refused("compared/fedavg", "compared/fedavg contains 1 run; name the folder of one of them");
    refused("nowhere", "there is no folder nowhere");
    // What is no plain file is not waited for.
    let log = place.path("runs/a/rounds.jsonl");
    fs::remove_file(&log).unwrap();
    let made = Command::new("mkfifo").arg(&log).status();
    assert!(made.is_ok_and(|status| status.success()), "needs the program mkfifo");
    refused("runs/a", "rounds.jsonl: found no plain file, expected one");
    let output = place.fedra(&["run", "--resume", "runs/a"]);
    assert_ne!(output.status.code(), None);
    // An experiment that somebody damaged is named as such.
    fs::write(place.path("quick/fedavg/experiment.toml"), "seed = = 1").unwrap();
    let output = place.fedra(&[&["run", "tiny.toml", "--out", "quick/fedavg"], &sets[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("found experiment.toml in quick/fedavg with TOML that cannot be read"),
        "{said}"
    );
}
