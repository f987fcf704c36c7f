//! What is wrong with an experiment: which key, what about it, and where it was written.
//!
//! It is also the error of our own TOML reader, so that serde's errors about types, unknown keys and
//! unknown words are values of the same kind as those of the checks written by hand. Its sentence is
//! made when it is shown, and nobody takes one apart.

use std::fmt;
use std::path::{Path, PathBuf};

use fedra_hub::{CacheState, ModelName};
use serde::de::{Error, Expected, Unexpected};
use toml::Value;

use crate::text::grid::joined;

/// One key that cannot be used as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigError {
    /// The key with its tables, as `work.optimiser.rate`.
    pub key: String,
    /// What is wrong with it.
    pub problem: Box<Problem>,
    /// What to do about it.
    hint: Option<String>,
    /// Where it was written, in lines that show it.
    pub(crate) place: Option<String>,
}

/// What is wrong with a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// A number out of range, another type, an unknown word.
    Value {
        /// What stands there.
        found: Found,
        /// What should.
        expected: String,
    },
    /// The type that reads the value refuses it, in words of its own.
    Rejected(Option<Value>, String),
    /// It has to be given; what for.
    Missing(String),
    /// There is no such key.
    Unknown {
        /// Those that there are in its place.
        known: &'static [&'static str],
        /// Those that were probably meant, with their tables.
        near: Vec<String>,
    },
    /// It does nothing here: what it applies to.
    Only(String),
    /// It contradicts other settings: which.
    Excludes(String),
    /// A model of the hub that is not on this machine. Whoever may make a connection can fetch it and try again.
    Unfetched {
        /// The model.
        name: ModelName,
        /// The cache that does not have it.
        cache: PathBuf,
        /// What the cache has of it.
        state: CacheState,
    },
    /// None of these, in a sentence.
    Other(String),
}

/// What stands where something else should.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// A value as written.
    Value(Value),
    /// What is to be said about it.
    Words(String),
}

impl Found {
    /// Whether it is a text that would be a number, or a truth, without its quotes.
    fn is_quoted_number(&self) -> bool {
        let Self::Value(Value::String(text)) = self else { return false };
        text.trim().parse::<f64>().is_ok() || ["true", "false"].contains(&text.trim())
    }
}

impl ConfigError {
    /// About a value: a number out of range, another type, an unknown word.
    pub fn new(key: &str, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        let found = Found::Words(found.to_string());
        Self::about(key, Problem::Value { found, expected: expected.to_string() })
    }

    /// About a key that has to be given.
    pub fn missing(key: &str, expected: impl fmt::Display) -> Self {
        Self::about(key, Problem::Missing(expected.to_string()))
    }

    /// About a key that does nothing here: `to tasks with labels`, `with data.source = "jsonl"`.
    pub fn only(key: &str, applies: impl fmt::Display) -> Self {
        Self::about(key, Problem::Only(applies.to_string()))
    }

    /// About settings of which only one can be: `first and last`.
    pub fn excludes(key: &str, others: impl fmt::Display) -> Self {
        Self::about(key, Problem::Excludes(others.to_string()))
    }

    /// About anything else.
    pub fn sentence(key: &str, text: impl fmt::Display) -> Self {
        Self::about(key, Problem::Other(text.to_string()))
    }

    /// About a model of the hub that is not on this machine.
    pub(crate) fn unfetched(
        key: &str,
        name: ModelName,
        (cache, state): (&Path, CacheState),
    ) -> Self {
        let hint = match state {
            CacheState::Absent => format!("fedra fetch {name} fetches it"),
            CacheState::Incomplete => format!("fedra fetch {name} fetches what is missing"),
        };
        let cache = cache.to_owned();
        Self::about(key, Problem::Unfetched { name, cache, state }).with_hint(hint)
    }

    fn about(key: &str, problem: Problem) -> Self {
        Self { key: key.to_owned(), problem: Box::new(problem), hint: None, place: None }
    }

    /// A value as written, where another kind of value is expected.
    pub(crate) fn value(found: Value, expected: impl Into<String>) -> Self {
        let problem = Problem::Value { found: Found::Value(found), expected: expected.into() };
        Self::about("", problem)
    }

    /// The same about another key.
    pub fn with_key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// The same with advice.
    pub fn with_hint(self, hint: impl fmt::Display) -> Self {
        Self { hint: Some(hint.to_string()), ..self }
    }

