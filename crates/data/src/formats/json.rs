//! JSON as records are written in it: an object whose keys stand once each, at any depth.
//!
//! Two values under one key are a mistake that most readers settle in silence, by the last of them.
//! Which of two labels is meant is nobody's to guess here, so such a record is refused.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::columns::Complaint;

/// How the complaint about a repeated key begins.
const REPEATED: &str = "the key ";

/// The object on a line.
pub(super) fn object(line: &str) -> Result<Map<String, Value>, Complaint> {
    match serde_json::from_str::<Object>(line) {
        Ok(Object(fields)) => Ok(fields),
        Err(error) => Err(complaint(line, &error)),
    }
}

/// A value that is part of a line.
pub(super) fn value(text: &str) -> Result<Value, Complaint> {
    match serde_json::from_str::<Once>(text) {
        Ok(Once(value)) => Ok(value),
        Err(error) => Err(complaint(text, &error)),
    }
}

/// What is wrong with a line that is no object, or one with a key twice.
pub(super) fn complaint(line: &str, error: &serde_json::Error) -> Complaint {
    let said = error.to_string();
    if said.starts_with(REPEATED) {
        // The place behind it is one in the line, which has a number of its own.
        let end = said.rfind(" at line ").unwrap_or(said.len());
        return (said[..end].to_owned(), "every key once".to_owned());
    }
    (format!("{} ({said})", excerpt(line)), "a JSON object".to_owned())
}

/// The complaint about a key that is there already.
pub(super) fn repeated<E: Error>(key: &str) -> E {
    E::custom(format_args!("{REPEATED}{key:?} twice"))
}

/// The start of a text, short enough for a message.
pub(super) fn excerpt(text: &str) -> String {
    let mut start: String = text.chars().take(40).collect();
    if start.len() < text.len() {
        start.push_str("..");
    }
    start
}

/// An object of which every key stands once.
struct Object(Map<String, Value>);

/// A value of which every object has every key once.
struct Once(Value);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor).map(Self)
    }
}

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnceVisitor).map(Self)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Map<String, Value>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut seen = BTreeSet::new();
        let mut fields = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(repeated(&key));
            }
            let Once(value) = entries.next_value()?;
            fields.insert(key, value);
        }
        Ok(fields)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Once(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Value, A::Error> {
        ObjectVisitor.visit_map(entries).map(Value::Object)
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
            assert_eq!(object(line).unwrap(), usual);
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
            let (found, expected) = object(line).unwrap_err();
            assert_eq!(found, format!("the key {key:?} twice"));
            assert_eq!(expected, "every key once");
        }
        let (found, expected) = object("[1]").unwrap_err();
        assert!(found.starts_with("[1] (") && expected == "a JSON object", "{found}");
    }
}
