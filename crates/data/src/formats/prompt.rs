//! Prompts and answers written from the columns of a record.
//!
//! A template is text with columns in braces, so that rows of any origin can be asked in the words
//! that suit a model, without a reader for each collection:
//!
//! ```
//! use fedra_data::PromptTemplate;
//! let prompt = PromptTemplate::parse("{premise}\nQuestion: {hypothesis} True or False?\nAnswer:")?;
//! assert_eq!(prompt.columns().collect::<Vec<_>>(), ["premise", "hypothesis"]);
//! # Ok::<(), String>(())
//! ```
//! `{{` and `}}` stand for the braces themselves.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::fields::{Cell, Fields, NoRow, absent, single};
use super::options::{AnswerBy, MOST_LISTED, OPTIONS, OptionColumns, OptionTemplates};
use crate::Answers;

/// How a record becomes a prompt and its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// What the model reads.
    pub prompt: PromptTemplate,
    /// What may follow.
    pub answers: AnswerTemplates,
}

/// What follows a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerTemplates {
    /// One of several answers.
    Choices(ChoiceTemplates),
    /// The text that should be written.
    Target(PromptTemplate),
}

/// The answers among which a label chooses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ChoiceTemplates {
    /// A text for each label.
    ByLabel(BTreeMap<String, PromptTemplate>),
    /// Texts whose labels are their places, counted from 0.
    InOrder(Vec<PromptTemplate>),
    /// The column that lists a row's own answers; the label is the place of the right one, from 0.
    Column(String),
    /// Options with letters, as in multiple choice; the label is the letter of the right one.
    Options(OptionTemplates),
}

impl ChoiceTemplates {
    /// The labels, where they do not depend on the rows.
    pub fn labels(&self) -> Option<Vec<String>> {
        match self {
            Self::ByLabel(texts) => Some(texts.keys().cloned().collect()),
            Self::InOrder(texts) => Some((0..texts.len()).map(|n| n.to_string()).collect()),
            Self::Column(_) => None,
            Self::Options(templates) => templates.labels(),
        }
    }

    pub(super) fn render(&self, fields: &mut dyn Fields) -> Result<Answers, NoRow> {
        let answers = match self {
            Self::ByLabel(texts) => texts
                .iter()
                .map(|(label, text)| Ok((label.clone(), text.render(fields)?)))
                .collect::<Result<_, NoRow>>()?,
            Self::InOrder(texts) => (0..)
                .zip(texts)
                .map(|(place, text): (usize, _)| Ok((place.to_string(), text.render(fields)?)))
                .collect::<Result<_, NoRow>>()?,
            Self::Column(name) => match fields.take(name)? {
                Some(Cell::List(texts)) if texts.len() <= MOST_LISTED => {
                    (0..).zip(texts).map(|(n, text): (usize, _)| (n.to_string(), text)).collect()
                }
                Some(Cell::List(texts)) => {
                    let found = format!("{} answers in {name:?}", texts.len());
                    return Err((found, format!("at most {MOST_LISTED}")).into());
                }
                Some(Cell::One(_)) => {
                    let found = format!("a single value in {name:?}");
                    return Err((found, "a list of answers".to_owned()).into());
                }
                None => return Err(absent(fields, &[name], None)),
            },
            Self::Options(templates) => templates.answers(&templates.read(fields)?),
        };
        Ok(Answers::Choice(answers))
    }
}

/// Text with columns in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptTemplate {
    written: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Column(String),
}

