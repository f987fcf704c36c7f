//! JSON as records are written in it: an object whose keys stand once each, at any depth.
//!
//! Two values under one key are a mistake that most readers settle in silence, by the last of them.
//! Which of two labels is meant is nobody's to guess here, so such a record is refused.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::fields::Cell;
use crate::error::Mismatch;

/// From here on not every whole number is a floating one.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Deepest nesting of a value, which is where the library stops too.
pub(super) const DEEPEST: usize = 128;
/// How the error about a repeated key begins.
const REPEATED: &str = "the key ";

/// The entries of an object in their order, as they are written; each key once.
pub(super) fn unique(line: &str) -> Result<Vec<(String, Box<RawValue>)>, Mismatch> {
    let read = serde_json::from_str::<Unique>(line);
    read.map(|Unique(entries)| entries).map_err(|error| mismatch(line, &error))
}

/// The object on a line, with values inside of at most so many others.
pub(super) fn object(text: &str, depth: usize) -> Result<Map<String, Value>, Mismatch> {
    let entries = unique(text)?.into_iter();
    entries.map(|(key, raw)| Ok((key, value(raw.get(), depth)?))).collect()
}

/// What is left of the depth one level further in.
pub(super) fn deeper(depth: usize) -> Result<usize, Mismatch> {
    let found = || (format!("a value inside of {DEEPEST} others"), "less nesting".to_owned());
    depth.checked_sub(1).ok_or_else(found)
}

/// A value that is part of a line.
pub(super) fn value(text: &str, depth: usize) -> Result<Value, Mismatch> {
    let depth = deeper(depth)?;
    match text.as_bytes().first() {
        Some(b'{') => object(text, depth).map(Value::Object),
        Some(b'[') => {
            let items = serde_json::from_str::<Vec<Box<RawValue>>>(text);
            let items = items.map_err(|error| mismatch(text, &error))?;
            let items = items.iter().map(|item| value(item.get(), depth));
            items.collect::<Result<_, _>>().map(Value::Array)
        }
        Some(_) | None => serde_json::from_str(text).map_err(|error| mismatch(text, &error)),
    }
}

/// What is wrong with a line that is no object, or one with a key twice.
fn mismatch(line: &str, error: &serde_json::Error) -> Mismatch {
    let said = error.to_string();
    if said.starts_with(REPEATED) {
        // The place behind it is one in the line, which has a number of its own.
        let end = said.rfind(" at line ").unwrap_or(said.len());
        return (said[..end].to_owned(), "every key once".to_owned());
    }
    (format!("{} ({said})", excerpt(line)), "a JSON object".to_owned())
}

/// The start of a text, short enough for a message.
pub(super) fn excerpt(text: &str) -> String {
    let mut start: String = text.chars().take(40).collect();
    if start.len() < text.len() {
        start.push_str("..");
    }
    start
}

/// An object of which no key stands twice.
struct Unique(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Unique, A::Error> {
        let (mut seen, mut all) = (BTreeSet::new(), Vec::new());
        while let Some((key, value)) = entries.next_entry::<String, _>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format_args!("{REPEATED}{key:?} twice")));
            }
            all.push((key, value));
        }
        Ok(Unique(all))
    }
}

/// A value as a field of a record; `None` for null.
pub(super) fn cell(name: &str, value: Value) -> Result<Option<Cell>, Mismatch> {
    match value {
        Value::Null => Ok(None),
        Value::Array(items) => items
            .into_iter()
            .map(|item| scalar(name, item))
            .collect::<Result<_, _>>()
            .map(|items| Some(Cell::List(items))),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            scalar(name, value).map(|text| Some(Cell::One(text)))
        }
    }
}

fn scalar(name: &str, value: Value) -> Result<String, Mismatch> {
    match value {
        Value::String(text) => Ok(text),
        // A number that does not fit was rounded: two of them may have become one.
        Value::Number(number)
            if number.as_f64().is_some_and(|n| n.abs() >= EXACT) && number.is_f64() =>
        {
            let found = format!("a number as large as {number} in {name:?}");
            Err((found, "text, or numbers that a computer holds exactly".to_owned()))
        }
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        other @ (Value::Null | Value::Array(_) | Value::Object(_)) => {
            let found = format!("{} in {name:?}", excerpt(&other.to_string()));
            Err((found, "text, numbers or a flat list of them".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_every_key_once_reads_as_it_always_did() {
        for line in [
            r#"{"a": 1, "b": -2, "c": 0.5, "d": [true, null, {"a": "x\u00e9"}], "e": {"a": {}}}"#,
            r#"{"wide": 18446744073709551615, "wider": 12345678901234567890121}"#,
            "{}",
        ] {
            let usual: Map<String, Value> = serde_json::from_str(line).unwrap();
            assert_eq!(object(line, DEEPEST).unwrap(), usual);
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_named_wherever_it_stands() {
        for (line, key) in [
            (r#"{"label": "a", "text": "x", "label": "b"}"#, "label"),
            (r#"{"label": "a", "label": "a"}"#, "label"),
            (r#"{"p": {"q at line 9": 1, "q at line 9": 2}}"#, "q at line 9"),
            (r#"{"p": [{"q": 1}, {"q": 1, "\u0071": 2}]}"#, "q"),
        ] {
            let (found, expected) = object(line, DEEPEST).unwrap_err();
            assert_eq!(found, format!("the key {key:?} twice"));
            assert_eq!(expected, "every key once");
        }
        let (found, expected) = object("[1]", DEEPEST).unwrap_err();
        assert!(found.starts_with("[1] (") && expected == "a JSON object", "{found}");
    }
}
