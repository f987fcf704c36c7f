//! Rows that lie inside a JSON record: a passage with its questions, a question with its answers.
//!
//! A path such as `passage.questions.answers` names a list; every item of it is a row, and so is
//! every item of the lists on the way. A row sees the fields of the whole record by their paths
//! without places: `passage.text`, `passage.questions.question`. Nothing is copied but what is taken.

use serde_json::{Map, Value};

use super::conversation;
use super::fields::{Cell, Fields};
use super::json::cell;
use crate::Message;
use crate::error::Mismatch;

/// One row inside a record.
#[derive(Clone)]
pub(super) struct Nested<'a> {
    record: &'a Map<String, Value>,
    /// The items that the row is in, each with the path of its list, outermost first.
    items: Vec<(&'a str, &'a Value)>,
}

impl<'a> Nested<'a> {
    /// A row that is the whole record.
    pub fn whole(record: &'a Map<String, Value>) -> Self {
        Self { record, items: Vec::new() }
    }
}

/// Every row that the path leads to.
pub(super) fn rows<'a>(
    record: &'a Map<String, Value>,
    path: &'a str,
) -> Result<Vec<Nested<'a>>, Mismatch> {
    let first = path.find('.').unwrap_or(path.len());
    let (value, mut rows) = (record.get(&path[..first]), Vec::new());
    descend(value, (path, first), Nested::whole(record), &mut rows)?;
    Ok(rows)
}

/// Continues at a value that stands at `path[..at]`.
fn descend<'a>(
    value: Option<&'a Value>,
    (path, at): (&'a str, usize),
    above: Nested<'a>,
    rows: &mut Vec<Nested<'a>>,
) -> Result<(), Mismatch> {
    let (here, is_last) = (&path[..at], at == path.len());
    let inside = |value: &'a Value| {
        let end = path[at + 1..].find('.').map_or(path.len(), |dot| at + 1 + dot);
        (value.as_object().and_then(|object| object.get(&path[at + 1..end])), end)
    };
    match value {
        None | Some(Value::Null) => {
            Err((format!("no {here:?}"), format!("the list {path:?} of rows")))
        }
        Some(Value::Array(list)) => {
            for item in list {
                let mut row = above.clone();
                row.items.push((here, item));
                if is_last {
                    rows.push(row);
                } else {
                    let (value, end) = inside(item);
                    descend(value, (path, end), row, rows)?;
                }
            }
            Ok(())
        }
        Some(value @ Value::Object(_)) if !is_last => {
            let (value, end) = inside(value);
            descend(value, (path, end), above, rows)
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            Err((format!("no list in {here:?}"), "a list of rows".to_owned()))
        }
    }
}

impl Nested<'_> {
    /// The value of a name, in the innermost item that has its path.
    fn value(&self, name: &str) -> Option<&Value> {
        for (path, item) in self.items.iter().rev() {
            match name.strip_prefix(path) {
                Some("") => return Some(item),
                Some(rest) if rest.starts_with('.') => {
                    return item.as_object().and_then(|item| at(item, &rest[1..]));
                }
                Some(_) | None => {}
            }
        }
        at(self.record, name)
    }
}

impl Fields for Nested<'_> {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Mismatch> {
        self.value(name).map_or(Ok(None), |value| cell(name, value.clone()))
    }

    fn messages(&mut self, name: &str) -> Result<Option<Vec<Message>>, Mismatch> {
        match self.value(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => conversation::of_value(value).map(Some),
        }
    }

    fn bytes(&mut self, _name: &str) -> Result<Option<Vec<u8>>, Mismatch> {
        Ok(None)
    }

    fn names(&self) -> Vec<&str> {
        self.record.keys().map(String::as_str).collect()
    }
}

/// The value of a name, or of a path through objects.
pub(super) fn at<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(value) = object.get(name) {
        return Some(value);
    }
    let (first, rest) = name.split_once('.')?;
    at(object.get(first)?.as_object()?, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str, path: &str, names: &[&str]) -> Result<Vec<String>, Mismatch> {
        let record: Map<String, Value> = serde_json::from_str(json).unwrap();
        let mut found = Vec::new();
        for mut row in rows(&record, path)? {
            let mut parts = Vec::new();
            for name in names {
                parts.push(match row.take(name)? {
                    Some(Cell::One(text)) => text,
                    Some(Cell::List(texts)) => texts.join("+"),
                    None => "-".to_owned(),
                });
            }
            found.push(parts.join(" "));
        }
        Ok(found)
    }

    const RECORD: &str = r#"{"id": 7, "p": {"text": "T", "qs": [
        {"q": "A", "as": [{"t": "a1", "l": 0}, {"t": "a2", "l": 1}]},
        {"q": "B", "as": []},
        {"q": "C", "as": [{"t": "c1", "l": 1}]}]}}"#;

    #[test]
    fn every_item_of_the_innermost_list_is_a_row_that_sees_what_it_is_in() {
        let names = ["id", "p.text", "p.qs.q", "p.qs.as.t", "p.qs.as.l", "p.qs.none"];
        let found = read(RECORD, "p.qs.as", &names).unwrap();
        assert_eq!(found, ["7 T A a1 0 -", "7 T A a2 1 -", "7 T C c1 1 -"]);
        assert_eq!(read(RECORD, "p.qs", &["p.qs.q"]).unwrap(), ["A", "B", "C"]);
        assert_eq!(read(r#"{"x": ["u", "v"]}"#, "x", &["x"]).unwrap(), ["u", "v"]);
    }

    #[test]
    fn a_path_that_leads_to_no_list_is_refused() {
        for path in ["none", "p", "p.text", "p.qs.q", "p.text.more", "id"] {
            assert!(read(RECORD, path, &["id"]).is_err(), "{path}");
        }
    }
}