impl PromptTemplate {
    /// The template of a text; tells what is wrong with its braces.
    pub fn parse(written: &str) -> Result<Self, String> {
        let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), written);
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(&rest[..at]);
            let (brace, behind) = rest[at..].split_at(1);
            if let Some(after) = behind.strip_prefix(brace) {
                text.push_str(brace);
                rest = after;
                continue;
            }
            let named = if brace == "{" { behind.split_once('}') } else { None };
            let legal = |name: &str| !name.trim().is_empty() && !name.contains(['{', '\n']);
            let Some((name, after)) = named.filter(|(name, _)| legal(name)) else {
                let place: String = rest[at..].chars().take(20).collect();
                return Err(format!(
                    "{place:?} in a template, expected a column between braces ({brace}{brace} \
                     stands for a brace)"
                ));
            };
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Column(name.trim().to_owned()));
            rest = after;
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        if pieces.is_empty() {
            return Err("an empty text, expected words and columns".to_owned());
        }
        Ok(Self { written: written.to_owned(), pieces })
    }

    /// The columns that it names, in their order.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Column(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    pub(super) fn render(&self, fields: &mut dyn Fields) -> Result<String, NoRow> {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Column(name) => match fields.take(name)? {
                    Some(cell) => out.push_str(&single(cell, "\n")),
                    None => return Err(absent(fields, &[name], None)),
                },
            }
        }
        Ok(out)
    }
}

impl Serialize for PromptTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PromptTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ChoiceTemplates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChoiceVisitor)
    }
}

struct ChoiceVisitor;

impl<'de> Visitor<'de> for ChoiceVisitor {
    type Value = ChoiceTemplates;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(
            "labels with their texts, a list of texts, the column that lists them, or { options = .. }",
        )
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<ChoiceTemplates, E> {
        if name.contains(['{', '}']) {
            let found = format!("{name:?}, expected a column's name, or a list of texts");
            return Err(E::custom(found));
        }
        Ok(ChoiceTemplates::Column(name.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, texts: A) -> Result<ChoiceTemplates, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(texts)).map(ChoiceTemplates::InOrder)
    }

    fn visit_map<A: MapAccess<'de>>(self, texts: A) -> Result<ChoiceTemplates, A::Error> {
        let values: BTreeMap<String, Value> =
            BTreeMap::deserialize(MapAccessDeserializer::new(texts))?;
        if values.contains_key(OPTIONS) {
            return options(values).map(ChoiceTemplates::Options).map_err(A::Error::custom);
        }
        let template = |(label, value): (String, Value)| match value {
            Value::Text(text) => {
                Ok((label, PromptTemplate::parse(&text).map_err(A::Error::custom)?))
            }
            Value::List(_) | Value::Number(_) => {
                Err(A::Error::custom(format!("a value of {label:?} that is no text")))
            }
        };
        values.into_iter().map(template).collect::<Result<_, _>>().map(ChoiceTemplates::ByLabel)
    }
}

/// A value of a table of answers.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text, or for options a list of columns or a number")]
enum Value {
    Text(String),
    List(Vec<String>),
    Number(u32),
}

