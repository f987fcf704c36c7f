//! A client made from its own rows alone is that client of the whole federation.

use std::fmt::Write as _;
use std::path::Path;

use fedra::client::to_values;
use fedra::data::{Tokenizer, Work};
use fedra::engine::ClientId;
use fedra::prepare::partitioned_data::PartitionedData;
use fedra::prepare::prepared::Prepared;
use fedra::{Experiment, Overrides};

const CLIENTS: [&str; 3] = ["east", "north", "west"];

/// Each client lacks a label that the others have.
fn rows(client: usize) -> String {
    let (name, labels) = (CLIENTS[client], ["heart", "lung", "skin"]);
    let mut rows = String::new();
    for row in 0..20 {
        let label = labels[(client + row % 2) % 3];
        // Some rows are the same, and none says whose it is but by its column.
        let text = format!("notes {label} for {} days", row / 4);
        writeln!(rows, "{{\"text\": {text:?}, \"label\": {label:?}, \"client\": {name:?}}}")
            .expect("a small file is written");
    }
    rows
}

fn experiment(folder: &Path, file: &str, more: &[&str]) -> fedra::Result<Experiment> {
    let text = format!(
        "[data]\nsource = 'jsonl'\ntask = 'classes'\npath = '{}'\n\
         labels = ['skin', 'heart', 'lung']\nmax_tokens = 16\n\
         shares = {{ central = 0.0, validation = 0.2, test = 0.2 }}\n\
         [model]\ntokenizer = '{}'\nblocks = 1\nwidth = 16\nheads = 2\n\
         [federation]\nrounds = 1\n",
        folder.join(file).display(),
        folder.join("tokenizer.json").display()
    );
    let sets = more.iter().fold(Overrides::default(), |sets, set| sets.set(set));
    Experiment::from_toml(&text, &sets)
}

fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a small file is written");
    let all: Vec<String> = (0..3).map(rows).collect();
    for (name, rows) in CLIENTS.iter().zip(&all) {
        std::fs::write(place.path().join(format!("{name}.jsonl")), rows)
            .expect("a small file is written");
    }
    std::fs::write(place.path().join("all.jsonl"), all.concat()).expect("a small file is written");
    let tokenizer = Tokenizer::grow(["notes for days heart lung skin 1 2 3"], 100)
        .expect("a small file is written");
    std::fs::write(place.path().join("tokenizer.json"), tokenizer.json())
        .expect("a small file is written");
    place
}

#[test]
fn a_client_made_from_its_own_rows_is_the_one_of_the_whole_federation() {
    let place = place();
    let device = fedra::compute::Device::cpu();
    for sets in [&[][..], &["data.sample=0.7"], &["data.max_examples=6", "data.max_test=2"]] {
        let all = experiment(place.path(), "all.jsonl", sets).unwrap();
        let whole = Prepared::of(
            &all,
            PartitionedData::of(&all).unwrap(),
            (&device, None),
            &Work::default(),
        )
        .unwrap();
        for (number, name) in (0..).zip(CLIENTS) {
            let own = experiment(place.path(), &format!("{name}.jsonl"), sets).unwrap();
            let client = fedra::site(&own, name, ClientId(number)).unwrap();
            let (there, here) = (&whole.shards.clients[number as usize], &client.shard);
            assert_eq!(client.info.name, there.name);
            assert_eq!(here.train, there.train);
            assert_eq!(here.validation, there.validation);
            assert_eq!(here.test, there.test);
            assert!(!here.train.is_empty() && !here.test.is_empty(), "{sets:?}: {name}");
            assert!(to_values(&client.shared) == to_values(&whole.params));
        }
    }
}

