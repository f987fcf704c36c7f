//! Where the keys of an experiment were written, so that an error can show the place.
//!
//! Layers are joined before anything is checked ([`super::layers`]), so an error knows its key and
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

use fedra_data::DataError;
use toml::Value;
use toml::de::{DeTable, DeValue};

use super::overrides::Overrides;
use crate::config::ConfigError;
use crate::error::Error;

/// Letters of a line that are shown.
const WIDTH: usize = 96;

/// The text of a file and what overrides it.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    file: String,
    text: String,
    overrides: Overrides,
}

impl Origin {
    /// A file with this text, and what overrides it.
    pub(super) fn new(file: &str, text: &str, overrides: &Overrides) -> Self {
        Self { file: file.to_owned(), text: text.to_owned(), overrides: overrides.clone() }
    }

    /// The same error with the place of its key, where it is about one and has none.
    pub fn point(&self, error: Error) -> Error {
        if let Error::Config(refusal) = error {
            return Error::Config(self.place(refusal));
        }
        if let Error::Within { what, source } = error {
            return Error::Within { what, source: Box::new(self.point(*source)) };
        }
        // Rows may be right, and the name of a column wrong.
        if let Error::Data(DataError::Row { advice: Some(advice), .. }) = &error
            && self.is_written(&advice.key)
            && let Some(place) = self.place_of(&advice.key, false)
        {
            return Error::Config(ConfigError::sentence("", &error).at(place));
        }
        error
    }

    /// The same error with the place of its key.
    pub fn place(&self, mut refusal: ConfigError) -> ConfigError {
        let is_unknown = refusal.near_mut().is_some();
        let is_placed = refusal.place.is_some() || refusal.key.is_empty();
        if is_placed || refusal.key.starts_with('-') {
            return refusal;
        }
        // A number that nobody wrote needs an explanation.
        if refusal.is_of_number() && !self.file.is_empty() && !self.is_written(&refusal.key) {
            let hint = format!("{} is not set, so it has its default", refusal.key);
            refusal = refusal.with_hint(hint);
        }
        match self.place_of(&refusal.key, is_unknown) {
            Some(place) => refusal.at(place),
            None => refusal,
        }
    }

    /// The same error about an assignment, which may have no key that could be found again.
    pub(super) fn flagged(refusal: ConfigError, assignment: &str) -> ConfigError {
        refusal.at(format!("  --> --set {assignment}"))
    }

    /// Whether somebody wrote the key itself, perhaps within a table.
    fn is_written(&self, key: &str) -> bool {
        let around = |own: &str| rest_of(key, own).is_some();
        let in_text = || DeTable::parse(&self.text).is_ok_and(|table| has(table.get_ref(), key));
        let is_flag = || self.overrides.flags.iter().any(|(own, _)| *own == key);
        is_flag() || self.overridden(None, &around).is_some() || in_text()
    }

    /// Where a key was written: the key itself, a table around it, or, where the key is a table that no section
    /// of the file has, something inside of it.
    fn place_of(&self, key: &str, is_unknown: bool) -> Option<String> {
        if self.file.is_empty() {
            return None;
        }
        let flag = self.overrides.flags.iter().rev().find(|(own, _)| *own == key);
        if let Some((name, value)) = flag {
            return Some(format!("  --> --{name} {value}"));
        }
        let text = DeTable::parse(&self.text).ok();
        let table = text.as_ref().map(toml::Spanned::get_ref);
        let around = |own: &str| rest_of(key, own).is_some();
        let inside = |own: &str| rest_of(own, key).is_some();
        let is_section = !key.contains('.') && table.is_some_and(|table| has(table, key));
        let overridden = self.overridden(table, &around);
        let overridden =
            overridden.or_else(|| if is_section { None } else { self.overridden(table, &inside) });
        if overridden.is_some() {
            return overridden;
        }
        Some(match find(table?, key, is_unknown) {
            Some(span) => excerpt(&self.file, &self.text, &span),
            None => format!("  --> {}", self.file),
        })
    }

