//! Judgements of two models' answers that somebody else made, out of a file.
//!
//! JSON lines, CSV or TSV with the columns `id` and `winner` (`a`, `b` or `tie`), and, where they are known, `judge`,
//! `position` (which answer was shown first: `a` or `b`) and `category`. Other columns are not looked at.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;

use fedra_data::{Judgement, Winner};
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Context, Result, refuse};

/// Most bytes of a record.
const LONGEST: u64 = 16 << 20;

/// A record as it is written.
#[derive(Deserialize)]
struct Record {
    id: Option<Value>,
    winner: Option<Value>,
    judge: Option<Value>,
    position: Option<Value>,
    category: Option<Value>,
}

/// All judgements of a file, at least one.
pub fn read(path: &Path) -> Result<Vec<Judgement>> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let end = path.extension().map(|end| end.to_string_lossy().to_lowercase());
    let records = match end.as_deref() {
        Some("csv") => delimited(file, path, b',')?,
        Some("tsv" | "tab") => delimited(file, path, b'\t')?,
        Some("jsonl" | "ndjson" | "json") => json_lines(file, path)?,
        Some(_) | None => refuse!("{shown}: expected a file that ends in .jsonl, .csv or .tsv"),
    };
    if records.is_empty() {
        refuse!("{shown}: found no judgement, expected at least one");
    }
    let mut categories: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut judgements = Vec::with_capacity(records.len());
    for (line, record) in records {
        let judgement = record.judgement(&format!("{shown}:{line}"))?;
        let first =
            categories.entry(judgement.id.clone()).or_insert_with(|| judgement.category.clone());
        if *first != judgement.category {
            let said = |category: &Option<String>| {
                category.as_ref().map_or("none".to_owned(), |category| format!("{category:?}"))
            };
            refuse!(
                "{shown}:{line}: category: found {} for {:?}, expected {} as above",
                said(&judgement.category),
                judgement.id,
                said(first)
            );
        }
        judgements.push(judgement);
    }
    Ok(judgements)
}

fn json_lines(file: File, path: &Path) -> Result<Vec<(u64, Record)>> {
    let (shown, mut reader) = (path.display(), BufReader::new(file));
    let mut records = Vec::new();
    for line in 1.. {
        let mut bytes = Vec::new();
        let read = (&mut reader).take(LONGEST + 1).read_until(b'\n', &mut bytes);
        if read.with_context(|| format!("cannot read {shown}"))? == 0 {
            break;
        }
        if bytes.len() as u64 > LONGEST {
            refuse!("{shown}:{line}: found more than {LONGEST} bytes, expected a record");
        }
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let place = || format!("{shown}:{line}: expected an object with id and winner");
        records.push((line, serde_json::from_slice(&bytes).with_context(place)?));
    }
    Ok(records)
}

fn delimited(file: File, path: &Path, delimiter: u8) -> Result<Vec<(u64, Record)>> {
    let shown = path.display();
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(file);
    let refused = |error: csv::Error| crate::Error::Refused(format!("{shown}: {error}"));
    let names = reader.headers().map_err(refused)?.clone();
    let mut records = Vec::new();
    for row in reader.records() {
        let row = row.map_err(refused)?;
        let line = row.position().map_or(0, csv::Position::line);
        let mut cells = BTreeMap::new();
        for (name, cell) in names.iter().zip(&row) {
            // The mark of an encoding may stand in front of the first name.
            let name = name.trim_start_matches('\u{feff}').trim();
            if cells.insert(name, cell.trim()).is_some() {
                refuse!("{shown}: found two columns {name:?}, expected one of each name");
            }
        }
        let cell = |name: &str| {
            let cell = cells.get(name).filter(|cell| !cell.is_empty());
            cell.map(|cell| Value::from(*cell))
        };
        let record = Record {
            id: cell("id"),
            winner: cell("winner"),
            judge: cell("judge"),
            position: cell("position"),
            category: cell("category"),
        };
        records.push((line, record));
    }
    Ok(records)
}

