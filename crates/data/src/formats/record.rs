//! A record as it came: every field by its name, in its order.
//!
//! What is said about a row is written beside what the row had. So values stay as they were spelt: a
//! number in JSON keeps its digits, and a cell of a table its blanks.

use serde_json::Value;
use serde_json::value::RawValue;

use super::conversation;
use super::fields::{Cell, Fields};
use super::json::{self, DEEPEST};
use super::nested;
use crate::Message;
use crate::error::Mismatch;

/// The fields of a record.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Names and values, in the order they had.
    pub fields: Vec<(String, Field)>,
    /// Bytes of an image that the row has, by its column: they are read and never written.
    pub(super) image: Option<(String, Vec<u8>)>,
}

/// A value of a record.
#[derive(Clone, Debug)]
pub enum Field {
    /// Text, from a cell of a table or a line.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
    /// No value, where a table has room for it.
    Absent,
    /// A value in JSON, letter by letter as it was spelt.
    Json(Box<RawValue>),
}

impl Field {
    /// The value in JSON.
    pub fn to_json(&self) -> String {
        match self {
            Self::Text(text) => Value::from(text.as_str()).to_string(),
            Self::List(texts) => Value::from(texts.as_slice()).to_string(),
            Self::Absent => Value::Null.to_string(),
            Self::Json(raw) => raw.get().to_owned(),
        }
    }

    /// The value as a cell of a table: text as it is, anything else in JSON, nothing for null.
    pub fn to_cell(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::List(_) => self.to_json(),
            Self::Absent => String::new(),
            Self::Json(raw) => match serde_json::from_str::<Value>(raw.get()) {
                Ok(Value::String(text)) => text,
                Ok(Value::Null) => String::new(),
                Ok(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))
                | Err(_) => raw.get().to_owned(),
            },
        }
    }

    fn cell(&self, name: &str) -> Result<Option<Cell>, Mismatch> {
        match self {
            Self::Text(text) => Ok(Some(Cell::One(text.clone()))),
            Self::List(texts) => Ok(Some(Cell::List(texts.clone()))),
            Self::Absent => Ok(None),
            Self::Json(raw) => json::cell(name, json::value(raw.get(), DEEPEST)?),
        }
    }
}

impl Record {
    /// The record in a line of JSON, or what was found and expected.
    pub fn parse(line: &str) -> Result<Self, (String, String)> {
        let fields = json::unique(line)?.into_iter();
        let fields = fields.map(|(name, raw)| (name, Field::Json(raw))).collect();
        Ok(Self { fields, image: None })
    }

    /// The same with what stands inside of objects, down to a depth, under its path.
    pub(super) fn flat(self, depth: usize) -> Result<Self, Mismatch> {
        let (mut flat, depth) = (Self::default(), json::deeper(depth)?);
        for (name, field) in self.fields {
            match &field {
                Field::Json(raw) if raw.get().starts_with('{') => {
                    let inner = Self::parse(raw.get())?.flat(depth)?.fields.into_iter();
                    flat.fields.extend(inner.map(|(key, field)| (format!("{name}.{key}"), field)));
                }
                Field::Text(_) | Field::List(_) | Field::Absent | Field::Json(_) => {
                    flat.fields.push((name, field));
                }
            }
        }
        Ok(flat)
    }
}

impl Fields for Record {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Mismatch> {
        let mut named = self.fields.iter().filter(|(field, _)| field == name);
        if let Some((_, field)) = named.next() {
            if named.next().is_some() {
                let found = format!("two columns called {name:?}");
                return Err((found, "one of that name".to_owned()));
            }
            return field.cell(name);
        }
        // A path into an object, as experiment files write it.
        let mut whole = serde_json::Map::new();
        let Some((top, _)) = name.split_once('.') else { return Ok(None) };
        let inside = self.fields.iter().find(|(field, _)| field == top);
        let Some((_, Field::Json(raw))) = inside else { return Ok(None) };
        whole.insert(top.to_owned(), json::value(raw.get(), DEEPEST)?);
        nested::at(&whole, name).map_or(Ok(None), |value| json::cell(name, value.clone()))
    }

    fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, Mismatch> {
        let is_named = self.image.as_ref().is_some_and(|(column, _)| column == name);
        Ok(if is_named { self.image.take().map(|(_, bytes)| bytes) } else { None })
    }

    fn messages(&mut self, name: &str) -> Result<Option<Vec<Message>>, Mismatch> {
        let Some((_, field)) = self.fields.iter().find(|(field, _)| field == name) else {
            return Ok(None);
        };
        match field {
            Field::Absent => Ok(None),
            Field::Text(text) if text.trim().is_empty() => Ok(None),
            Field::Text(text) => conversation::of_json(text).map(Some),
            Field::Json(raw) if raw.get() == "null" => Ok(None),
            Field::Json(raw) => conversation::of_json(raw.get()).map(Some),
            Field::List(_) => Err(("a list of texts".to_owned(), "a list of messages".to_owned())),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.fields.iter().map(|(name, _)| name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_spelling_and_their_order() {
        let line =
            r#"{"z": 1.50, "a": "x\u00e9", "n": null, "list": [1, "b"], "o": {"in": "deep"}}"#;
        let mut record = Record::parse(line).unwrap();
        assert_eq!(record.names(), ["z", "a", "n", "list", "o"]);
        let cells: Vec<String> = record.fields.iter().map(|(_, field)| field.to_cell()).collect();
        assert_eq!(cells, ["1.50", "x\u{e9}", "", r#"[1, "b"]"#, r#"{"in": "deep"}"#]);
        assert_eq!(record.fields[1].1.to_json(), r#""x\u00e9""#);
        assert_eq!(record.take("list").unwrap(), Some(Cell::List(vec!["1".into(), "b".into()])));
        assert_eq!(record.take("o.in").unwrap(), Some(Cell::One("deep".into())));
        assert_eq!(record.take("n").unwrap(), None);
        assert_eq!(record.take("nothing.here").unwrap(), None);
        assert!(record.take("o").is_err());
    }
}
