//! Multiple choice: the options of a row, each with a letter, and which of them is right.
//!
//! | set | options | the right one |
//! | --- | --- | --- |
//! | `MedMCQA` | columns `opa`, `opb`, `opc`, `opd` | `cop`, a place |
//! | `MedQA` | `options`, an object by letter | `answer_idx`, a letter |
//! | `MMLU` | `choices`, a list | `answer`, a place or a letter |
//! | `ARC` | `choices`, an object with the lists `text` and `label` | `answerKey`, one of `label` |
//!
//! Whatever a set calls them, options are lettered from A in their order, and labels are these letters.

use serde::{Deserialize, Serialize};

use super::fields::{Cell, Fields, NoRow, absent, single};
use crate::words::words;

/// More answers than this in one column are a mistake, and their places would not sort as text.
pub(super) const MOST_LISTED: usize = 10;
/// What a prompt calls the options with their letters.
pub(super) const OPTIONS: &str = "options";

words! {
    /// What a model is asked the likelihood of.
    #[derive(Default)]
    pub enum AnswerBy {
        /// The letter of each option.
        #[default]
        Letter = "letter",
        /// The text of each option.
        Text = "text",
    }
}

/// Where the options of a row are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionColumns {
    /// A column for each.
    Each(Vec<String>),
    /// One column: a list, an object by letter, or an object with the lists `text` and `label`.
    In(String),
}

/// How a row's options become answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OptionTemplates {
    /// Where they are.
    pub options: OptionColumns,
    /// What is compared.
    pub by: AnswerBy,
    /// The number of the first, where numbers say which is right.
    pub first: u32,
}

/// An option as a row has it.
struct Listed {
    /// What the row calls it.
    name: Option<String>,
    text: String,
}

/// The options of one row.
pub(super) struct RowOptions(Vec<Listed>);

/// The letter of a place.
fn letter(place: usize) -> String {
    char::from(b'A' + (place % 26) as u8).to_string()
}

impl OptionTemplates {
    /// The labels, where they do not depend on the rows.
    pub fn labels(&self) -> Option<Vec<String>> {
        match &self.options {
            OptionColumns::Each(columns) => Some((0..columns.len()).map(letter).collect()),
            OptionColumns::In(_) => None,
        }
    }

    /// The options of a row.
    pub(super) fn read(&self, fields: &mut dyn Fields) -> Result<RowOptions, NoRow> {
        let listed = match &self.options {
            OptionColumns::Each(columns) => each(columns, fields)?,
            OptionColumns::In(column) => inside(column, fields)?,
        };
        if !(2..=MOST_LISTED).contains(&listed.len()) {
            let found = format!("{} options", listed.len());
            return Err((found, format!("2 to {MOST_LISTED}")).into());
        }
        Ok(RowOptions(listed))
    }

    /// Each letter with what is compared.
    pub(super) fn answers(&self, options: &RowOptions) -> Vec<(String, String)> {
        let answer = |(place, option): (usize, &Listed)| {
            let text = match self.by {
                AnswerBy::Letter => letter(place),
                AnswerBy::Text => option.text.clone(),
            };
            (letter(place), text)
        };
        options.0.iter().enumerate().map(answer).collect()
    }

    /// The letter of the right option: by the name that the row gives it, by a letter, by a number, or by its text.
    pub(super) fn right(
        &self,
        said: &str,
        RowOptions(options): &RowOptions,
    ) -> Result<String, NoRow> {
        let said = said.trim();
        let named = options.iter().position(|option| option.name.as_deref() == Some(said));
        let lettered =
            || (0..options.len()).find(|&place| letter(place).eq_ignore_ascii_case(said));
        let number = said.parse::<f64>().ok().filter(|number| number.fract() == 0.0);
        let numbered = || {
            let place = number? - f64::from(self.first);
            (0..options.len()).find(|&at| at as f64 == place)
        };
        let worded = || options.iter().position(|option| option.text.trim() == said);
        let found = named.or_else(lettered).or_else(numbered).or_else(worded);
        if let Some(place) = found {
            return Ok(letter(place));
        }
        let last = letter(options.len() - 1);
        let expected = format!(
            "a letter from A to {last}, a number from {}, or the text of an option",
            self.first
        );
        let mismatch = (format!("the right answer {said:?}"), expected);
        // Sets whose answers are kept secret say -1.
        let is_missing = said.is_empty() || number.is_some_and(|number| number < 0.0);
        Err(NoRow { mismatch, is_missing, advice: None })
    }
}

