//! What is wrong with an experiment: which key, what stands there, what should.
//!
//! It is also the error of our own TOML reader, so that serde's complaints about types, unknown
//! keys and unknown words arrive in the same three parts as the checks written by hand.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

/// One key that cannot be used as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The key with its tables, as `work.optimiser.rate`.
    key: String,
    /// What stands there.
    found: String,
    /// What should.
    expected: String,
    /// What was probably meant.
    hint: Option<String>,
    /// Where it was written, in lines that show it.
    place: Option<String>,
}

impl Complaint {
    /// A complaint about a value.
    pub fn new(key: &str, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        let (found, expected) = (found.to_string(), expected.to_string());
        Self { key: key.to_owned(), found, expected, hint: None, place: None }
    }

    /// A complaint that is a sentence of its own, where no value was found in place of another.
    pub(crate) fn sentence(key: &str, text: impl fmt::Display) -> Self {
        Self::new(key, text, "")
    }

    /// A complaint of this kind that went through text.
    pub(crate) fn worded(text: &str) -> Self {
        let (message, hint) = text.split_once("\nhint: ").unwrap_or((text, ""));
        let read = message
            .split_once(": found ")
            .and_then(|(key, rest)| rest.split_once(", expected ").map(|(f, e)| (key, f, e)));
        let complaint = match read {
            // A parser says what it expected at a place, not what it found there.
            Some((key, found, expected)) if found.starts_with("expected ") => {
                Self::new(key, format!("what cannot be read ({found})"), expected)
            }
            Some((key, found, expected)) => Self::new(key, found, expected),
            None => Self::sentence("", message),
        };
        let hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
        Self { hint, ..complaint }
    }

    /// The key in question, where it is one that nobody knows.
    pub(crate) fn unknown_key(&self) -> Option<&str> {
        (self.found == UNKNOWN).then_some(&self.key)
    }

    /// The key suggested so far.
    pub(crate) fn suggestion(&self) -> Option<&str> {
        self.hint.as_deref()?.strip_prefix(NEAR)?.strip_suffix('?')
    }

    /// The same complaint with keys that were probably meant.
    pub(crate) fn suggesting(self, keys: &[&str]) -> Self {
        self.with_hint(format!("{NEAR}{}?", keys.join(" or ")))
    }

    /// The key with its tables.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The same about another key.
    pub fn with_key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// The same complaint with advice.
    pub fn with_hint(self, hint: impl fmt::Display) -> Self {
        Self { hint: Some(hint.to_string()), ..self }
    }

    /// The same complaint with the lines that show where it was written.
    pub(crate) fn at(self, place: String) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Whether it is known where it was written.
    pub(crate) const fn has_place(&self) -> bool {
        self.place.is_some()
    }

    /// The message, the place where it was written, and the hint.
    pub fn in_full(&self) -> String {
        let plain = self.to_string();
        let Some(place) = &self.place else { return plain };
        match &self.hint {
            Some(hint) => {
                let message = plain.strip_suffix(&format!("\nhint: {hint}")).unwrap_or(&plain);
                format!("{message}\n{place}\nhint: {hint}")
            }
            None => format!("{plain}\n{place}"),
        }
    }

    /// The same complaint about this value, where it does not say what was found.
    pub(crate) fn finding(self, value: &toml::Value) -> Self {
        if !self.found.is_empty() {
            return self.at_one_of(value);
        }
        let complaint = Self { found: value.to_string(), ..self };
        let Some(word) = value.as_str() else { return complaint };
        let known: Vec<&str> = complaint.expected.split('"').skip(1).step_by(2).collect();
        match nearest(word, &known).map(str::to_owned) {
            Some(near) => complaint.with_hint(format!("the nearest is {near:?}")),
            None => complaint,
        }
    }

    /// A type that reads its table through a buffer forgets which key it was at; the one entry that
    /// holds what was found is it.
    fn at_one_of(self, value: &toml::Value) -> Self {
        let Some(table) = value.as_table().filter(|_| self.key.is_empty()) else { return self };
        let mut alike = table.iter().filter(|(_, value)| value.to_string() == self.found);
        match (alike.next(), alike.next()) {
            (Some((key, _)), None) => self.within(key),
            _ => self,
        }
    }

    /// The same complaint, seen from the table that holds the key.
    pub(crate) fn within(mut self, table: &str) -> Self {
        let joint = if self.key.is_empty() || self.key.starts_with('[') { "" } else { "." };
        self.key = format!("{table}{joint}{}", self.key);
        self.hint = self.hint.map(|hint| hint.replace(NEAR, &format!("{NEAR}{table}.")));
        self
    }
}

/// The words before a suggested key; [`Complaint::within`] puts the key's tables behind them.
const NEAR: &str = "did you mean ";
/// What stands where a key should that exists.
const UNKNOWN: &str = "an unknown key";

