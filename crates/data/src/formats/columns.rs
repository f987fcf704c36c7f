//! Named columns: which field of a record is the text, the label, the client, the split.
//!
//! JSON lines, CSV, TSV and Parquet differ in how a record is written, not in what it means; each
//! turns a record into named [`Cell`]s and leaves the meaning to this file. A column that is named
//! must exist; one that is not named is looked up under its usual names and may be absent.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::fields::{Cell, Fields, NoRow, absent, single};
use super::options::{OPTIONS, WithOptions};
use super::prompt::{AnswerTemplates, ChoiceTemplates, Prompt};
use crate::{Answers, Body, LabelShape, Row, Split, Task};

/// The columns of a source. What is left out takes its usual name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Columns {
    /// The text; usually `text`, or `tokens`, `words` where labels are given word by word. Two
    /// columns are a pair of texts.
    pub text: Option<TextColumns>,
    /// The image, in place of a text: a path to a PNG or JPEG file, or in Parquet its bytes.
    pub image: Option<String>,
    /// The label or labels; usually `label`, `labels` or `tags`.
    #[serde(alias = "labels")]
    pub label: Option<String>,
    /// The messages of a conversation; usually `messages` or `conversations`.
    pub messages: Option<String>,
    /// What a user asks, where no column holds messages.
    pub prompt: Option<String>,
    /// What the assistant answers.
    pub answer: Option<String>,
    /// The answer that is preferred; usually `chosen`.
    pub chosen: Option<String>,
    /// The other answer; usually `rejected`.
    pub rejected: Option<String>,
    /// What a system message says; usually `system`.
    pub system: Option<String>,
    /// The party that owns the row; usually `client`.
    pub client: Option<String>,
    /// The part of the data; usually `split`.
    pub split: Option<String>,
    /// What must stay together; usually `document`.
    pub document: Option<String>,
    /// What stands between several labels in one cell; a semicolon unless given.
    pub separator: Option<char>,
    /// The list inside a JSON record of which each item is a row, as in `passage.questions`.
    pub rows: Option<String>,
}

/// The column that is read, or the two that are read together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected the name of a column, or a list of two different ones")]
pub enum TextColumns {
    /// One text a row.
    One(String),
    /// A pair of texts a row, such as a question and its context.
    Pair(#[serde(deserialize_with = "two_columns")] [String; 2]),
}

impl From<&str> for TextColumns {
    fn from(name: &str) -> Self {
        Self::One(name.to_owned())
    }
}

fn two_columns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[String; 2], D::Error> {
    let [first, second] = <[String; 2]>::deserialize(deserializer)?;
    if first == second { Err(D::Error::custom("one column twice")) } else { Ok([first, second]) }
}

impl Columns {
    /// The row that a record means for a task whose prompt and answers are written from it.
    pub(super) fn prompted_row(
        &self,
        prompt: &Prompt,
        fields: &mut dyn Fields,
    ) -> Result<Row, NoRow> {
        let options = match &prompt.answers {
            AnswerTemplates::Choices(ChoiceTemplates::Options(templates)) => {
                Some((templates, templates.read(fields)?))
            }
            AnswerTemplates::Choices(_) | AnswerTemplates::Target(_) => None,
        };
        let body = Body::Text(match &options {
            Some((_, options)) => prompt
                .prompt
                .render(&mut WithOptions { fields: &mut *fields, written: options.written() })?,
            None => prompt.prompt.render(fields)?,
        });
        let mut values = Vec::new();
        for name in prompt.prompt.columns().filter(|name| options.is_none() || *name != OPTIONS) {
            values.extend(fields.take(name)?.map(|cell| single(cell, "")));
        }
        if !values.is_empty() && values.iter().all(|value| value.trim().is_empty()) {
            let found = "no text in the columns of the prompt".to_owned();
            let mismatch = (found, "at least one word".to_owned());
            return Err(NoRow { mismatch, is_missing: true, advice: None });
        }
        let (labels, answers) = match &prompt.answers {
            AnswerTemplates::Choices(choices) => {
                let label = find(fields, ("label", self.label.as_deref()), &["label"])?
                    .ok_or_else(|| absent(fields, &["label"], Some("label")))?;
                let label = single(label, " ");
                match &options {
                    Some((templates, options)) => {
                        let right = templates.right(&label, options)?;
                        (vec![right], Answers::Choice(templates.answers(options)))
                    }
                    None => (vec![label], choices.render(fields)?),
                }
            }
            AnswerTemplates::Target(target) => (Vec::new(), Answers::Text(target.render(fields)?)),
        };
        self.placed(Row { labels, answers, ..Row::of(body) }, fields)
    }