impl RowOptions {
    /// A line for each: its letter and its text.
    pub fn written(&self) -> String {
        let line =
            |(place, option): (usize, &Listed)| format!("{}. {}", letter(place), option.text);
        self.0.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Options in a column each; the last ones may be empty, as in sets with four or five.
fn each(columns: &[String], fields: &mut dyn Fields) -> Result<Vec<Listed>, NoRow> {
    let mut listed: Vec<Listed> = Vec::new();
    for (place, column) in columns.iter().enumerate() {
        let cell = fields.take(column)?.map(|cell| single(cell, "\n"));
        match cell.filter(|text| !text.trim().is_empty()) {
            Some(_) if listed.len() < place => {
                return Err(absent(fields, &[&columns[listed.len()]], None));
            }
            Some(text) => listed.push(Listed { name: None, text }),
            None if fields.are_columns() && !fields.names().contains(&column.as_str()) => {
                return Err(absent(fields, &[column], None));
            }
            None => {}
        }
    }
    Ok(listed)
}

/// Options in one column, however it holds them.
fn inside(column: &str, fields: &mut dyn Fields) -> Result<Vec<Listed>, NoRow> {
    // A path into what is no object is an error of some readers, and no answer of others.
    let mut take = |name: &str| fields.take(name).ok().flatten();
    if let Some(Cell::List(texts)) = take(&format!("{column}.text")) {
        let names = match take(&format!("{column}.label")) {
            Some(Cell::List(names)) if names.len() == texts.len() => {
                names.into_iter().map(Some).collect()
            }
            Some(_) | None => vec![None; texts.len()],
        };
        let listed = names.into_iter().zip(texts).map(|(name, text)| Listed { name, text });
        return Ok(listed.collect());
    }
    let lettered: Vec<Listed> = (0..=MOST_LISTED)
        .map_while(|place| {
            let cell = take(&format!("{column}.{}", letter(place)))?;
            Some(Listed { name: Some(letter(place)), text: single(cell, "\n") })
        })
        .collect();
    if !lettered.is_empty() {
        return Ok(lettered);
    }
    match fields.take(column)? {
        Some(Cell::List(texts)) => {
            Ok(texts.into_iter().map(|text| Listed { name: None, text }).collect())
        }
        Some(Cell::One(_)) => {
            let found = format!("a single value in {column:?}");
            Err((found, "a list of options, or an object by letter".to_owned()).into())
        }
        None => Err(absent(fields, &[column], None)),
    }
}

/// The fields of a row, and its options with their letters as one more.
pub(super) struct WithOptions<'f> {
    pub fields: &'f mut dyn Fields,
    pub written: String,
}

impl Fields for WithOptions<'_> {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, crate::error::Mismatch> {
        if name == OPTIONS {
            return Ok(Some(Cell::One(self.written.clone())));
        }
        self.fields.take(name)
    }

    fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, crate::error::Mismatch> {
        self.fields.bytes(name)
    }

    fn messages(
        &mut self,
        name: &str,
    ) -> Result<Option<Vec<crate::Message>>, crate::error::Mismatch> {
        self.fields.messages(name)
    }

    fn names(&self) -> Vec<&str> {
        self.fields.names()
    }

    fn are_columns(&self) -> bool {
        self.fields.are_columns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::nested::Nested;

    fn templates(options: OptionColumns, first: u32) -> OptionTemplates {
        OptionTemplates { options, by: AnswerBy::Letter, first }
    }

    fn each_of(names: &[&str]) -> OptionColumns {
        OptionColumns::Each(names.iter().map(ToString::to_string).collect())
    }

    /// The options as they are written, and the right one.
    fn read(
        templates: &OptionTemplates,
        record: &str,
        said: &str,
    ) -> Result<(String, String), NoRow> {
        let record: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(record).unwrap();
        let options = templates.read(&mut Nested::whole(&record))?;
        Ok((options.written(), templates.right(said, &options)?))
    }

    #[test]
    fn the_usual_sets_read_alike() {
        let medmcqa = templates(each_of(&["opa", "opb", "opc", "opd"]), 0);
        let from_one = OptionTemplates { first: 1, ..medmcqa.clone() };
        let one = |name: &str| templates(OptionColumns::In(name.to_owned()), 0);
        let flat = r#"{"opa": "w", "opb": "x", "opc": "y", "opd": "z"}"#;
        let by_letter = r#"{"options": {"A": "w", "B": "x", "C": "y", "D": "z"}}"#;
        let list = r#"{"choices": ["w", "x", "y", "z"]}"#;
        let two = r#"{"choices": {"text": ["w", "x", "y", "z"], "label": ["1", "2", "3", "4"]}}"#;
        for (templates, record, said) in [
            (&medmcqa, flat, "2"),
            (&from_one, flat, "3"),
            (&one("options"), by_letter, "C"),
            (&one("choices"), list, "2"),
            (&one("choices"), list, "2.0"),
            (&one("choices"), list, "c"),
            (&one("choices"), list, "y"),
            (&one("choices"), two, "3"),
        ] {
            let found = read(templates, record, said).unwrap_or_else(|no| panic!("{said}: {no:?}"));
            assert_eq!(found, ("A. w\nB. x\nC. y\nD. z".into(), "C".into()), "{record} {said}");
        }
    }

    #[test]
    fn answers_that_are_no_option_are_refused_and_secret_ones_are_missing() {
        let medmcqa = templates(each_of(&["opa", "opb", "opc"]), 0);
        let flat = r#"{"opa": "w", "opb": "x", "opc": null}"#;
        assert_eq!(read(&medmcqa, flat, "B").unwrap().0, "A. w\nB. x");
        for (said, is_missing) in
            [("2", false), ("C", false), ("-1", true), ("", true), ("wx", false)]
        {
            let no = read(&medmcqa, flat, said).unwrap_err();
            assert_eq!(no.is_missing, is_missing, "{said}: {no:?}");
        }
        for record in [r#"{"opa": "w"}"#, r#"{"opa": "w", "opb": " ", "opc": "y"}"#, "{}"] {
            assert!(read(&medmcqa, record, "A").is_err(), "{record}");
        }
        let list = templates(OptionColumns::In("choices".into()), 0);
        for record in [r#"{"choices": "w"}"#, r#"{"choices": ["w"]}"#, r#"{"choices": {"x": 1}}"#] {
            assert!(read(&list, record, "A").is_err(), "{record}");
        }
    }

    #[test]
    fn letters_or_texts_are_compared() {
        let templates = templates(OptionColumns::In("c".into()), 0);
        let record = serde_json::from_str(r#"{"c": ["w", "x"]}"#).unwrap();
        let options = templates.read(&mut Nested::whole(&record)).unwrap();
        let pair = |label: &str, text: &str| (label.to_owned(), text.to_owned());
        assert_eq!(templates.answers(&options), [pair("A", "A"), pair("B", "B")]);
        let by_text = OptionTemplates { by: AnswerBy::Text, ..templates };
        assert_eq!(by_text.answers(&options), [pair("A", "w"), pair("B", "x")]);
    }
}
