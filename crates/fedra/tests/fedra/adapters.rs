//! Adapters of every kind under every method: what learns travels, what is saved answers as it was scored.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use fedra::apply::evaluate::EvaluationData;
use fedra::apply::trained_model::WhichRound;
use fedra::{Experiment, ModelChoice, Output, Overrides, Silent, Summary};
use serde_json::{Value, json};

use crate::encoder_place;

const ROWS: usize = 48;

/// The kinds, and what `model.lora` says of them.
const KINDS: [(&str, &str); 3] =
    [("lora", ""), ("rslora", ", rslora = true"), ("dora", ", dora = true")];

/// What is set beside.
const SETTINGS: [(&str, &[&str]); 8] = [
    ("FedAvg", &[]),
    ("SAFL", &["method={ name = 'safl', k = 1 }"]),
    ("FedFrozen", &["method={ name = 'fedfrozen', warmup = 1 }"]),
    ("private", &["privacy={ epsilon = 8.0, delta = 1e-3 }"]),
    ("cut", &["split={ first = 1, last = 1, mode = 'replicated' }"]),
    ("in turn", &["split={ first = 1, last = 1 }"]),
    ("int4", &["model.weights='int4'"]),
    ("kept", &["method.name=fedper"]),
];

fn place(rows: usize) -> tempfile::TempDir {
    encoder_place::with_rows(rows, &["east", "north", "west"])
}

fn experiment(place: &Path, lora: &str, sets: &[&str]) -> Experiment {
    let (rows, base) = (place.join("rows.jsonl"), place.join("base"));
    let text = format!(
        "seed = 5\n[data]\ntask = 'classes'\nsource = 'jsonl'\npath = '{}'\n\
         labels = ['heart', 'lung', 'skin']\nmax_tokens = 16\n\
         shares = {{ central = 0.25, validation = 0.0, test = 0.0 }}\n[model]\npath = '{}'\n\
         lora = {{ rank = 4, target_modules = ['query', 'value', 'intermediate.dense']{lora} }}\n\
         [federation]\nrounds = 3\n[work]\nbatch = 8\nmax_steps = 2\n\
         optimiser = {{ name = 'adamw', rate = 0.01 }}\n",
        rows.display(),
        base.display(),
    );
    let sets = sets.iter().fold(Overrides::default(), |sets, set| sets.set(set));
    Experiment::from_toml(&text, &sets).unwrap_or_else(|error| panic!("{lora} {error}"))
}

fn run(place: &Path, name: &str, experiment: &Experiment) -> (PathBuf, Summary) {
    let folder = place.join(name);
    let ending = fedra::run(experiment, &Output::new(&folder), &Silent)
        .unwrap_or_else(|error| panic!("{name}: {}", error.in_words()));
    (folder, ending.complete().unwrap())
}

fn adapter(run: &Path) -> Vec<u8> {
    fs::read(run.join("adapter/adapter_model.safetensors")).unwrap()
}

#[test]
fn every_kind_works_under_every_method_and_answers_as_it_was_scored() {
    let place = place(ROWS);
    for (kind, lora) in KINDS {
        let mut fedavg = None;
        for (setting, sets) in SETTINGS {
            let name = format!("{kind}, {setting}");
            let experiment = experiment(place.path(), lora, sets);
            let (folder, summary) = run(place.path(), &name, &experiment);
            let config = fs::read(folder.join("adapter/adapter_config.json")).unwrap();
            let config: Value = serde_json::from_slice(&config).unwrap();
            assert_eq!(config["use_dora"], json!(kind == "dora"), "{name}");
            assert_eq!(config["lora_alpha"], json!(if kind == "rslora" { 32 } else { 16 }));
            assert!(summary.bytes.up.0 > 0, "{name}");
            match setting {
                "FedAvg" => fedavg = Some((adapter(&folder), summary.bytes.up)),
                // A server copy for each client, averaged like adapters, is what FedAvg does.
                "cut" => {
                    let (adapters, _) = fedavg.as_ref().unwrap();
                    assert!(adapter(&folder) == *adapters, "{name}");
                }
                "SAFL" | "FedFrozen" => {
                    let (adapters, up) = fedavg.as_ref().unwrap();
                    assert!(summary.bytes.up < *up && adapter(&folder) != *adapters, "{name}");
                }
                "private" => {
                    let spent = summary.privacy.as_ref().unwrap().epsilon.unwrap();
                    assert!(spent > 0.0 && spent <= 8.0, "{name}: epsilon {spent}");
                }
                _ => {}
            }
            if setting == "kept" {
                continue;
            }
            let choice = |path: PathBuf| ModelChoice {
                path,
                round: WhichRound::Last,
                base: None,
                weights: None,
            };
            let data = EvaluationData::Experiment(Box::new(experiment));
            let folders = [folder.join("adapter"), folder.join("model")];
            let merged = folders[1].is_dir();
            assert_eq!(merged, setting != "int4", "{name}");
            for path in folders.into_iter().filter(|path| path.is_dir()) {
                let report = fedra::evaluate(&choice(path), &data, None, &Silent).unwrap();
                let found = report.sets["central_test"].scores["loss"];
                let expected = summary.scores["central_test"]["loss"];
                assert!((found - expected).abs() < 1e-5, "{name}: {found} and {expected}");
            }
        }
    }
}