impl fmt::Display for Complaint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, found, expected, .. } = self;
        match (key.as_str(), expected.as_str()) {
            ("", "") => write!(formatter, "{found}")?,
            (key, "") => write!(formatter, "{key}: {found}")?,
            (key, expected) => write!(formatter, "{key}: found {found}, expected {expected}")?,
        }
        match &self.hint {
            Some(hint) => write!(formatter, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Complaint {}

impl Error for Complaint {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        // Some types say what they expect and leave it to the reader to say what was found.
        if let Some(expected) = message.strip_prefix("expected ") {
            return Self::new("", "", expected);
        }
        match message.split_once(": expected ") {
            Some((found, expected)) => {
                // `lots` is not a number of bytes: the value alone is what was found.
                let found = found.split_once(" is not ").map_or(found, |(value, _)| value);
                Self::new("", found, expected)
            }
            None => Self::sentence("", message),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        // A whole number that does not fit is no other kind of value: it is too large.
        if let (Unexpected::Unsigned(number), Some(most)) = (found, most_of(&expected)) {
            return Self::new("", number, format!("a whole number up to {most}"));
        }
        Self::new("", in_words(found), type_in_words(&expected))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(found: usize, expected: &dyn Expected) -> Self {
        Self::new("", format!("a list of {found}"), expected)
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        let complaint = Self::new("", format!("{found:?}"), listed(known));
        match nearest(found, known) {
            Some(near) => complaint.with_hint(format!("the nearest is {near:?}")),
            None => complaint,
        }
    }

    fn unknown_field(found: &str, known: &'static [&'static str]) -> Self {
        match nearest(found, known) {
            Some(near) => Self::new(found, UNKNOWN, "a known one").suggesting(&[near]),
            None => Self::new(found, UNKNOWN, listed(known)),
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(field, "nothing", "a value")
    }
}

fn listed(known: &[&str]) -> String {
    match known {
        [] => "nothing here".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

fn in_words(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(truth) => truth.to_string(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Float(number) => number.to_string(),
        Unexpected::Str(text) => format!("{text:?}"),
        Unexpected::Char(letter) => format!("{letter:?}"),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map
        | Unexpected::NewtypeVariant
        | Unexpected::TupleVariant
        | Unexpected::StructVariant => "a table".to_owned(),
        Unexpected::Other(other) => other.to_owned(),
        Unexpected::UnitVariant => "a single word".to_owned(),
        Unexpected::Bytes(_)
        | Unexpected::Unit
        | Unexpected::Option
        | Unexpected::NewtypeStruct
        | Unexpected::Enum => "a value of another kind".to_owned(),
    }
}

/// The largest value of a type of whole numbers, by its name in Rust.
fn most_of(name: &str) -> Option<u64> {
    match name {
        "u8" => Some(u64::from(u8::MAX)),
        "u16" => Some(u64::from(u16::MAX)),
        "u32" => Some(u64::from(u32::MAX)),
        _ => None,
    }
}

/// Rust's names of types in the words of a person who writes TOML.
fn type_in_words(expected: &str) -> &str {
    match expected {
        "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => "a whole number from 1",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" => "text in quotes",
        "a boolean" => "true or false",
        other if other.starts_with("struct ") => "a table of keys",
        other if other.starts_with("internally tagged enum ") => "a table { name = .. }",
        "a map" => "a table of keys",
        "a sequence" => "a list",
        "a character" => "one character in quotes",
        other => other,
    }
}

/// The known word that takes the fewest edits, if they are few enough to be a slip.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let best = known.iter().map(|known| (edits(word, known), *known)).min()?;
    (best.0 <= (word.chars().count() / 3).max(1)).then_some(best.1)
}

/// Levenshtein distance, with the swap of two neighbours counted as one edit.
fn edits(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let last = &rows[i];
            let mut fewest = (last[j + 1] + 1).min(row[j] + 1).min(last[j] + usize::from(a != b));
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                fewest = fewest.min(rows[i - 1][j - 1] + 1);
            }
            row.push(fewest);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_another_word_finds_none() {
        let known = ["rounds", "clients", "sample"];
        assert_eq!(nearest("ronuds", &known), Some("rounds"));
        assert_eq!(nearest("client", &known), Some("clients"));
        assert_eq!(nearest("epsilon", &known), None);
    }

    #[test]
    fn a_whole_number_that_is_too_large_is_told_the_limit() {
        let refused = Complaint::invalid_value(Unexpected::Unsigned(1 << 32), &"u32");
        let shown = refused.within("federation.rounds").to_string();
        let expected =
            "federation.rounds: found 4294967296, expected a whole number up to 4294967295";
        assert_eq!(shown, expected);
    }

    #[test]
    fn every_message_reads_as_a_sentence() {
        let check = |complaint: Complaint, expected: &str| {
            assert_eq!(complaint.within("table").to_string(), expected);
        };
        check(Complaint::worded("key: found 3, expected 2"), "table.key: found 3, expected 2");
        check(Complaint::worded("no room is left"), "table: no room is left");
        check(
            Complaint::worded("c.json: found expected ident at line 1, expected a JSON object"),
            "table.c.json: found what cannot be read (expected ident at line 1), expected a JSON \
             object",
        );
        check(Complaint::custom("memory beside numbers"), "table: memory beside numbers");
        check(
            Complaint::custom("`lots` is not a byte count: expected such as 2 MB"),
            "table: found `lots`, expected such as 2 MB",
        );
        check(
            Complaint::custom("a share of 0: expected more"),
            "table: found a share of 0, expected more",
        );
    }

    #[test]
    fn tables_are_named_from_the_outside_in() {
        let slip = Complaint::unknown_field("raet", &["name", "rate"]);
        let shown = slip.within("optimiser").within("work").to_string();
        assert_eq!(
            shown,
            "work.optimiser.raet: found an unknown key, expected a known one\n\
             hint: did you mean work.optimiser.rate?"
        );
    }
}
