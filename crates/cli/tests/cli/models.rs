//! Model folders: a trained head is found by the names of its classes, and whatever is reinitialised,
//! ignored or never trained is said.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fedra_compute::{Device, Seed};
use fedra_model::hf::{Checkpoint, Config, HeadFit, Precision, Weights};
use fedra_model::{Classifier, Head, Saving, Wanted, load_checkpoint, save};
use serde_json::{Value, json};

use crate::place::{Place, text};

/// Nothing moves: the score after the round is that of the model that was opened.
const STILL: &str = "work.optimiser={ name = \"sgd\", rate = 0.0 }";

/// Rows whose first word says their label.
fn rows(place: &Place, name: &str, labels: &[(&str, &str)]) {
    let mut rows = String::new();
    for row in 0..90 {
        let (word, label) = labels[row % labels.len()];
        let client = ["north", "south"][row / 2 % 2];
        let line =
            json!({ "text": format!("{word} note {}", row % 7), "label": label, "client": client });
        rows.extend([line.to_string().as_str(), "\n"]);
    }
    fs::write(place.path(name), rows).unwrap();
}

const CLASSES: [(&str, &str); 3] = [("fine", "well"), ("cough", "ill"), ("fall", "hurt")];

fn experiment(place: &Place, file: &str, task: &str, model: &str) {
    let experiment = format!(
        "seed = 5\n[data]\nsource = 'jsonl'\ntask = '{task}'\npath = 'rows.jsonl'\nmax_tokens = 12\n\
         shares = {{ central = 0.4, validation = 0.0, test = 0.0 }}\n\
         [model]\n{model}\n[federation]\nrounds = 6\n\
         [work]\nbatch = 8\noptimiser = {{ name = 'adamw', rate = 0.01 }}\n"
    );
    fs::write(place.path(file), experiment).unwrap();
}

/// Trains a small classifier, which `runs/first/model` then holds.
fn trained(place: &Place) {
    rows(place, "rows.jsonl", &CLASSES);
    let preset = "preset = 'tiny-encoder'\nblocks = 1\nwidth = 16\nheads = 2\nvocabulary = 200";
    experiment(place, "first.toml", "classes", preset);
    place.succeed(&["run", "first.toml", "--quiet"]);
    experiment(place, "second.toml", "classes", "path = 'other'");
}

/// The folder `from` as `to`, with the rows of its head in reverse and named accordingly.
fn reverse(from: &Path, to: &Path) {
    let checkpoint = Checkpoint::open(from).unwrap();
    let names = checkpoint.config().labels.as_ref().unwrap().names.clone();
    let rows: Vec<usize> = (0..names.len()).rev().collect();
    let classes = names.len();
    let head = match checkpoint.config().architecture().unwrap().class_name().as_str() {
        "BertForTokenClassification" => Head::Tokens { classes },
        _ => Head::Sequence { classes, pooler: true },
    };
    let labels: Vec<String> = rows.iter().map(|&row| names[row].clone()).collect();
    let wanted = Wanted { head, classifier: Classifier::Rows(rows), adapters: None };
    let loaded = load_checkpoint(&checkpoint, wanted, (&Device::cpu(), Seed(1))).unwrap();
    let saving = Saving {
        precision: Precision::F32,
        labels: Some(labels),
        problem: checkpoint.config().labels.as_ref().unwrap().problem,
        companions: &loaded.companions,
    };
    save(to, &loaded.model, &loaded.params, &saving).unwrap();
}

fn change_config(folder: &Path, change: &Value) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (key, value) in change.as_object().unwrap() {
        config[key] = value.clone();
    }
    fs::write(&path, config.to_string()).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap().path();
        fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

fn labels(folder: &Path) -> Vec<String> {
    Config::open(folder).unwrap().labels.unwrap().names
}

#[test]
fn a_trained_head_answers_the_same_whatever_the_order_of_its_rows() {
    for task in ["concepts", "diagnosis"] {
        let place = Place::new();
        let set = format!("data.task={task}");
        let rate = "work.optimiser.rate=0.02";
        let first = ["run", "tiny.toml", "--quiet", "--out", "first", "--set", &set, "--set", rate];
        place.succeed(&first);
        reverse(&place.path("first/model"), &place.path("reversed"));
        let mut backwards = labels(&place.path("reversed"));
        backwards.reverse();
        assert_eq!(backwards, labels(&place.path("first/model")), "{task}");
        check_still(&place, "tiny.toml", &set, "model={ path = \"first/model\" }");
        check_still(&place, "tiny.toml", &set, "model={ path = \"reversed\" }");
    }
    let place = Place::new();
    trained(&place);
    let first = place.summary("runs/first");
    assert!(first["score"]["value"].as_f64().unwrap() > 0.9, "{first}");
    fs::rename(place.path("runs/first"), place.path("first")).unwrap();
    reverse(&place.path("first/model"), &place.path("reversed"));
    assert_eq!(labels(&place.path("reversed")), ["well", "ill", "hurt"]);
    check_still(&place, "second.toml", "seed=5", "model={ path = \"reversed\" }");
}

