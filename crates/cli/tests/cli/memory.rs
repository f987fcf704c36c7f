//! The memory that `fedra plan` tells, held to what runs of the same experiment took.
//!
//! Only where the system tells the memory of a process: on Linux.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::place::{Place, shared, text};

/// Runs the plan and the run of an experiment, and holds the plan to the error that it states.
#[track_caller]
fn check(place: &Place, experiment: &str, sets: &[&str]) {
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
    let folder = |name: &str| {
        let shared = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared"));
        shared.join(name)
    };
    let fedra = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
        command.current_dir(place.folder.path()).args(arguments).args(&sets);
        command.env("FEDRA_DATA", folder("data")).env("FEDRA_MODELS", folder("models"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let plan = fedra(&["plan", experiment]);
    let line = plan.lines().find(|line| line.starts_with("run memory")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let unit = match words[4] {
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        other => panic!("{other}"),
    };
    let told = words[3].parse::<f64>().unwrap() * unit;
    let (_, error) = line.rsplit_once("within ").unwrap();
    let error = error.trim_end_matches(" %").parse::<f64>().unwrap() / 100.0;
    fedra(&["run", experiment, "--quiet", "--out", "out", "--force"]);
    let took = place.summary("out")["peak_rss_bytes"].as_f64().unwrap();
    let near = (took / told - 1.0).abs() <= error;
    assert!(near, "{sets:?}: told {told}, took {took}, within {error}\n{plan}");
}

#[test]
fn the_smallest_run_is_mostly_the_program() {
    check(&Place::new(), "tiny.toml", &[]);
}

#[test]
fn every_kind_of_method_takes_what_the_plan_tells() {
    let place = Place::new();
    let clinic = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/clinic-concepts.toml");
    for sets in [
        &[][..],
        &["threads=1"],
        &["method.name=centralised"],
        &["method.name=safl", "method.k=1"],
        &["method.name=scaffold", "work.optimiser={ name = \"sgd\", rate = 0.1 }"],
        &["model.lora={ rank = 4, roles = [\"query\", \"value\"] }"],
        &["model.width=192"],
    ] {
        let few = ["federation.rounds=2", "data.clinic.notes=120"];
        let sets: Vec<&str> = few.iter().chain(sets).copied().collect();
        check(&place, clinic, &sets);
    }
}

/// Short rows of three labels, three for each client, and an experiment over them.
fn many_clients(place: &Place, clients: usize, width: usize) {
    let mut rows = String::new();
    for row in 0..3 * clients {
        let label = ["heart", "lung", "skin"][row % 3];
        let (word, client) = (["pain", "cough", "rash"][row % 7 % 3], row / 3);
        writeln!(
            rows,
            "{{\"text\": \"{word} for {row} days\", \"label\": \"{label}\", \"client\": \"c{client}\"}}"
        )
        .unwrap();
    }
    std::fs::write(place.path("rows.jsonl"), rows).unwrap();
    let experiment = format!(
        "[data]\nsource = 'jsonl'\ntask = 'classes'\npath = 'rows.jsonl'\n\
         shares = {{ central = 0.0, validation = 0.0, test = 0.3 }}\nmax_tokens = 16\n\
         [model]\npreset = 'tiny-encoder'\nblocks = 2\nwidth = {width}\nheads = 2\n\
         vocabulary = 200\n[federation]\nrounds = 2\n"
    );
    std::fs::write(place.path("many.toml"), experiment).unwrap();
}

#[test]
fn thousands_of_clients_are_counted() {
    let place = Place::new();
    many_clients(&place, 2000, 16);
    check(&place, "many.toml", &[]);
}

#[test]
fn what_many_clients_keep_is_there_once_round_after_round() {
    let place = Place::new();
    many_clients(&place, 100, 64);
    for method in ["method.name=local-only", "method.name=scaffold"] {
        check(&place, "many.toml", &[method, "federation.rounds=4"]);
    }
}

/// Holds one round of a pretrained model on a real set to its plan.
#[track_caller]
fn check_pretrained(sets: &[&str]) {
    for needed in ["models/minilm-l6", "data/mtsamples"] {
        shared(needed);
    }
    let real = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/mtsamples-sections.toml");
    let few = ["data.max_examples=24", "data.max_test=20", "data.max_tokens=48", "work.batch=8"];
    let round = ["federation.rounds=1", "federation.sample={ uniform = 4 }"];
    check(&Place::new(), real, &[&few[..], &round, sets].concat());
}

const ADAPTERS: &str = "model.lora={ rank = 4, roles = [\"query\", \"value\"] }";

#[test]
#[ignore = "needs ../shared/data/mtsamples and ../shared/models/minilm-l6: tools/test-shared"]
fn a_pretrained_model_on_a_real_set_takes_what_the_plan_tells() {
    check_pretrained(&[]);
}

#[test]
#[ignore = "needs ../shared/data/mtsamples and ../shared/models/minilm-l6: tools/test-shared"]
fn so_do_its_adapters_where_the_server_sends_the_start() {
    check_pretrained(&[ADAPTERS, "federation.start=sent"]);
}

#[test]
#[ignore = "needs ../shared/data/mtsamples and ../shared/models/minilm-l6: tools/test-shared"]
fn so_do_its_adapters_where_everybody_has_the_start() {
    check_pretrained(&[ADAPTERS, "federation.start=shared"]);
}
