//! Records that a program has in memory are rows like those of a file.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use fedra::data::{DataError, Reader, Record, Split, TableBuilder};
use fedra::folder::scratch::ScratchFolder;
use fedra::{Ending, Experiment, Output, Overrides, ParsedExperiment, Silent, Summary};

const TABLES: &str = r#"
    seed = 4
    [data]
    task = "classes"
    columns = { text = "note", label = "ward", client = "hospital" }
    shares = { central = 0.25, validation = 0.0, test = 0.0 }
    max_tokens = 16
    [model]
    preset = "tiny-encoder"
    blocks = 1
    width = 16
    heads = 2
    [federation]
    rounds = 2
    [work]
    batch = 4
"#;

fn lines() -> Vec<String> {
    let parts = [("chest pain", "heart"), ("short breath", "lung"), ("a rash", "skin")];
    let row = |place: usize| {
        let (part, ward) = parts[place % parts.len()];
        let hospital = ["north", "south"][place / 3 % 2];
        format!(
            r#"{{"note": "{part} for {place} days", "ward": "{ward}", "hospital": "{hospital}"}}"#
        )
    };
    (0..36).map(row).collect()
}

fn parsed(more: &str) -> ParsedExperiment {
    let table: toml::Table = format!("{TABLES}{more}").parse().unwrap();
    ParsedExperiment::from_table(table, "wards", &Overrides::default()).unwrap()
}

fn read(reader: &Reader, lines: &[String], builder: &mut TableBuilder) -> fedra::Result<()> {
    let record = |line: &String| Record::parse(line).map_err(|_| DataError::Stopped);
    Ok(reader.read_records(Path::new("rows"), lines.iter().map(record), builder)?)
}

fn run(experiment: &Experiment) -> (Vec<u8>, Summary) {
    let scratch = ScratchFolder::new().unwrap();
    let ending = fedra::run(experiment, &Output::new(scratch.path()), &Silent).unwrap();
    let Ending::Complete(summary) = ending else { panic!("nobody stops it") };
    (fs::read(scratch.path().join("model/model.safetensors")).unwrap(), *summary)
}

#[test]
fn records_in_memory_give_the_bits_of_the_same_rows_in_a_file() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("notes.jsonl");
    let text = lines().iter().fold(String::new(), |mut text, line| {
        writeln!(text, "{line}").unwrap();
        text
    });
    fs::write(&file, text).unwrap();
    let from = format!("source = \"jsonl\"\npath = {:?}\n    task", file.display().to_string());
    let written = TABLES.replacen("task", &from, 1);
    let of_file = run(&Experiment::from_toml(&written, &Overrides::default()).unwrap());
    let of_memory = parsed("").over_records(|reader, builder| read(reader, &lines(), builder));
    let of_memory = run(&of_memory.unwrap());
    assert_eq!(of_memory.0, of_file.0);
    assert_eq!(of_memory.1.scores, of_file.1.scores);
}

#[test]
fn parts_of_the_records_may_have_splits_and_clients_of_their_own() {
    let experiment = parsed("").over_records(|reader, builder| {
        let (train, test) = (lines()[..24].to_vec(), lines()[24..].to_vec());
        let part = |split| Reader { split: Some(split), ..reader.clone() };
        read(&part(Split::Train), &train, builder)?;
        read(&part(Split::Test), &test, builder)
    });
    let (_, summary) = run(&experiment.unwrap());
    assert_eq!((summary.examples, summary.clients), (24, 2));
}

#[test]
fn what_is_wrong_with_a_record_is_said_by_its_place_and_what_with_a_key_by_the_key() {
    let broken = ["{\"note\": \"x\"}".to_owned()];
    let refused = |more: &str, lines: &[String]| {
        let read = parsed(more).over_records(|reader, builder| read(reader, lines, builder));
        read.unwrap_err().in_words()
    };
    let told = refused("", &broken);
    assert!(
        told.starts_with("rows:1: found the columns \"note\", expected column \"ward\""),
        "{told}"
    );
    let told = refused("epochs = 0", &lines());
    assert!(told.starts_with("work.epochs: found 0"), "{told}");
    // What an experiment says of other rows is not looked at.
    let other = TABLES.replacen("task", "source = \"csv\"\npath = \"gone.csv\"\ntask", 1);
    let other = ParsedExperiment::from_table(other.parse().unwrap(), "x", &Overrides::default());
    let other = other.unwrap().over_records(|reader, builder| read(reader, &lines(), builder));
    assert!(other.is_ok());
}