/// A round in which nothing moves scores as the last one of `first`, and saves its very model.
#[track_caller]
fn check_still(place: &Place, file: &str, set: &str, model: &str) {
    let sets = ["--set", set, "--set", model, "--set", STILL, "--set", "federation.rounds=1"];
    let run = [&["run", file, "--force", "--out", "again"], &sets[..]].concat();
    let output = place.fedra(&run);
    let said = text(&output.stderr);
    let about_head = ["reinitialised", "ignored", "head"].iter().any(|word| said.contains(word));
    assert!(output.status.success() && !about_head, "{model}: {said}");
    let (first, again) = (place.summary("first"), place.summary("again"));
    assert_eq!(again["score"], first["score"], "{model}");
    assert_eq!(place.weights("again"), place.weights("first"), "{model}");
    assert_eq!(labels(&place.path("again/model")), labels(&place.path("first/model")));
}

#[test]
fn a_head_that_knows_more_labels_than_the_data_is_kept_whole() {
    let place = Place::new();
    trained(&place);
    reverse(&place.path("runs/first/model"), &place.path("other"));
    rows(&place, "rows.jsonl", &CLASSES[..2]);
    let output = place.fedra(&["run", "second.toml", "--set", STILL]);
    let said = text(&output.stderr);
    let note =
        "note: the folder's head has 3 labels, of which the data has 2: all of them are kept\n";
    assert!(output.status.success() && said.contains(note), "{said}");
    assert!(!said.contains("reinitialised"), "{said}");
    assert_eq!(labels(&place.path("runs/second/model")), ["hurt", "ill", "well"]);
    assert!(place.summary("runs/second")["score"]["value"].as_f64().unwrap() > 0.9);
}

#[test]
fn a_head_of_other_labels_is_drawn_anew_and_both_lists_are_said_by_plan_and_run() {
    let place = Place::new();
    trained(&place);
    copy(&place.path("runs/first/model"), &place.path("other"));
    rows(&place, "rows.jsonl", &[("fine", "Well"), ("cough", "ill"), ("fall", "hurt")]);
    let note = "note: reinitialised: classifier.weight, classifier.bias (the labels are Well, hurt, ill; \
                the folder's head answers with hurt, ill, well)\n";
    for command in [&["plan", "second.toml"][..], &["run", "second.toml"]] {
        let output = place.fedra(command);
        let said = text(&output.stderr);
        assert_eq!(said.matches(note).count(), 1, "{command:?}: {said}");
    }
    let quiet = place.fedra(&["run", "second.toml", "--quiet", "--out", "quiet"]);
    assert_eq!(text(&quiet.stderr), "");
    let message = place.fedra(&["plan", "second.toml", "--set", "model.head=trained"]);
    let message = text(&message.stderr);
    let expected = "error: model.head: the head does not answer with the labels of the rows: the labels are \
                    Well, hurt, ill; the folder's head answers with hurt, ill, well (first other label \
                    \"Well\" at ";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("rows.jsonl:1)\n  --> --set model.head=trained"), "{message}");
}