    /// The row that a record means for a task.
    pub(super) fn row(&self, task: Task, fields: &mut dyn Fields) -> Result<Row, NoRow> {
        let shape = task.shape();
        let texts: &[&str] = match shape {
            LabelShape::PerWord => &["tokens", "words", "text"],
            LabelShape::Many | LabelShape::One | LabelShape::Absent => &["text"],
        };
        let (text, second) = match &self.text {
            None => (find(fields, ("text", None), texts)?, None),
            Some(TextColumns::One(name)) => (find(fields, ("text", Some(name)), texts)?, None),
            Some(TextColumns::Pair([first, second])) => (
                find(fields, ("text", Some(first)), texts)?,
                find(fields, ("text", Some(second)), texts)?,
            ),
        };
        let text = text.ok_or_else(|| absent(fields, texts, Some("text")))?;
        let body = match (shape, second) {
            (_, Some(second)) => Body::Pair(single(text, "\n"), single(second, "\n")),
            (LabelShape::PerWord, None) => Body::Words(words(text)),
            (LabelShape::One | LabelShape::Many | LabelShape::Absent, None) => {
                Body::Text(single(text, "\n"))
            }
        };
        self.labelled_row(body, task, fields)
    }

    /// The row of a body that was found, with its labels.
    pub(super) fn labelled_row(
        &self,
        body: Body,
        task: Task,
        fields: &mut dyn Fields,
    ) -> Result<Row, NoRow> {
        let shape = task.shape();
        let labels: &[&str] = match shape {
            LabelShape::PerWord => &["tags", "labels"],
            LabelShape::Many => &["labels", "label"],
            LabelShape::One | LabelShape::Absent => &["label"],
        };
        let label = match shape {
            LabelShape::Absent => None,
            LabelShape::One | LabelShape::PerWord => {
                let label = find(fields, ("label", self.label.as_deref()), labels)?;
                Some(label.ok_or_else(|| absent(fields, labels, Some("label")))?)
            }
            LabelShape::Many => find(fields, ("label", self.label.as_deref()), labels)?,
        };
        let labels = match (shape, label) {
            (_, None) => Vec::new(),
            (LabelShape::PerWord, Some(cell)) => words(cell),
            (LabelShape::Many, Some(cell)) => self.several(cell),
            (LabelShape::One | LabelShape::Absent, Some(Cell::One(label))) => vec![label],
            (LabelShape::One | LabelShape::Absent, Some(Cell::List(labels))) => labels,
        };
        self.placed(Row { labels, ..Row::of(body) }, fields)
    }

    /// The row with its client, split and document.
    pub(super) fn placed(&self, row: Row, fields: &mut dyn Fields) -> Result<Row, NoRow> {
        let mut name_in = |named: &Option<String>, usual: &str| -> Result<_, NoRow> {
            // A row without a client or a document is no row without a label: it is never left out.
            let cell = find(fields, (usual, named.as_deref()), &[usual]);
            let cell = cell.map_err(|no_row| NoRow { is_missing: false, ..no_row })?;
            Ok(cell.map(|cell| single(cell, " ")).filter(|name| !name.trim().is_empty()))
        };
        let split = name_in(&self.split, "split")?.map(|name| {
            Split::parse(name.trim())
                .ok_or_else(|| (format!("split {name:?}"), "train, validation or test".to_owned()))
        });
        let client = name_in(&self.client, "client")?;
        let document = name_in(&self.document, "document")?;
        Ok(Row { client, split: split.transpose()?, document, ..row })
    }

    fn several(&self, cell: Cell) -> Vec<String> {
        match cell {
            Cell::List(labels) => labels,
            Cell::One(text) => {
                let parts = text.split(self.separator.unwrap_or(';')).map(str::trim);
                parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
            }
        }
    }
}

/// The field of a role, by the name that a key gives it or by its usual names.
fn find(
    fields: &mut dyn Fields,
    (key, named): (&str, Option<&str>),
    usual: &[&str],
) -> Result<Option<Cell>, NoRow> {
    if let Some(name) = named {
        let cell = fields.take(name)?;
        if cell.is_none() {
            // Another name is of use only where the name is wrong.
            let is_unknown = !fields.names().contains(&name);
            return Err(absent(fields, &[name], is_unknown.then_some(key)));
        }
        return Ok(cell);
    }
    for name in usual {
        if let Some(cell) = fields.take(name)? {
            return Ok(Some(cell));
        }
    }
    Ok(None)
}

fn words(cell: Cell) -> Vec<String> {
    match cell {
        Cell::List(words) => words,
        Cell::One(text) => text.split_whitespace().map(str::to_owned).collect(),
    }
}
