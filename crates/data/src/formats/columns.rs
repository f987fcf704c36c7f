//! Named columns: which field of a record is the text, the label, the client, the split.
//!
//! JSON lines, CSV, TSV and Parquet differ in how a record is written, not in what it means; each
//! turns a record into named [`Cell`]s and leaves the meaning to this file. A column that is named
//! must exist; one that is not named is looked up under its usual names and may be absent.

use std::collections::BTreeMap;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::prompt::{AnswerTemplates, Prompt};
use crate::{Answers, Body, LabelShape, Row, Split, Task};

/// The columns of a source. What is left out takes its usual name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Columns {
    /// The text; usually `text`, or `tokens`, `words` where labels are given word by word. Two
    /// columns are a pair of texts.
    pub text: Option<TextColumns>,
    /// The label or labels; usually `label`, `labels` or `tags`.
    #[serde(alias = "labels")]
    pub label: Option<String>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextColumns {
    /// One text a row.
    One(String),
    /// A pair of texts a row, such as a question and its context.
    Pair([String; 2]),
}

impl From<&str> for TextColumns {
    fn from(name: &str) -> Self {
        Self::One(name.to_owned())
    }
}

impl Serialize for TextColumns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(name) => name.serialize(serializer),
            Self::Pair(names) => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for TextColumns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = TextColumns;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("the name of a column, or a list of two")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<TextColumns, E> {
        Ok(name.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<TextColumns, A::Error> {
        let mut all: Vec<String> = Vec::new();
        while let Some(name) = names.next_element()? {
            all.push(name);
        }
        if let [first, second] = all.as_slice()
            && first == second
        {
            return Err(A::Error::custom(format!("{first:?} twice, expected two columns")));
        }
        let count = all.len();
        let pair = <[String; 2]>::try_from(all);
        pair.map(TextColumns::Pair).map_err(|_| A::Error::invalid_length(count, &self))
    }
}

/// One field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// A single value.
    One(String),
    /// A list of values.
    List(Vec<String>),
}

/// Most columns that a complaint lists.
const MOST_NAMES: usize = 12;

/// What is wrong with a record: found, expected.
pub(super) type Complaint = (String, String);

/// Why a record makes no row.
#[derive(Debug)]
pub(super) enum NoRow {
    /// It has no text or no label: what becomes of it is `data.missing`'s to say.
    Missing(Complaint),
    /// It does not read as it should.
    Wrong(Complaint),
}

impl NoRow {
    /// The same, with a hint behind what was expected.
    pub fn hinting(self, hint: &str) -> Self {
        let add = |(found, expected): Complaint| (found, format!("{expected}{hint}"));
        match self {
            Self::Missing(complaint) => Self::Missing(add(complaint)),
            Self::Wrong(complaint) => Self::Wrong(add(complaint)),
        }
    }

    /// What it says, whichever it is.
    #[cfg(test)]
    pub fn complaint(self) -> Complaint {
        match self {
            Self::Missing(complaint) | Self::Wrong(complaint) => complaint,
        }
    }
}

impl From<Complaint> for NoRow {
    fn from(complaint: Complaint) -> Self {
        Self::Wrong(complaint)
    }
}

/// The fields of one record by name.
pub(super) trait Fields {
    /// Takes a field out; `Ok(None)` when it is absent or null.
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Complaint>;

    /// The names of all fields, taken or not.
    fn names(&self) -> Vec<&str>;

    /// Whether every record has the same fields, as rows of a table do: one that is not there is then
    /// no value that a single row lacks.
    fn are_columns(&self) -> bool;
}

/// Fields that may be asked for more than once: a template may name what is also the label.
struct Kept<'a> {
    inner: &'a mut dyn Fields,
    taken: BTreeMap<String, Option<Cell>>,
}

impl<'a> Kept<'a> {
    fn new(inner: &'a mut dyn Fields) -> Self {
        Self { inner, taken: BTreeMap::new() }
    }
}

impl Fields for Kept<'_> {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Complaint> {
        if let Some(cell) = self.taken.get(name) {
            return Ok(cell.clone());
        }
        let cell = self.inner.take(name)?;
        self.taken.insert(name.to_owned(), cell.clone());
        Ok(cell)
    }

    fn names(&self) -> Vec<&str> {
        self.inner.names()
    }

    fn are_columns(&self) -> bool {
        self.inner.are_columns()
    }
}