    /// Where the key of an assignment, or of a value that a comparison sets, is as wanted.
    fn overridden(
        &self,
        table: Option<&DeTable<'_>>,
        is_meant: &dyn Fn(&str) -> bool,
    ) -> Option<String> {
        let own = |set: &str| set.split_once('=').map_or(set, |(own, _)| own).trim().to_owned();
        if let Some(set) = self.overrides.sets.iter().rev().find(|set| is_meant(&own(set))) {
            return Some(format!("  --> --set {set}"));
        }
        let mut given = self.overrides.given.iter().rev();
        if let Some((own, value)) = given.find(|(own, _)| is_meant(own)) {
            return Some(format!("  --> given as {own} = {value}"));
        }
        let mut assigned = self.overrides.assigned.iter().rev();
        let (own, value) = assigned.find(|(own, _)| is_meant(own))?;
        let span = table.and_then(|table| varied(table, &self.text, (own, value)));
        let elsewhere = || format!("  --> {own} = {value}, which the comparison sets");
        Some(span.map_or_else(elsewhere, |span| excerpt(&self.file, &self.text, &span)))
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

/// Whether a table has a key, through tables inside of it.
fn has(table: &DeTable<'_>, key: &str) -> bool {
    table.iter().any(|(name, value)| match rest_of(key, name.get_ref()) {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('.')
            .is_some_and(|rest| value.get_ref().as_table().is_some_and(|inner| has(inner, rest))),
        None => false,
    })
}

/// The deepest place on the way to a key: its value, or its name where nobody knows it.
fn find(table: &DeTable<'_>, key: &str, is_unknown: bool) -> Option<Range<usize>> {
    let (name, value, rest) = table
        .iter()
        .find_map(|(name, value)| Some((name, value, rest_of(key, name.get_ref())?)))?;
    let inside = |value: &DeValue<'_>, rest: &str| {
        find(value.as_table()?, rest.strip_prefix('.')?, is_unknown)
    };
    if let Some(inside) = inside(value.get_ref(), rest) {
        return Some(inside);
    }
    let place = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let item = place.and_then(|(place, rest)| {
        let item = value.get_ref().as_array()?.get(place.parse::<usize>().ok()?)?;
        Some(inside(item.get_ref(), rest).unwrap_or_else(|| item.span()))
    });
    // A table in braces may be shown as a whole, one under a header by its name.
    let by_name = value.get_ref().is_table() || (is_unknown && rest.is_empty());
    item.or_else(|| Some(if by_name { name.span() } else { value.span() }))
}

/// Where the `[compare]` table gives a key this value, or where it varies the key at all.
fn varied(table: &DeTable<'_>, text: &str, (key, value): (&str, &Value)) -> Option<Range<usize>> {
    let compare = table_in(table, "compare")?;
    let variants = compare.iter().find(|(name, _)| name.get_ref() == "variants");
    let variants = variants.and_then(|(_, list)| list.get_ref().as_array()).into_iter().flatten();
    let mut sets: Vec<&DeTable<'_>> = Vec::new();
    sets.extend(["sweep", "tune"].iter().filter_map(|name| table_in(compare, name)));
    for variant in variants.filter_map(|variant| variant.get_ref().as_table()) {
        sets.extend(["set", "tune"].iter().filter_map(|name| table_in(variant, name)));
    }
    let entries = sets.iter().flat_map(|set| set.iter());
    let mut spans = Vec::new();
    for (_, entry) in entries.filter(|(name, _)| name.get_ref() == key) {
        spans.push(entry.span());
        spans.extend(entry.get_ref().as_array().into_iter().flatten().map(toml::Spanned::span));
    }
    let is_meant = |span: &&Range<usize>| {
        let spelt = text.get((*span).clone()).unwrap_or_default();
        format!("value = {spelt}")
            .parse::<toml::Table>()
            .is_ok_and(|table| table.get("value") == Some(value))
    };
    spans.iter().find(is_meant).or(spans.first()).cloned()
}

fn table_in<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<&'t DeTable<'i>> {
    table.iter().find(|(key, _)| key.get_ref() == name)?.1.get_ref().as_table()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "seed = 1\n[work]\nbatch = 0 # none\noptimiser = { name = 'sgd', raet = 1 }\n\
                        [compare]\nsweep.\"work.batch\" = [4, 0]\n";

    #[track_caller]
    fn check(overrides: &Overrides, refusal: ConfigError, expected: &str) {
        let placed = Origin::new("x.toml", TEXT, overrides).place(refusal);
        assert_eq!(placed.in_full(), expected);
    }

    #[test]
    fn a_key_is_shown_where_it_was_written() {
        let none = Overrides::default();
        let batch = || ConfigError::new("work.batch", 0, "at least 1");
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
        // A table that only a flag makes is shown by that flag, one that the file has by its header.
        let strange = ConfigError::new("foo", "a table", "a known key");
        let foo = none.clone().set("foo.bar=1").set("work.clip=1");
        let told = "foo: found a table, expected a known key\n  --> --set foo.bar=1";
        check(&foo, strange.clone(), told);
        let swept = none.with(&[("foo.bar".to_owned(), 1.into())], 1);
        let told = "foo: found a table, expected a known key\n  --> foo.bar = 1, which the comparison sets";
        check(&swept, strange, told);
        let work = ConfigError::sentence("work", "no room");
        check(&foo, work, "work: no room\n  --> x.toml:2:2\n  |\n2 | [work]\n  |  ^^^^");
        // What nobody wrote is a default.
        let defaulted = ConfigError::new("method.k", "2 of 1 block", "no more");
        let told = "method.k: found 2 of 1 block, expected no more\n  --> x.toml\n\
                    hint: method.k is not set, so it has its default";
        check(&none, defaulted.clone(), told);
        let told = "method.k: found 2 of 1 block, expected no more\n  --> --set method={ k = 2 }";
        check(&none.clone().set("method={ k = 2 }"), defaulted, told);
        let given =
            none.clone().give("work", toml::Table::from_iter([("batch".to_owned(), 0.into())]));
        check(
            &given,
            batch(),
            &format!(
                "{}  --> given as work = {{ batch = 0 }}",
                "work.batch: found 0, expected at least 1\n"
            ),
        );
        // The table stands for a key that is missing in it, the file for a table that is missing.
        let epochs = ConfigError::missing("work.epochs", "a number").with_hint("1");
        let first = "work.epochs is missing, expected a number\n";
        let shown = " --> x.toml:2:2\n  |\n2 | [work]\n  |  ^^^^\nhint: 1";
        check(&none, epochs, &format!("{first} {shown}"));
        let absent = ConfigError::missing("data.task", "a task");
        check(&none, absent, "data.task is missing, expected a task\n  --> x.toml");
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
