//! Where the keys of an experiment were written, so that an error can show the place.
//!
//! Layers are joined before anything is checked ([`super::layers`]), so a complaint knows its key and
//! nothing else. This finds the key again: in a flag, which is stronger, in the `[compare]` table where a
//! variant set it, or in the text, by its line and column.
//!
//! ```text
//!   --> notes.toml:24:9
//!    |
//! 24 | batch = 0
//!    |         ^
//! ```

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::config::complaint::Complaint;
use crate::error::Error;

/// Letters of a line that are shown.
const WIDTH: usize = 96;

/// The text of a file and what overrides it.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    file: String,
    text: String,
    /// Assignments of `--set`, as given.
    sets: Vec<String>,
    /// Keys that a comparison assigned, with their values.
    assigned: Vec<(String, String)>,
}

impl Origin {
    /// A file with this text, and what overrides it.
    pub(super) fn new(file: &str, text: &str, overrides: &super::Overrides) -> Self {
        let (sets, assigned) = overrides.given();
        let spelt = |(key, value): &(String, toml::Value)| (key.clone(), value.to_string());
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
            sets: sets.to_vec(),
            assigned: assigned.iter().map(spelt).collect(),
        }
    }

    /// The same error with the place of its key, where it is a complaint without one.
    pub fn point(&self, error: Error) -> Error {
        if let Error::Complaint(complaint) = error {
            return Error::Complaint(self.place(complaint));
        }
        if let Error::Within { what, source } = error {
            return Error::Within { what, source: Box::new(self.point(*source)) };
        }
        error
    }

    /// The same complaint with the place of its key.
    pub fn place(&self, complaint: Complaint) -> Complaint {
        let key = complaint.key().to_owned();
        if complaint.has_place() || key.is_empty() || key.starts_with('-') || self.file.is_empty() {
            return complaint;
        }
        let of = |set: &&String| {
            let own = set.split_once('=').map_or(set.as_str(), |(own, _)| own).trim();
            rest_of(&key, own).is_some()
        };
        if let Some(set) = self.sets.iter().rev().find(of) {
            return complaint.at(format!("  --> --set {set}"));
        }
        let Ok(table) = DeTable::parse(&self.text) else { return complaint };
        let table = table.get_ref();
        let assigned = self.assigned.iter().rev().find(|(own, _)| rest_of(&key, own).is_some());
        if let Some((own, value)) = assigned {
            let place = match varied(table, &self.text, (own, value)) {
                Some(span) => self.shown(&span),
                None => format!("  --> {own} = {value}, which the comparison sets"),
            };
            return complaint.at(place);
        }
        let place = match find(table, &key, complaint.unknown_key().is_some()) {
            Some(span) => self.shown(&span),
            None => format!("  --> {}", self.file),
        };
        complaint.at(place)
    }

    /// Some bytes of the text with their line.
    pub(super) fn shown(&self, span: &Range<usize>) -> String {
        excerpt(&self.file, &self.text, span)
    }
}

/// A line of a text, and carets under what is meant.
pub(super) fn excerpt(file: &str, text: &str, span: &Range<usize>) -> String {
    let mut start = span.start.min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let line_start = text[..start].rfind('\n').map_or(0, |end| end + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |end| start + end);
    let line = text[line_start..line_end].trim_end_matches('\r');
    let number = text[..line_start].matches('\n').count() + 1;
    let column = text[line_start..start].chars().count();
    let end = span.end.clamp(start, line_end);
    let length = text.get(start..end).map_or(1, |meant| meant.trim_end().chars().count());
    // A long line is shown around the place.
    let skipped = if column + length.min(WIDTH / 2) > WIDTH { column - WIDTH / 3 } else { 0 };
    let visible = |letter: char| if letter.is_control() { ' ' } else { letter };
    let shown: String = line.chars().skip(skipped).take(WIDTH).map(visible).collect();
    let column_shown = column - skipped;
    let carets = length.clamp(1, WIDTH.saturating_sub(column_shown).max(1));
    let width = number.to_string().len();
    format!(
        "{:width$} --> {file}:{number}:{}\n{:width$} |\n{number} | {shown}\n{:width$} | {}{}",
        "",
        column + 1,
        "",
        "",
        " ".repeat(column_shown),
        "^".repeat(carets),
    )
}

/// What of a key stands behind another one that it is, or is inside of.
fn rest_of<'k>(key: &'k str, own: &str) -> Option<&'k str> {
    let rest = key.strip_prefix(own)?;
    (rest.is_empty() || rest.starts_with(['.', '[', ':'])).then_some(rest)
}