impl Columns {
    /// The row that a record means for a task whose prompt and answers are written from it.
    pub(super) fn prompted_row(
        &self,
        prompt: &Prompt,
        fields: &mut dyn Fields,
    ) -> Result<Row, NoRow> {
        let fields = &mut Kept::new(fields);
        let body = Body::Text(prompt.prompt.render(fields)?);
        let mut values = Vec::new();
        for name in prompt.prompt.columns() {
            values.extend(fields.take(name)?.map(|cell| single(cell, "")));
        }
        if !values.is_empty() && values.iter().all(|value| value.trim().is_empty()) {
            let found = "no text in the columns of the prompt".to_owned();
            return Err(NoRow::Missing((found, "at least one word".to_owned())));
        }
        let (labels, answers) = match &prompt.answers {
            AnswerTemplates::Choices(choices) => {
                let label = find(fields, self.label.as_deref(), &["label"])?
                    .ok_or_else(|| absent(fields, &["label"], Some("label")))?;
                (vec![single(label, " ")], choices.render(fields)?)
            }
            AnswerTemplates::Target(target) => (Vec::new(), Answers::Text(target.render(fields)?)),
        };
        self.placed(Row { labels, answers, ..Row::of(body) }, fields)
    }

    /// The row that a record means for a task.
    pub(super) fn row(&self, task: Task, fields: &mut dyn Fields) -> Result<Row, NoRow> {
        let shape = task.shape();
        let (texts, labels): (&[&str], &[&str]) = match shape {
            LabelShape::PerWord => (&["tokens", "words", "text"], &["tags", "labels"]),
            LabelShape::Many => (&["text"], &["labels", "label"]),
            LabelShape::One | LabelShape::Absent => (&["text"], &["label"]),
        };
        let (text, second) = match &self.text {
            None => (find(fields, None, texts)?, None),
            Some(TextColumns::One(name)) => (find(fields, Some(name), texts)?, None),
            Some(TextColumns::Pair([first, second])) => {
                (find(fields, Some(first), texts)?, find(fields, Some(second), texts)?)
            }
        };
        let text = text.ok_or_else(|| absent(fields, texts, Some("text")))?;
        let label = match shape {
            LabelShape::Absent => None,
            LabelShape::One | LabelShape::PerWord => {
                let label = find(fields, self.label.as_deref(), labels)?;
                Some(label.ok_or_else(|| absent(fields, labels, Some("label")))?)
            }
            LabelShape::Many => find(fields, self.label.as_deref(), labels)?,
        };
        let body = match (shape, second) {
            (_, Some(second)) => Body::Pair(single(text, "\n"), single(second, "\n")),
            (LabelShape::PerWord, None) => Body::Words(words(text)),
            (LabelShape::One | LabelShape::Many | LabelShape::Absent, None) => {
                Body::Text(single(text, "\n"))
            }
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
    fn placed(&self, row: Row, fields: &mut dyn Fields) -> Result<Row, NoRow> {
        let mut name_in = |named: &Option<String>, usual| {
            // A row without a client or a document is no row without a label: it is never left out.
            let cell = match find(fields, named.as_deref(), &[usual]) {
                Err(NoRow::Missing(complaint)) => return Err(NoRow::Wrong(complaint)),
                other => other?,
            };
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

fn find(
    fields: &mut dyn Fields,
    named: Option<&str>,
    usual: &[&str],
) -> Result<Option<Cell>, NoRow> {
    if let Some(name) = named {
        return match fields.take(name)? {
            Some(cell) => Ok(Some(cell)),
            None => Err(absent(fields, &[name], None)),
        };
    }
    for name in usual {
        if let Some(cell) = fields.take(name)? {
            return Ok(Some(cell));
        }
    }
    Ok(None)
}

/// Why a record without a value for any of these columns makes no row: the row lacks it, or the table
/// has no such column.
pub(super) fn absent(fields: &dyn Fields, names: &[&str], key: Option<&str>) -> NoRow {
    let there = fields.names();
    let name = names.iter().find(|name| there.contains(name)).unwrap_or(&names[0]);
    let complaint = missing(fields, name, key);
    if fields.are_columns() && !there.contains(name) {
        NoRow::Wrong(complaint)
    } else {
        NoRow::Missing(complaint)
    }
}

/// What a record has where a column is due; `key` is the one that could name another column.
pub(super) fn missing(fields: &dyn Fields, name: &str, key: Option<&str>) -> Complaint {
    let names = fields.names();
    let found = if names.contains(&name) {
        "no value".to_owned()
    } else {
        let shown: Vec<String> =
            names.iter().take(MOST_NAMES).map(|name| format!("{name:?}")).collect();
        let more = if names.len() > MOST_NAMES { " and more" } else { "" };
        format!("the columns {}{more}", shown.join(", "))
    };
    let other =
        key.map_or(String::new(), |key| format!(" (or the one that data.columns.{key} names)"));
    (found, format!("column {name:?}{other}"))
}

fn words(cell: Cell) -> Vec<String> {
    match cell {
        Cell::List(words) => words,
        Cell::One(text) => text.split_whitespace().map(str::to_owned).collect(),
    }
}

pub(super) fn single(cell: Cell, joiner: &str) -> String {
    match cell {
        Cell::One(text) => text,
        Cell::List(parts) => parts.join(joiner),
    }
}
