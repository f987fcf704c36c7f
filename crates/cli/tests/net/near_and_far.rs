//! `fedra run` and `fedra serve` with `fedra join` come to the same bits.

use std::fmt::Write as _;

use crate::place::{Place, TINY};

/// Methods that keep nothing, measure blocks, forget and keep corrections.
const METHODS: [&str; 4] = [
    "{ name = 'fedavg' }",
    "{ name = 'safl', k = 1 }",
    "{ name = 'fedfrozen', warmup = 1 }",
    "{ name = 'scaffold' }",
];

#[test]
fn processes_on_loopback_come_to_the_bits_of_one_process() {
    for method in METHODS {
        let place = Place::new();
        let set = format!("method={method}");
        let flags = [TINY, "--set", &set, "--set", "evaluate.attention=true", "--set", "threads=1"];
        place.run("run --out near --quiet", &flags);
        let (server, address) = place.serve("far", &flags);
        let sites = place.join_all(&address, &flags);
        server.succeed();
        for site in sites {
            site.succeed();
        }
        assert!(place.model("near") == place.model("far"), "{method}");
        assert_eq!(place.log("near"), place.log("far"), "{method}");
    }
}

/// A client of a lower rank that is killed comes back with adapters of its rank, whoever took part since.
#[test]
fn adapters_of_other_ranks_come_to_the_bits_of_one_process() {
    let place = Place::new();
    let flags = [
        TINY,
        "--set",
        "model.lora={ rank = 4, mean = 'exact', dora = true }",
        "--set",
        "federation.ranks={ 'hospital-2' = 1, 'hospital-3' = 2 }",
        "--set",
        "federation.sample={ uniform = 2 }",
        "--set",
        "federation.rounds=12",
        "--set",
        "threads=1",
    ];
    place.run("run --out near --quiet", &flags);
    let (server, address) = place.serve("far", &flags);
    let mut sites = place.join_all(&address, &flags);
    place.wait_for_rounds("far", 3);
    sites.remove(1).kill();
    sites.insert(1, place.join(2, &address, &flags));
    server.succeed();
    for site in sites {
        site.succeed();
    }
    assert!(place.model("near") == place.model("far"));
    assert_eq!(place.log("near"), place.log("far"));
}

#[test]
fn blocks_measured_across_a_cut_are_those_of_one_process() {
    for method in
        ["{ name = 'safl', k = 1 }", "{ name = 'safl', k = 1, selector = 'gradient_norm' }"]
    {
        let place = Place::new();
        let set = format!("method={method}");
        let split = "split={ first = 0, last = 1 }";
        let flags = [TINY, "--set", &set, "--set", split, "--set", "threads=1"];
        place.run("run --out near --quiet", &flags);
        let (server, address) = place.serve("far", &flags);
        let sites = place.join_all(&address, &flags);
        server.succeed();
        for site in sites {
            site.succeed();
        }
        assert!(place.model("near") == place.model("far"), "{method}");
        assert_eq!(place.log("near"), place.log("far"), "{method}");
    }
}

/// Each client has rows of its own in a file of its own, and the server has the central test set.
#[test]
fn a_server_without_rows_comes_to_the_bits_of_a_run_with_all_of_them() {
    let place = Place::new();
    let clients = ["west", "north"];
    let mut all = String::new();
    for client in clients {
        let mut rows = String::new();
        for row in 0..20 {
            let label = ["heart", "lung"][row % 2];
            let text = format!("{client} notes {label} on day {row}");
            writeln!(rows, "{{\"text\": {text:?}, \"label\": {label:?}, \"client\": {client:?}}}")
                .unwrap();
        }
        std::fs::write(place.path(&format!("{client}.jsonl")), &rows).unwrap();
        all.push_str(&rows);
    }
    std::fs::write(place.path("all.jsonl"), all).unwrap();
    let mut test = String::new();
    for label in ["heart", "lung", "heart", "lung"] {
        writeln!(test, "{{\"text\": {label:?}, \"label\": {label:?}, \"client\": \"west\"}}")
            .unwrap();
    }
    std::fs::write(place.path("test.jsonl"), test).unwrap();
    // A tokenizer that all have: that of a model made from the synthetic clinic.
    place.run("run --out first --quiet --set federation.rounds=1", &[TINY]);
    std::fs::write(
        place.path("study.toml"),
        "[data]\nsource = 'jsonl'\ntask = 'classes'\ntrain = 'all.jsonl'\ntest = 'test.jsonl'\n\
         labels = ['lung', 'heart']\nmax_tokens = 16\n\
         [model]\ntokenizer = 'first/model'\nblocks = 1\nwidth = 16\nheads = 2\n\
         [federation]\nrounds = 2\nnames = ['west', 'north']\n",
    )
    .unwrap();
    place.run("run study.toml --out near --quiet", &[]);
    // The order of names is that of numbers; without names it is alphabetical.
    let named = std::fs::read_to_string(place.path("study.toml")).unwrap();
    let names = "names = ['west', 'north']\n";
    std::fs::write(place.path("unnamed.toml"), named.replace(names, "")).unwrap();
    std::fs::write(place.path("sorted.toml"), named.replace(names, "names = ['north', 'west']\n"))
        .unwrap();
    place.run("run unnamed.toml --out unnamed --quiet", &[]);
    place.run("run sorted.toml --out sorted --quiet", &[]);
    assert!(place.model("unnamed") == place.model("sorted"));
    assert!(place.model("unnamed") != place.model("near"));
    for file in ["all.jsonl", "near/experiment.toml"] {
        std::fs::rename(place.path(file), place.path("hidden")).unwrap();
    }
    let (server, address) = place.serve("far", &["study.toml"]);
    std::fs::rename(place.path("test.jsonl"), place.path("elsewhere")).unwrap();
    let join = |client: &str| {
        let line = format!(
            "join study.toml --server {address} --client {client} --state s-{client} \
             --set data.train={client}.jsonl"
        );
        place.start(&line, &[])
    };
    let sites = clients.map(join);
    server.succeed();
    sites.into_iter().for_each(crate::place::Process::succeed);
    assert!(place.model("near") == place.model("far"));
    assert_eq!(place.log("near"), place.log("far"));
    let told = place.refusal(
        &format!("join study.toml --server {address} --client south --set data.train=west.jsonl"),
        &[],
    );
    assert!(told.contains("expected one of west, north"), "{told}");
}