    /// Refuses, where this holds.
    pub(crate) fn when(self, holds: bool) -> Result<(), Self> {
        if holds { Err(self) } else { Ok(()) }
    }

    /// Where no such key exists: those that were probably meant.
    pub(crate) fn near_mut(&mut self) -> Option<&mut Vec<String>> {
        if let Problem::Unknown { near, .. } = &mut *self.problem { Some(near) } else { None }
    }

    /// Whether it is about a number of a setting, and has no advice yet.
    pub(crate) fn is_of_number(&self) -> bool {
        let Problem::Value { found: Found::Words(found), .. } = &*self.problem else {
            return false;
        };
        let is_setting = self.key.contains('.') && self.hint.is_none();
        is_setting && found.starts_with(|letter: char| letter.is_ascii_digit())
    }

    /// The same with the lines that show where it was written.
    pub(crate) fn at(self, place: String) -> Self {
        Self { place: Some(place), ..self }
    }

    /// The message, the place where it was written, and the hint.
    pub fn in_full(&self) -> String {
        let parts = [Some(self.message()), self.place.clone(), self.hint()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    fn message(&self) -> String {
        let key = &self.key;
        match &*self.problem {
            Problem::Value { found, expected } => {
                // In quotes a number looks like the number that is expected.
                let kind = if found.is_quoted_number() { ", a text" } else { "" };
                format!("{key}: found {found}{kind}, expected {expected}")
            }
            Problem::Rejected(Some(value), reason) if reason.starts_with("expected ") => {
                format!("{key}: found {value}, {reason}")
            }
            Problem::Rejected(Some(value), reason) => format!("{key} = {value}: {reason}"),
            Problem::Missing(expected) => format!("{key} is missing, expected {expected}"),
            Problem::Unknown { known, near } if near.is_empty() => {
                format!("{key}: unknown key, expected {}", listed(known))
            }
            Problem::Unknown { .. } => format!("{key}: unknown key"),
            Problem::Only(applies) => format!("{key} applies only {applies}"),
            Problem::Excludes(others) => format!("{key} cannot be combined with {others}"),
            Problem::Unfetched { name, cache, state } => {
                format!("{key}: {name} {state} the Hugging Face cache {}", cache.display())
            }
            Problem::Other(text) | Problem::Rejected(None, text) if key.is_empty() => text.clone(),
            Problem::Other(text) | Problem::Rejected(None, text) => format!("{key}: {text}"),
        }
    }

    fn hint(&self) -> Option<String> {
        if let (Problem::Unknown { near, .. }, None) = (&*self.problem, &self.hint)
            && !near.is_empty()
        {
            return Some(format!("hint: did you mean {}?", near.join(" or ")));
        }
        self.hint.as_ref().map(|hint| format!("hint: {hint}"))
    }

    /// The same, seen from the table or list that holds the key. A type that reads its table through a
    /// buffer forgets which key it was at; the one entry that holds what was found is it.
    pub(crate) fn within(mut self, table: &str, value: &Value) -> Self {
        if let Problem::Rejected(rejected @ None, _) = &mut *self.problem {
            *rejected = Some(value.clone());
        }
        if let (true, Problem::Value { found: Found::Value(found), .. }, Some(entries)) =
            (self.key.is_empty(), &*self.problem, value.as_table())
        {
            let mut alike = entries.iter().filter(|(_, value)| *value == found);
            if let (Some((key, _)), None) = (alike.next(), alike.next()) {
                self.key.clone_from(key);
            }
        }
        self.inside(table)
    }

    /// The same, seen from the table that holds the key.
    pub(crate) fn inside(mut self, table: &str) -> Self {
        let joint = if self.key.is_empty() || self.key.starts_with('[') { "" } else { "." };
        self.key = format!("{table}{joint}{}", self.key);
        for near in self.near_mut().into_iter().flatten() {
            *near = format!("{table}.{near}");
        }
        self
    }
}

impl fmt::Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(formatter),
            Self::Words(words) => words.fmt(formatter),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message())?;
        match self.hint() {
            Some(hint) => write!(formatter, "\n{hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Error for ConfigError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::about("", Problem::Rejected(None, message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        // A whole number that does not fit is no other kind of value: it is too large.
        if let (Unexpected::Unsigned(number), Some(most)) = (found, most_of(&expected)) {
            return Self::new("", number, format!("a whole number up to {most}"));
        }
        // A flag's digits that no number of TOML holds have become text.
        if let (Unexpected::Str(text), "u8" | "u16" | "u32" | "u64" | "usize" | "i64") =
            (found, expected.as_str())
            && !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && text.parse::<i64>().is_err()
        {
            let most = most_of(&expected).unwrap_or(i64::MAX.unsigned_abs());
            return Self::new("", text, format!("a whole number up to {most}"));
        }
        let found = found_of(found);
        let expected = type_in_words(&expected).to_owned();
        Self::about("", Problem::Value { found, expected })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(found: usize, expected: &dyn Expected) -> Self {
        Self::new("", format!("a list of {found}"), expected)
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        let refusal = Self::value(found.into(), listed(known));
        match nearest(found, known) {
            Some(near) => refusal.with_hint(format_args!("the nearest is {near:?}")),
            None => refusal,
        }
    }

    fn unknown_field(found: &str, known: &'static [&'static str]) -> Self {
        let near = nearest(found, known).into_iter().map(str::to_owned).collect();
        Self::about(found, Problem::Unknown { known, near })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::missing(field, "a value")
    }
}

fn listed(known: &[&str]) -> String {
    if known.is_empty() { "none here".to_owned() } else { joined(known, "or") }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "serde has words for what TOML has not")]