#[test]
fn what_one_site_cannot_know_is_refused() {
    let place = place();
    let refused = |sets: &[&str], file: &str| {
        let experiment = experiment(place.path(), file, sets);
        experiment.and_then(|own| fedra::site(&own, "east", ClientId(0))).err().unwrap().in_words()
    };
    let text = std::fs::read_to_string(place.path().join("east.jsonl")).unwrap();
    let none = refused(&["data.shares.central=0.1"], "east.jsonl");
    assert!(none.contains("data.shares.central: found 0.1, expected 0 at a client"), "{none}");
    let dealt = refused(&["data.partition.by=iid", "federation.clients=2"], "east.jsonl");
    assert!(dealt.contains("data.partition.by"), "{dealt}");
    let merged = refused(&["data.partition.min_examples=3"], "east.jsonl");
    assert!(
        merged.contains("data.partition.min_examples: found 3, expected no such key"),
        "{merged}"
    );
    let absent = refused(&["data.partition.leave_out=['west']"], "east.jsonl");
    assert!(
        absent.contains("data.partition.leave_out: found \"west\", expected no such key"),
        "{absent}"
    );
    let other = refused(&[], "north.jsonl");
    assert!(other.contains("client: found \"east\", expected one of north"), "{other}");
    let bone = text.replace("skin", "bone").replace("heart", "bone");
    std::fs::write(place.path().join("bone.jsonl"), bone).unwrap();
    let label = refused(&[], "bone.jsonl");
    assert!(label.contains("bone.jsonl:1: found the label \"bone\""), "{label}");

    let bare = "[data]\nsource = 'jsonl'\ntask = 'classes'\npath = 'PATH'\n\
                shares = { central = 0.0, validation = 0.2, test = 0.2 }\n[federation]\nrounds = 1\n";
    let bare = bare.replace("PATH", &place.path().join("east.jsonl").display().to_string());
    let asked = |sets: &Overrides| {
        let experiment = Experiment::from_toml(&bare, sets).unwrap();
        fedra::site(&experiment, "east", ClientId(0)).err().unwrap().in_words()
    };
    let labels = asked(&Overrides::default());
    assert!(
        labels.contains("data.labels is missing, expected the names of all labels"),
        "{labels}"
    );
    let vocabulary =
        asked(&Overrides::default().set("data.labels=[\"skin\", \"heart\", \"lung\"]"));
    assert!(
        vocabulary.contains("model.tokenizer is missing, expected a tokenizer"),
        "{vocabulary}"
    );
}

#[test]
fn rows_of_a_program_declare_their_labels_themselves() {
    let place = place();
    let mut rows = fedra::data::TableBuilder::new(fedra::data::Task::Classes)
        .with_labels(["skin", "heart", "lung"].map(str::to_owned));
    for row in 0..20 {
        let text = format!("notes heart for {row} days");
        rows.push(fedra::data::Row::text(text).with_labels(["heart"]).with_client("east")).unwrap();
    }
    let mut raw = experiment(place.path(), "east.jsonl", &[]).unwrap().raw;
    (raw.data.labels, raw.data.path) = (None, None);
    let own = Experiment::of_rows(raw, rows.finish()).unwrap();
    let client = fedra::site(&own, "east", ClientId(0)).unwrap();
    // The same texts, labels and client as if a file had brought them, about six of ten to train on.
    let train = PartitionedData::of(&own).unwrap().division.clients[0].train.len() as u64;
    assert_eq!(client.info.examples, train);
    assert!((7..=17).contains(&train), "{train}");
}

/// What stands beside a tokenizer's main file is a part of it.
#[test]
fn a_declared_tokenizer_is_saved_whole_and_a_change_of_it_is_seen() {
    let place = place();
    let config = place.path().join("tokenizer_config.json");
    let text = r#"{"tokenizer_class": "BertTokenizer", "truncation_side": "left"}"#;
    std::fs::write(&config, text).unwrap();
    let all = experiment(place.path(), "all.jsonl", &[]).unwrap();
    let inputs = || fedra::prepare::fingerprint::Fingerprints::default().of(&all).unwrap();
    let before = inputs();
    let folder = place.path().join("run");
    fedra::run(&all, &fedra::Output::new(&folder), &fedra::Silent).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        let read = |path: &Path| std::fs::read_to_string(path.join(name)).unwrap();
        let (saved, declared) = (read(&folder.join("model")), read(place.path()));
        if name == "tokenizer.json" {
            assert_eq!(saved, declared);
        } else {
            assert!(saved.contains("truncation_side"), "{saved}");
        }
    }
    std::fs::write(&config, text.replace("left", "right")).unwrap();
    let changed: Vec<&str> = before.changes(&inputs()).iter().map(|change| change.what).collect();
    assert_eq!(changed, ["tokenizer"]);
    let refused = experiment(place.path(), "all.jsonl", &["model.tokenizer=/dev/null"]);
    let refused = refused.unwrap_err().in_words();
    assert!(refused.contains("expected a folder with a tokenizer.json"), "{refused}");
}