/// The keys of options: `{ options = "choices", by = "text", first = 1 }`.
fn options(mut values: BTreeMap<String, Value>) -> Result<OptionTemplates, String> {
    let options = match values.remove(OPTIONS) {
        Some(Value::Text(column)) => OptionColumns::In(column),
        Some(Value::List(columns)) if (2..=MOST_LISTED).contains(&columns.len()) => {
            OptionColumns::Each(columns)
        }
        Some(Value::List(columns)) => {
            let found = columns.len();
            return Err(format!("{found} columns in options, expected 2 to {MOST_LISTED}"));
        }
        Some(Value::Number(_)) | None => {
            return Err("options that name no column, expected a column or a list of them".into());
        }
    };
    let by = match values.remove("by") {
        None => AnswerBy::default(),
        Some(Value::Text(text)) => AnswerBy::ALL
            .into_iter()
            .find(|by| by.name() == text)
            .ok_or_else(|| format!("by = {text:?}, expected \"letter\" or \"text\""))?,
        Some(_) => return Err("by that is no text, expected \"letter\" or \"text\"".to_owned()),
    };
    let first = match values.remove("first") {
        None => 0,
        Some(Value::Number(number)) if number <= 1 => number,
        Some(_) => return Err("first, expected 0 or 1: the number of the first option".to_owned()),
    };
    match values.keys().next() {
        None => Ok(OptionTemplates { options, by, first }),
        Some(key) => Err(format!("the key {key:?} beside options, expected by or first")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::nested::Nested;

    fn fields(json: &str) -> serde_json::Map<String, serde_json::Value> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn columns_stand_in_braces_and_braces_are_doubled() {
        let template = PromptTemplate::parse("a {{b}} {c}{ d }.").unwrap();
        let record = fields(r#"{"c": "x", "d": ["y", 2]}"#);
        assert_eq!(template.render(&mut Nested::whole(&record)).unwrap(), "a {b} xy\n2.");
    }

    #[test]
    fn an_open_brace_is_refused_with_its_place() {
        for wrong in ["{", "a {b", "{}", "{ }", "a } b", "{a\nb}", "{a} {b", "{a{b}"] {
            let refused = PromptTemplate::parse(wrong).unwrap_err();
            assert!(refused.contains("expected"), "{wrong}: {refused}");
        }
        assert!(PromptTemplate::parse("").is_err());
        assert!(PromptTemplate::parse("{a} b {a}").is_ok());
    }

    #[test]
    fn a_missing_column_is_named_beside_those_there_are() {
        let template = PromptTemplate::parse("{premise}").unwrap();
        let refused = template.render(&mut Nested::whole(&fields(r#"{"text": "x"}"#))).unwrap_err();
        let (found, expected) = refused.mismatch;
        assert_eq!(
            (found.as_str(), expected.as_str()),
            ("the columns \"text\"", "column \"premise\"")
        );
    }

    #[test]
    fn options_are_told_from_labels_by_their_key() {
        let read = |json: &str| serde_json::from_str::<ChoiceTemplates>(json);
        let options =
            |options, by, first| ChoiceTemplates::Options(OptionTemplates { options, by, first });
        let column = OptionColumns::In("choices".to_owned());
        let each = OptionColumns::Each(vec!["opa".to_owned(), "opb".to_owned()]);
        let found = read(r#"{"options": "choices"}"#).unwrap();
        assert_eq!(found, options(column, AnswerBy::Letter, 0));
        assert_eq!(found.labels(), None);
        let found = read(r#"{"options": ["opa", "opb"], "by": "text", "first": 1}"#).unwrap();
        assert_eq!(found, options(each, AnswerBy::Text, 1));
        assert_eq!(found.labels().unwrap(), ["A", "B"]);
        let written = serde_json::to_string(&found).unwrap();
        assert_eq!(read(&written).unwrap(), found);
        for (wrong, told) in [
            (r#"{"options": ["a"]}"#, "1 columns in options, expected 2 to 10"),
            (r#"{"options": 3}"#, "options that name no column"),
            (r#"{"options": "c", "by": "word"}"#, "by = \"word\", expected \"letter\" or \"text\""),
            (r#"{"options": "c", "first": 2}"#, "expected 0 or 1"),
            (r#"{"options": "c", "no": "x"}"#, "the key \"no\" beside options"),
            (r#"{"yes": ["a"], "no": "x"}"#, "a value of \"yes\" that is no text"),
        ] {
            let refused = read(wrong).unwrap_err().to_string();
            assert!(refused.contains(told), "{wrong}: {refused}");
        }
    }

    #[test]
    fn answers_are_written_as_a_table_a_list_or_a_column() {
        let read = |json: &str| serde_json::from_str::<ChoiceTemplates>(json);
        let record = r#"{"x": "one", "y": "two", "all": ["p", "q", "r"]}"#;
        let render = |json: &str| match read(json)
            .unwrap()
            .render(&mut Nested::whole(&fields(record)))
            .unwrap()
        {
            Answers::Choice(answers) => answers,
            Answers::Absent | Answers::Text(_) | Answers::Preference(_) => panic!("choices"),
        };
        let pair = |label: &str, text: &str| (label.to_owned(), text.to_owned());
        assert_eq!(
            render(r#"{"true": "yes", "false": "no"}"#),
            [pair("false", "no"), pair("true", "yes")]
        );
        assert_eq!(render(r#"["{x}", "{y}!"]"#), [pair("0", "one"), pair("1", "two!")]);
        assert_eq!(render(r#""all""#), [pair("0", "p"), pair("1", "q"), pair("2", "r")]);
        assert!(read("3").is_err() && read(r#""{x}""#).is_err());
        let refused =
            read(r#""x""#).unwrap().render(&mut Nested::whole(&fields(record))).unwrap_err();
        let (found, _) = refused.mismatch;
        assert_eq!(found, "a single value in \"x\"");
    }
}