fn found_of(found: Unexpected<'_>) -> Found {
    match found {
        Unexpected::Bool(truth) => Found::Value(truth.into()),
        // TOML has no larger ones.
        Unexpected::Unsigned(number) => Found::Value(number.cast_signed().into()),
        Unexpected::Signed(number) => Found::Value(number.into()),
        Unexpected::Float(number) => Found::Value(number.into()),
        Unexpected::Str(text) => Found::Value(text.into()),
        Unexpected::Seq => Found::Words("a list".to_owned()),
        Unexpected::Map => Found::Words("a table".to_owned()),
        other => Found::Words(other.to_string()),
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
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
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
    let best = known.iter().map(|known| (strsim::osa_distance(word, known), *known)).min()?;
    (best.0 <= (word.chars().count() / 3).max(1)).then_some(best.1)
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
        let refused = ConfigError::invalid_value(Unexpected::Unsigned(1 << 32), &"u32");
        let shown = refused.inside("federation.rounds").to_string();
        let expected =
            "federation.rounds: found 4294967296, expected a whole number up to 4294967295";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_number_in_quotes_is_shown_as_a_text() {
        for (text, name, expected) in [
            ("8", "u32", "key: found \"8\", a text, expected a whole number that is not negative"),
            ("0.5", "f64", "key: found \"0.5\", a text, expected a number"),
            ("true", "a boolean", "key: found \"true\", a text, expected true or false"),
            ("fast", "f64", "key: found \"fast\", expected a number"),
            (
                "99999999999999999999",
                "u64",
                "key: found 99999999999999999999, expected a whole number up to 9223372036854775807",
            ),
        ] {
            let refused = ConfigError::invalid_type(Unexpected::Str(text), &name);
            assert_eq!(refused.inside("key").to_string(), expected);
        }
    }

    #[test]
    fn every_message_reads_as_a_sentence() {
        let check = |refusal: ConfigError, expected: &str| {
            assert_eq!(refusal.within("table", &3.into()).to_string(), expected);
        };
        check(ConfigError::new("key", 3, "2"), "table.key: found 3, expected 2");
        check(ConfigError::missing("key", "a file"), "table.key is missing, expected a file");
        check(ConfigError::only("key", "to text"), "table.key applies only to text");
        check(ConfigError::excludes("key", "last"), "table.key cannot be combined with last");
        check(ConfigError::sentence("", "no room is left"), "table: no room is left");
        check(ConfigError::custom("expected more"), "table: found 3, expected more");
        check(
            ConfigError::unknown_field("key", &["first", "last"]),
            "table.key: unknown key, expected first or last",
        );
    }

    #[test]
    fn tables_are_named_from_the_outside_in() {
        let slip = ConfigError::unknown_field("raet", &["name", "rate"]);
        let shown = slip.inside("optimiser").inside("work").to_string();
        let expected = "work.optimiser.raet: unknown key\nhint: did you mean work.optimiser.rate?";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_value_in_a_buffered_table_finds_its_key() {
        let table: toml::Table = "name = 'sgd'\nrate = 'fast'".parse().expect("TOML");
        let wrong = ConfigError::invalid_type(Unexpected::Str("fast"), &"f64");
        let shown = wrong.within("optimiser", &table.into()).to_string();
        assert_eq!(shown, "optimiser.rate: found \"fast\", expected a number");
    }
}
