//! A cut model over processes: the same bits as in one, killed servers included, and text whose middle
//! blocks are at a server.

use crate::place::{Place, TINY, published, wait};

const MODES: [&str; 3] = [
    "{ first = 0, last = 1 }",
    "{ first = 0, last = 1, mode = 'sequential' }",
    "{ first = 0, last = 0, mode = 'batched', encoding = 'bf16' }",
];

#[test]
fn a_cut_over_processes_comes_to_the_bits_of_one_process_and_tells_what_each_side_held() {
    for mode in MODES {
        let place = Place::new();
        let set = format!("split={mode}");
        let flags = [TINY, "--set", &set, "--set", "threads=1"];
        place.run("run --out near --quiet", &flags);
        let (server, address) = place.serve("far", &flags);
        let sites = place.join_all(&address, &flags);
        server.succeed();
        for site in sites {
            site.succeed();
        }
        assert!(place.model("near") == place.model("far"), "{mode}");
        assert_eq!(place.log("near"), place.log("far"), "{mode}");
        let text = std::fs::read_to_string(place.path("far").join("rounds.jsonl")).unwrap();
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert!(first["memory"]["client"].as_u64().unwrap() > 0, "{first}");
        assert!(first["memory"]["server"].as_u64().unwrap() > 0, "{first}");
        assert!(first["bytes"]["crossing"]["hidden_up"].as_u64().unwrap() > 0, "{first}");
    }
}

#[test]
fn a_server_that_is_killed_in_a_cut_round_goes_on_to_the_same_bits() {
    let place = Place::new();
    let flags = [
        TINY,
        "--set",
        "split={ first = 0, last = 1 }",
        "--set",
        "federation.rounds=12",
        "--set",
        "threads=1",
    ];
    let (server, address) = place.serve("far", &flags);
    let sites = place.join_all(&address, &flags);
    place.wait_for_rounds("far", 3);
    server.kill();
    let server = place.start(&format!("serve --listen {address} --out far"), &flags);
    server.succeed();
    for site in sites {
        site.succeed();
    }
    place.run("run --out near --quiet", &flags);
    assert!(place.model("near") == place.model("far"));
}

#[test]
fn a_site_that_is_killed_in_a_cut_round_begins_it_again_to_the_same_bits() {
    for mode in &MODES[..2] {
        let place = Place::new();
        let set = format!("split={mode}");
        let flags = [TINY, "--set", &set, "--set", "federation.rounds=30", "--set", "threads=1"];
        let (server, address) = place.serve("far", &flags);
        let mut sites = place.join_all(&address, &flags);
        for rounds in [2, 9, 16] {
            place.wait_for_rounds("far", rounds);
            sites.remove(1).kill();
            sites.insert(1, place.join(2, &address, &flags));
            server.wait_for("hospital-2 left");
        }
        server.succeed();
        for site in sites {
            site.succeed();
        }
        place.run("run --out near --quiet", &flags);
        assert!(place.model("near") == place.model("far"), "{mode}");
    }
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn text_is_the_same_with_its_middle_blocks_at_a_server() {
    let (place, model) = (Place::new(), published("stories260k"));
    let prompt =
        ["--model", &model, "--prompt", "Once upon a time", "--max-tokens", "24", "--json"];
    let whole = place.output("generate", &prompt);
    assert!(whole.status.success());
    let line = format!("serve --model {model} --first 1 --last 2 --listen 127.0.0.1:0");
    let server = place.start(&line, &[]);
    let said = server.wait_for(" at 127");
    let (_, rest) = said.split_once(" at ").unwrap();
    let address = rest.split_whitespace().next().unwrap();
    let far = place.output(&format!("generate --server {address} --first 1 --last 2"), &prompt);
    let tokens = |output: &std::process::Output| {
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["tokens"].clone()
    };
    assert_eq!(tokens(&whole), tokens(&far));
    let wrong = place.refusal(&format!("generate --server {address} --first 2 --last 2"), &prompt);
    assert!(wrong.contains("found blocks 2..3, expected blocks 1..3 at the server"), "{wrong}");
    server.interrupt();
    server.succeed();
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn a_server_that_is_killed_in_mid_generation_changes_no_word() {
    let (place, model) = (Place::new(), published("stories260k"));
    let prompt = ["--model", &model, "--prompt", "Once upon a time", "--max-tokens", "400"];
    let whole = place.output("generate", &prompt);
    assert!(whole.status.success());
    let serve = |address: &str| {
        let line = format!("serve --model {model} --first 1 --last 2 --listen {address}");
        let server = place.start(&line, &[]);
        let said = server.wait_for(" at 127");
        let (_, rest) = said.split_once(" at ").unwrap();
        (server, rest.split_whitespace().next().unwrap().to_owned())
    };
    let (server, address) = serve("127.0.0.1:0");
    let text = place.path("text");
    let line = format!("generate --server {address} --first 1 --last 2");
    let writer = place.start_into(std::fs::File::create(&text).unwrap(), &line, &prompt);
    wait("the first words", || std::fs::metadata(&text).is_ok_and(|file| file.len() > 100));
    server.kill();
    let written = std::fs::read(&text).unwrap();
    assert!(written.len() < whole.stdout.len(), "it was in the middle");
    writer.wait_for("trying again in");
    let (server, _) = serve(&address);
    writer.succeed();
    assert_eq!(std::fs::read(&text).unwrap(), whole.stdout);

    let left = place.path("left");
    let writer = place.start_into(std::fs::File::create(&left).unwrap(), &line, &prompt);
    wait("the first words", || std::fs::metadata(&left).is_ok_and(|file| file.len() > 100));
    server.kill();
    writer.wait_for("trying again in");
    writer.interrupt();
    // One Ctrl-C ends it: nobody starts the server again, and nothing else would.
    let (status, told) = writer.end();
    assert!(status != Some(0) && told.contains("ended by Ctrl-C"), "{told}");
}