#[test]
fn classes_without_names_are_not_guessed() {
    let place = Place::new();
    trained(&place);
    let other = place.path("other");
    copy(&place.path("runs/first/model"), &other);
    change_config(&other, &json!({ "id2label": null, "label2id": null }));
    let output = place.fedra(&["plan", "second.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "error: model.path: found a trained head whose 3 classes have no names in id2label, expected \
         their names, to find hurt, ill, well by\n  --> second.toml:9:8\n  |\n9 | path = 'other'\n  |        ^^^^^^^\n\
         hint: name them in id2label of its config.json, in the order of the head's rows; \
         model.head = \"fresh\" initialises a new head instead\n"
    );
    let fresh = place.fedra(&["plan", "second.toml", "--set", "model.head=fresh"]);
    let said = text(&fresh.stderr);
    assert!(
        said.contains("reinitialised: classifier.weight, classifier.bias (as requested)"),
        "{said}"
    );
    // Numbers are names for the same numbers: the data's 2 is LABEL_2.
    rows(&place, "rows.jsonl", &[("fine", "2"), ("cough", "1"), ("fall", "0")]);
    let output = place.fedra(&["run", "second.toml", "--set", STILL]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(place.summary("runs/second")["score"]["value"].as_f64().unwrap() > 0.9);
    assert_eq!(labels(&place.path("runs/second/model")), ["0", "1", "2"]);
}

#[test]
fn a_head_that_contradicts_its_labels_is_refused_unless_a_new_one_is_asked_for() {
    let place = Place::new();
    trained(&place);
    let other = place.path("other");
    copy(&place.path("runs/first/model"), &other);
    change_config(&other, &json!({ "id2label": { "0": "ill", "1": "well" }, "label2id": null }));
    let output = place.fedra(&["plan", "second.toml"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("found 3 rows, expected the 2 classes of id2label"), "{said}");
    place.succeed(&["plan", "second.toml", "--set", "model.head=fresh"]);
    let message = place.fedra(&["plan", "first.toml", "--set", "model.head=fresh"]);
    let message = text(&message.stderr);
    assert!(message.contains("model.head applies only with model.path"), "{message}");
}

#[test]
fn a_token_beyond_the_embedding_is_refused_before_anything_trains() {
    let place = Place::new();
    trained(&place);
    let (first, other) = (place.path("runs/first/model"), place.path("other"));
    copy(&first, &other);
    // The tokenizer of a larger text beside the weights of a smaller one.
    let mut tokenizer: Value =
        serde_json::from_slice(&fs::read(first.join("tokenizer.json")).unwrap()).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let size = vocabulary.len();
    let moved = vocabulary.insert("note".into(), json!(size)).unwrap();
    vocabulary.insert("unheard".into(), moved);
    fs::write(other.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    for command in ["plan", "run"] {
        let output = place.fedra(&[command, "second.toml"]);
        let said = text(&output.stderr);
        let found = format!("error: model.path: found token {size} in a row of north, expected");
        assert!(said.starts_with(&found), "{command}: {said}");
        assert!(said.contains(&format!("less than {size}, the rows of the model's embedding")));
        assert!(!place.path("runs/second").exists());
    }
}

#[test]
fn fresh_weights_that_never_learn_are_said() {
    let place = Place::new();
    let said = |command: &str, sets: &[&str]| {
        let mut arguments = vec![command, "tiny.toml"];
        arguments.extend(sets.iter().flat_map(|set| ["--set", set]));
        let output = place.fedra(&arguments);
        assert!(output.status.success(), "{sets:?}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    let safl = ["method.name=safl", "method.k=1"];
    let embeddings = "never learn: the embeddings; they keep their random values; \
                      method.embeddings = \"learn\" lets embeddings learn, or start from a pretrained model";
    for command in ["plan", "run"] {
        let said = said(command, &safl);
        assert_eq!(said.matches(embeddings).count(), 1, "{said}");
    }
    let check = |sets: &[&str], expected: &str| {
        let said = said("plan", sets);
        assert!(said.contains(expected), "{sets:?}: {said}");
    };
    check(
        &[&safl[..], &["method.selector=first"]].concat(),
        "never learn: the embeddings, block.1;",
    );
    check(&["model.lora={ rank = 2 }"], "never learn: the embeddings, all blocks;");
    check(&["method.name=fedfrozen", "method.warmup=0"], "never learn: query, key;");
    for silent in [
        &[][..],
        &["method.name=safl", "method.k=1", "method.embeddings=learn"],
        &["method.name=fedfrozen", "method.warmup=1"],
        &["method.name=fedper"],
        &["method.name=fedbabu"],
    ] {
        assert!(!said("plan", silent).contains("never learn"), "{silent:?}");
    }
}

#[test]
fn every_label_of_a_saved_folder_is_the_row_that_was_trained_for_it() {
    let place = Place::new();
    trained(&place);
    let folder = place.path("runs/first/model");
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let head = checkpoint.trained_head(fedra_model::hf::Answers::Sequences).unwrap();
    let names = labels(&folder);
    assert_eq!(head.fit(&names), HeadFit::Kept(names.clone()));
    let config: Value =
        serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap();
    let back: BTreeMap<String, usize> = serde_json::from_value(config["label2id"].clone()).unwrap();
    for (row, name) in names.iter().enumerate() {
        assert_eq!((back[name], &config["id2label"][row.to_string()]), (row, &json!(name)));
    }
    assert_eq!(Weights::open(&folder).unwrap().info("classifier.weight").unwrap().shape[0], 3);
}

#[test]
#[ignore = "needs FEDRA_PYTHON: tools/test-shared"]
fn transformers_scores_a_folder_as_a_run_does_whatever_the_order_of_its_classes() {
    let python = std::env::var("FEDRA_PYTHON").expect("a Python with transformers");
    let place = Place::new();
    trained(&place);
    reverse(&place.path("runs/first/model"), &place.path("other"));
    // Words that stand for two labels: no head answers all of them.
    rows(
        &place,
        "test.jsonl",
        &[("fine", "ill"), ("cough", "ill"), ("fall", "hurt"), ("fine", "well")],
    );
    let test = ["--set", "data.train=rows.jsonl", "--set", "data.test=test.jsonl"];
    let experiment = fs::read_to_string(place.path("second.toml")).unwrap();
    fs::write(place.path("second.toml"), experiment.replace("path = 'rows.jsonl'\n", "")).unwrap();
    place.succeed(&[&["run", "second.toml", "--set", STILL], &test[..]].concat());
    let ours = place.summary("runs/second")["score"].clone();
    assert_eq!((&ours["name"], &ours["on"]), (&json!("macro_f1"), &json!("central_test")));
    for folder in ["other", "runs/first/model", "runs/second/model"] {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/score_transformers.py");
        let mut command = std::process::Command::new(&python);
        command.arg(script).args([place.path(folder), place.path("test.jsonl")]);
        let output = command.env("HF_HUB_OFFLINE", "1").output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let theirs: f64 = text(&output.stdout).trim().parse().unwrap();
        let ours = ours["value"].as_f64().unwrap();
        assert!(0.5 < ours && ours < 0.95 && (theirs - ours).abs() < 1e-12, "{ours} {theirs}");
    }
}