impl Record {
    fn judgement(self, place: &str) -> Result<Judgement> {
        let Self { id, winner, judge, position, category } = self;
        let Some(id) = name("id", id, place)? else {
            refuse!("{place}: found no id, expected the name of the example");
        };
        let said = name("winner", winner, place)?;
        let Some(winner) = said.as_deref().and_then(winner_of) else {
            let found = said.map_or("none".to_owned(), |said| format!("{said:?}"));
            refuse!("{place}: winner: found {found}, expected a, b or tie");
        };
        let first = match name("position", position, place)? {
            None => None,
            Some(said) => match winner_of(&said) {
                Some(first @ (Winner::A | Winner::B)) => Some(first),
                Some(Winner::Tie) | None => {
                    refuse!(
                        "{place}: position: found {said:?}, expected a or b, the answer that was shown first"
                    )
                }
            },
        };
        let (judge, category) = (name("judge", judge, place)?, name("category", category, place)?);
        Ok(Judgement { id, winner, judge, first, category })
    }
}

/// A text or a number that names something.
fn name(field: &str, value: Option<Value>, place: &str) -> Result<Option<String>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim().to_owned()).filter(|it| !it.is_empty())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(other @ (Value::Bool(_) | Value::Array(_) | Value::Object(_))) => {
            refuse!("{place}: {field}: found {other}, expected a text")
        }
    }
}

/// Whom a word means; those of the Chatbot Arena's files too.
fn winner_of(word: &str) -> Option<Winner> {
    match word.to_ascii_lowercase().as_str() {
        "a" | "model_a" => Some(Winner::A),
        "b" | "model_b" => Some(Winner::B),
        "tie" | "tie (bothbad)" => Some(Winner::Tie),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(name: &str, text: &str) -> Result<Vec<Judgement>> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(name);
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn lines_of_json_and_tables_say_the_same() {
        let lines = "{\"id\": 1, \"winner\": \"A\", \"judge\": \"x\", \"position\": \"b\", \"prompt\": \"p\"}\n\n\
                     {\"id\": \"2\", \"winner\": \"tie (bothbad)\", \"category\": \"qa\", \"judge\": null}\n";
        let table =
            "\u{feff}id,winner,judge,position,category,note\n1,a,x,B,,\"a\nb\"\n2,tie,,,qa,\n";
        let expected = read_text("a.jsonl", lines).unwrap();
        assert_eq!(read_text("a.csv", table).unwrap(), expected);
        assert_eq!(expected[0].first, Some(Winner::B));
        assert_eq!(
            (expected[1].winner, expected[1].category.as_deref()),
            (Winner::Tie, Some("qa"))
        );
        let tabs = "id\twinner\n1\ta\n";
        assert_eq!(read_text("a.tsv", tabs).unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_judgement_is_refused_with_its_line() {
        for (name, text, told) in [
            ("a.jsonl", "{\"id\": 1}", "a.jsonl:1: winner: found none, expected a, b or tie"),
            ("a.jsonl", "{\"id\": 1, \"winner\": \"c\"}", "winner: found \"c\""),
            ("a.jsonl", "{\"winner\": \"a\"}", "a.jsonl:1: found no id"),
            (
                "a.jsonl",
                "{\"id\": 1, \"winner\": \"a\", \"position\": \"tie\"}",
                "position: found \"tie\"",
            ),
            ("a.jsonl", "{\"id\": [], \"winner\": \"a\"}", "id: found [], expected a text"),
            ("a.jsonl", "{\"id\": 1, \"id\": 2, \"winner\": \"a\"}", "duplicate field"),
            ("a.jsonl", "\n[", "a.jsonl:2: expected an object"),
            ("a.jsonl", "", "found no judgement"),
            ("a.csv", "id,winner,id\n1,a,2\n", "two columns \"id\""),
            ("a.csv", "id,winner\n1,a,2\n", "a.csv: CSV error"),
            ("a.txt", "", "ends in .jsonl, .csv or .tsv"),
            (
                "a.csv",
                "id,winner,category\n1,a,x\n1,b,y\n",
                "a.csv:3: category: found \"y\" for \"1\", expected \"x\" as above",
            ),
        ] {
            let told_now = read_text(name, text).unwrap_err().in_words();
            assert!(told_now.contains(told), "{told}: {told_now}");
        }
    }
}