/// The deepest place on the way to a key: its value, or its name where nobody knows it.
fn find(table: &DeTable<'_>, key: &str, is_unknown: bool) -> Option<Range<usize>> {
    for (name, value) in table {
        let Some(rest) = rest_of(key, name.get_ref()) else { continue };
        let here = match value.get_ref() {
            DeValue::Table(inner) => {
                let inside = rest.strip_prefix('.').and_then(|rest| find(inner, rest, is_unknown));
                if inside.is_some() {
                    return inside;
                }
                // A table in braces may be shown as a whole, one under a header by its name.
                name.span()
            }
            DeValue::Array(items) => {
                let place = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                let item = place.and_then(|(place, rest)| {
                    items.get(place.parse::<usize>().ok()?).map(|item| (item, rest))
                });
                match item {
                    Some((item, rest)) => {
                        let inside = match (item.get_ref(), rest.strip_prefix('.')) {
                            (DeValue::Table(inner), Some(rest)) => find(inner, rest, is_unknown),
                            (_, _) => None,
                        };
                        return Some(inside.unwrap_or_else(|| item.span()));
                    }
                    None => value.span(),
                }
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => value.span(),
        };
        return Some(if is_unknown && rest.is_empty() { name.span() } else { here });
    }
    None
}

/// Where the `[compare]` table gives a key this value, or where it varies the key at all.
fn varied(table: &DeTable<'_>, text: &str, (key, value): (&str, &str)) -> Option<Range<usize>> {
    let compare = table_in(table, "compare")?;
    let mut sets: Vec<&DeTable<'_>> = Vec::new();
    for (name, entry) in compare {
        match (name.get_ref().as_ref(), entry.get_ref()) {
            ("sweep" | "tune", DeValue::Table(inner)) => sets.push(inner),
            ("variants", DeValue::Array(items)) => {
                for item in items {
                    if let DeValue::Table(variant) = item.get_ref() {
                        let inner = ["set", "tune"].into_iter();
                        sets.extend(inner.filter_map(|name| table_in(variant, name)));
                    }
                }
            }
            (_, _) => {}
        }
    }
    let mut spans = Vec::new();
    for (_, entry) in
        sets.iter().flat_map(|set| set.iter()).filter(|(name, _)| name.get_ref() == key)
    {
        spans.push(entry.span());
        if let DeValue::Array(items) = entry.get_ref() {
            spans.extend(items.iter().map(toml::Spanned::span));
        }
    }
    let is_meant = |span: &&Range<usize>| {
        let spelt = text.get((*span).clone()).unwrap_or_default();
        format!("value = {spelt}")
            .parse::<toml::Table>()
            .is_ok_and(|table| table.get("value").is_some_and(|it| it.to_string() == value))
    };
    spans.iter().find(is_meant).or(spans.first()).cloned()
}

fn table_in<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<&'t DeTable<'i>> {
    let (_, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    match value.get_ref() {
        DeValue::Table(inner) => Some(inner),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Overrides;
    use super::*;

    const TEXT: &str = "seed = 1\n[work]\nbatch = 0 # none\noptimiser = { name = 'sgd', raet = 1 }\n\
                        [compare]\nsweep.\"work.batch\" = [4, 0]\n";

    #[track_caller]
    fn check(overrides: &Overrides, complaint: Complaint, expected: &str) {
        let placed = Origin::new("x.toml", TEXT, overrides).place(complaint);
        assert_eq!(placed.in_full(), expected);
    }

    #[test]
    fn a_key_is_shown_where_it_was_written() {
        let none = Overrides::default();
        let batch = || Complaint::new("work.batch", 0, "at least 1");
        let first = "work.batch: found 0, expected at least 1\n";
        let shown = " --> x.toml:3:9\n  |\n3 | batch = 0 # none\n  |         ^";
        check(&none, batch(), &format!("{first} {shown}"));
        check(
            &none.clone().set("work.batch=0"),
            batch(),
            &format!("{first}  --> --set work.batch=0"),
        );
        let swept = none.with(&[("work.batch".to_owned(), 0.into())], 1);
        let shown = " --> x.toml:6:26\n  |\n6 | sweep.\"work.batch\" = [4, 0]\n  |                          ^";
        check(&swept, batch(), &format!("{first} {shown}"));
        // The table stands for a key that is missing in it, the file for a table that is missing.
        let epochs = Complaint::new("work.epochs", "nothing", "a number").with_hint("1");
        let first = "work.epochs: found nothing, expected a number\n";
        let shown = " --> x.toml:2:2\n  |\n2 | [work]\n  |  ^^^^\nhint: 1";
        check(&none, epochs, &format!("{first} {shown}"));
        let absent = Complaint::new("data.task", "nothing", "a task");
        check(&none, absent, "data.task: found nothing, expected a task\n  --> x.toml");
    }

    #[test]
    fn any_bytes_of_any_text_can_be_shown() {
        let text = "a = \"\u{e9}\u{e9}\"\r\n\tb = 1\n";
        for start in 0..text.len() + 3 {
            for end in start..text.len() + 3 {
                let shown = excerpt("x", text, &(start..end));
                assert!(shown.contains('^'), "{shown}");
            }
        }
        let long = format!("key = \"{}\"", "x".repeat(5000));
        let shown = excerpt("x", &long, &(4000..4001));
        assert!(shown.lines().all(|line| line.chars().count() < 120), "{shown}");
    }
}