#[test]
fn an_adapter_with_magnitudes_is_gone_on_with_and_no_other_is_taken_for_it() {
    let place = place(ROWS);
    let (folder, _) = run(place.path(), "first", &experiment(place.path(), ", dora = true", &[]));
    let from = format!("model.adapter='{}'", folder.join("adapter").display());
    let next = experiment(place.path(), ", dora = true", &[&from]);
    let (next, _) = run(place.path(), "next", &next);
    assert!(adapter(&next) != adapter(&folder));
    let sets = Overrides::default().set(&from).set("model.lora={ rank = 4 }");
    let text = fs::read_to_string(folder.join("experiment.toml")).unwrap();
    let refused = Experiment::from_toml(&text, &sets).err().unwrap().to_string();
    assert!(refused.contains("dora = true"), "{refused}");
}

#[test]
fn ranks_of_clients_learn_under_every_method_that_takes_them() {
    let place = place(ROWS);
    let ranks = "federation.ranks={ east = 1, west = 2 }";
    let own = "federation.ranks={ default = 4, east = 4 }";
    for (kind, lora) in KINDS {
        let lora = format!("{lora}, mean = 'exact'");
        let plain =
            run(place.path(), &format!("{kind} exact"), &experiment(place.path(), &lora, &[]));
        // The model's own rank is no exception.
        let same = experiment(place.path(), &lora, &[own]);
        let (same, _) = run(place.path(), &format!("{kind} same"), &same);
        assert!(adapter(&same) == adapter(&plain.0), "{kind}");
        for (setting, sets) in SETTINGS {
            let name = format!("{kind} of ranks, {setting}");
            if ["cut", "in turn", "kept"].contains(&setting) {
                let sets = sets
                    .iter()
                    .chain([&ranks])
                    .fold(Overrides::default(), |sets, set| sets.set(set));
                let text = fs::read_to_string(plain.0.join("experiment.toml")).unwrap();
                let refused = Experiment::from_toml(&text, &sets).err().unwrap().to_string();
                assert!(refused.contains("federation.ranks"), "{name}: {refused}");
                continue;
            }
            let experiment = experiment(place.path(), &lora, &[sets, &[ranks]].concat());
            let (folder, summary) = run(place.path(), &name, &experiment);
            assert!(adapter(&folder) != adapter(&plain.0), "{name}");
            assert!(summary.bytes.up < plain.1.bytes.up, "{name}");
            assert!(summary.scores["central_test"]["loss"].is_finite(), "{name}");
        }
    }
}

/// What a private run tells beside its noised numbers does not depend on ranks, which are public.
#[test]
fn ranks_change_neither_what_a_ledger_counts_nor_what_a_row_more_does() {
    let privacy = "privacy={ epsilon = 8.0, delta = 1e-3, noise = 1.0, rows = 8 }";
    let ranks = "federation.ranks={ east = 1 }";
    let spent = |rows: usize, sets: &[&str]| {
        let place = place(rows);
        let sets = [sets, &[privacy, "work.max_steps=100", "wire.encoding=f32"]].concat();
        let experiment = experiment(place.path(), ", mean = 'exact'", &sets);
        let (folder, summary) = run(place.path(), "private", &experiment);
        let ledger = fs::read_to_string(folder.join("ledger.jsonl")).unwrap();
        (summary.privacy.unwrap().epsilon.unwrap(), summary.bytes, ledger.lines().count())
    };
    let (plain, narrow, more) =
        (spent(ROWS, &[]), spent(ROWS, &[ranks]), spent(ROWS + 1, &[ranks]));
    assert_eq!((plain.0, plain.2), (narrow.0, narrow.2));
    assert!(narrow.1.up < plain.1.up);
    assert_eq!(narrow, more);
}
