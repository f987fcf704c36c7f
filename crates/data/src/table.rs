//! Examples of one task, and the builder that every reader pushes rows into.
//!
//! Readers know names of labels; learning wants small numbers. A [`Row`] carries names, the
//! [`TableBuilder`] checks it against the task, and [`TableBuilder::finish`] numbers the labels
//! once all are known, so the numbering cannot depend on which row came first.
//!
//! ```
//! use fedra_data::{Row, TableBuilder, Task};
//! let mut builder = TableBuilder::new(Task::Classes);
//! builder.push(Row::text("chest pain for two days").with_labels(["cardiology"]))?;
//! let table = builder.finish();
//! assert_eq!(table.labels.names(), ["cardiology"]);
//! # Ok::<(), fedra_data::DataError>(())
//! ```

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    DataError, LabelSet, LabelShape, ReadingReport, Result, RowPlace, Task, Trimmed, folded,
};

/// Examples of one task with their labels numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What is learnt.
    pub task: Task,
    /// The labels by number.
    pub labels: LabelSet,
    /// The rows in the order they were read.
    pub examples: Vec<Example>,
    /// What reading did beside reading.
    pub reading: ReadingReport,
}

impl Table {
    /// How often each label occurs.
    pub fn label_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.labels.len()];
        for example in &self.examples {
            match &example.labels {
                Labels::One(label) | Labels::Choice(Choice { label, .. }) => {
                    counts[*label as usize] += 1;
                }
                Labels::Many(labels) | Labels::PerWord(labels) => {
                    for &label in labels {
                        counts[label as usize] += 1;
                    }
                }
                Labels::Absent | Labels::Text(_) => {}
            }
        }
        counts
    }
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// What is read.
    pub body: Body,
    /// What is to be said about it.
    pub labels: Labels,
    /// Which party owns it, where the source says so.
    pub client: Option<String>,
    /// Which part of the data it belongs to, where the source says so.
    pub split: Option<Split>,
    /// What it must not be separated from: rows of one document or patient share this name.
    pub document: Option<String>,
    /// Where it stood.
    pub place: RowPlace,
}

/// The input of an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// Running text.
    Text(String),
    /// Two texts that belong together, such as a question and where to look for its answer.
    Pair(String, String),
    /// Text already cut into words, where labels are given word by word.
    Words(Vec<String>),
}

/// The labels of an example, as indices into the table's [`LabelSet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// The one class.
    One(u32),
    /// The set of codes, ascending.
    Many(Vec<u32>),
    /// One tag a word.
    PerWord(Vec<u32>),
    /// Nothing.
    Absent,
    /// The right one of several answers.
    Choice(Choice),
    /// What should be written.
    Text(String),
}

/// The answers that a prompt may have, and which is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The label of the right one.
    pub label: u32,
    /// All of them, each with its label, in the order of labels.
    pub candidates: Vec<(u32, String)>,
}

/// The answers of a row on its way in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// None beside its labels.
    #[default]
    Absent,
    /// Several texts by their labels, one of which is the row's.
    Choice(Vec<(String, String)>),
    /// The one text that should be written.
    Text(String),
}

/// A part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// What is learnt from.
    Train,
    /// What decisions are made on.
    Validation,
    /// What is reported.
    Test,
}

impl Split {
    /// The split of a name as files write it (`dev`, `devel`, `val`, `valid` mean validation).
    pub fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "train" | "training" => Some(Self::Train),
            "validation" | "valid" | "val" | "dev" | "devel" => Some(Self::Validation),
            "test" | "testing" => Some(Self::Test),
            _ => None,
        }
    }
}

impl Body {
    /// Whether there is nothing in it to read.
    pub fn is_blank(&self) -> bool {
        let is_blank = |text: &String| text.trim().is_empty();
        match self {
            Self::Text(text) => is_blank(text),
            Self::Pair(first, second) => is_blank(first) && is_blank(second),
            Self::Words(words) => words.iter().all(is_blank),
        }
    }

    /// The body as running text; words are joined by single spaces, two texts by a line end.
    pub fn to_text(&self) -> String {
        self.as_text().into_owned()
    }

    /// The same without a copy where it is running text already.
    pub fn as_text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Pair(first, second) => Cow::Owned(format!("{first}\n{second}")),
            Self::Words(words) => Cow::Owned(words.join(" ")),
        }
    }
}

/// A row on its way in, its labels still names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What is read.
    pub body: Body,
    /// One name, any number of names, or one a word, as the task asks.
    pub labels: Vec<String>,
    /// The texts that answer it, where the task is answered in text.
    pub answers: Answers,
    /// Which party owns it.
    pub client: Option<String>,
    /// Which part of the data it belongs to.
    pub split: Option<Split>,
    /// What it must not be separated from.
    pub document: Option<String>,
    /// Where it stands.
    pub place: RowPlace,
}

impl Row {
    /// A row of running text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::of(Body::Text(text.into()))
    }

    /// A row of two texts.
    pub fn pair(first: impl Into<String>, second: impl Into<String>) -> Self {
        Self::of(Body::Pair(first.into(), second.into()))
    }

    /// A row of words.
    pub fn words<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::of(Body::Words(words.into_iter().map(Into::into).collect()))
    }

    /// The row with these labels.
    pub fn with_labels<L: Into<String>>(self, labels: impl IntoIterator<Item = L>) -> Self {
        Self { labels: labels.into_iter().map(Into::into).collect(), ..self }
    }

    /// The row with these answers, each after the label that stands for it: one of them is right.
    pub fn with_choices<L: Into<String>, T: Into<String>>(
        self,
        answers: impl IntoIterator<Item = (L, T)>,
    ) -> Self {
        let answers = answers.into_iter().map(|(label, text)| (label.into(), text.into()));
        Self { answers: Answers::Choice(answers.collect()), ..self }
    }

    /// The row with the text that should be written.
    pub fn with_text(self, text: impl Into<String>) -> Self {
        Self { answers: Answers::Text(text.into()), ..self }
    }

    /// The row as the property of a client.
    pub fn with_client(self, client: impl Into<String>) -> Self {
        Self { client: Some(client.into()), ..self }
    }

    /// The row as part of a document.
    pub fn with_document(self, document: impl Into<String>) -> Self {
        Self { document: Some(document.into()), ..self }
    }

    /// The row in a part of the data.
    pub fn with_split(self, split: Split) -> Self {
        Self { split: Some(split), ..self }
    }

    /// Bytes of its texts.
    pub(crate) fn bytes(&self) -> u64 {
        let body = match &self.body {
            Body::Text(text) => text.len(),
            Body::Pair(first, second) => first.len() + second.len(),
            Body::Words(words) => words.iter().map(String::len).sum(),
        };
        let answers = match &self.answers {
            Answers::Absent => 0,
            Answers::Choice(all) => all.iter().map(|(label, text)| label.len() + text.len()).sum(),
            Answers::Text(text) => text.len(),
        };
        (body + answers) as u64
    }

    pub(crate) fn of(body: Body) -> Self {
        let (labels, answers) = (Vec::new(), Answers::Absent);
        let place = RowPlace::default();
        Self { body, labels, answers, client: None, split: None, document: None, place }
    }
}

/// Gathers rows of one task, from as many files as there are.
#[derive(Clone, Debug)]
pub struct TableBuilder {
    task: Task,
    rows: Vec<Row>,
    names: BTreeSet<String>,
    /// The only labels that rows may have.
    declared: Option<LabelSet>,
    /// The file that rows were last read from.
    pub(crate) file: Option<Arc<Path>>,
    pub(crate) report: ReadingReport,
}

impl TableBuilder {
    /// An empty table of a task.
    pub fn new(task: Task) -> Self {
        let (rows, names, report) = (Vec::new(), BTreeSet::new(), ReadingReport::default());
        Self { task, rows, names, declared: None, file: None, report }
    }

    /// The task.
    pub fn task(&self) -> Task {
        self.task
    }

    /// How many rows are in.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether none is in.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Counts a label as part of the set even if no row has it.
    pub fn declare_label(&mut self, name: impl Into<String>) {
        self.names.insert(name.into().trim().to_owned());
    }

    /// The same table with these labels and no others, whether rows have them or not: so whoever
    /// holds a part of the rows numbers labels like everybody else.
    #[must_use]
    pub fn with_labels(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names.extend(names.into_iter().map(|name| name.trim().to_owned()));
        self.declared = Some(self.label_set());
        self
    }

    /// The labels that were declared.
    pub(crate) const fn declared(&self) -> Option<&LabelSet> {
        self.declared.as_ref()
    }

    /// Adds a row after checking its labels against the task. Blanks around names are no part of them.
    pub fn push(&mut self, mut row: Row) -> Result<()> {
        let trimmed = Trimmed::of(&mut row);
        if let Some((found, expected)) = self.complaint(&row) {
            let example = format!("{}", self.rows.len() + 1);
            let task = self.task.name();
            return Err(DataError::Example { example, task, found, expected: expected.into() });
        }
        self.report.trimmed.add(trimmed);
        for name in &row.labels {
            if !self.names.contains(name) {
                self.names.insert(name.clone());
            }
        }
        if let Answers::Choice(answers) = &row.answers {
            // A label that is right nowhere may still be the guess.
            for (name, _) in answers {
                if !self.names.contains(name) {
                    self.names.insert(name.clone());
                }
            }
        }
        self.rows.push(row);
        Ok(())
    }

    /// Numbers the labels and closes the table.
    pub fn finish(self) -> Table {
        let (shape, labels) = (self.task.shape(), self.label_set());
        let examples = self.rows.into_iter().map(|row| example(row, shape, &labels)).collect();
        Table { task: self.task, labels, examples, reading: self.report }
    }

    fn label_set(&self) -> LabelSet {
        let names = self.names.iter().cloned();
        match self.task.shape() {
            LabelShape::PerWord => LabelSet::of_tags(names),
            LabelShape::One | LabelShape::Many | LabelShape::Absent => LabelSet::new(names),
        }
    }

    /// What is wrong with a row, as (found, expected).
    pub(crate) fn complaint(&self, row: &Row) -> Option<(String, &'static str)> {
        let count = row.labels.len();
        if row.labels.iter().any(String::is_empty) {
            return Some(("an empty label".into(), "a name"));
        }
        if let Some(declared) = &self.declared
            && let Some(other) = row.labels.iter().find(|name| declared.index(name).is_none())
        {
            let alike = declared.names().iter().find(|name| folded(name) == folded(other));
            let hint = alike.map_or(String::new(), |name| format!(", which is not {name:?}"));
            let found = format!("the label {other:?}{hint}");
            return Some((found, "one of the labels that were declared"));
        }
        match (self.task.shape(), &row.body) {
            (LabelShape::PerWord, Body::Text(_)) => {
                Some(("running text".into(), "words with one tag each"))
            }
            (LabelShape::PerWord | LabelShape::Absent, Body::Pair(..)) => {
                Some(("two texts".into(), "one: only a label of the whole has a pair"))
            }
            (LabelShape::PerWord, Body::Words(words)) if words.is_empty() => {
                Some(("no words".into(), "at least one word"))
            }
            (LabelShape::PerWord, Body::Words(words)) if words.len() != count => {
                Some((format!("{} words and {count} tags", words.len()), "one tag a word"))
            }
            (LabelShape::One, _) if count != 1 => {
                Some((format!("{count} labels"), "exactly one label"))
            }
            (LabelShape::Absent | LabelShape::One | LabelShape::Many | LabelShape::PerWord, _) => {
                self.bad_answers(row)
            }
        }
    }

    /// What is wrong with the texts that answer a row.
    fn bad_answers(&self, row: &Row) -> Option<(String, &'static str)> {
        match (self.task, &row.answers) {
            (Task::Choice, Answers::Choice(answers)) => self.bad_choice(answers, &row.labels[0]),
            (Task::Choice, Answers::Absent | Answers::Text(_)) => {
                Some(("no answers".into(), "at least two, of which one is right"))
            }
            (Task::Generation, Answers::Text(text)) => text
                .trim()
                .is_empty()
                .then(|| ("an empty text to write".into(), "at least one word")),
            (Task::Generation, Answers::Absent | Answers::Choice(_)) => {
                Some(("no text to write".into(), "the text that follows the prompt"))
            }
            (
                Task::Concepts | Task::Diagnosis | Task::Classes | Task::Tokens | Task::Language,
                answers,
            ) => (*answers != Answers::Absent).then(|| {
                ("answers in text".into(), "them only for the tasks choice and generation")
            }),
        }
    }

    /// What is wrong with answers of which one should be right.
    fn bad_choice(
        &self,
        answers: &[(String, String)],
        right: &str,
    ) -> Option<(String, &'static str)> {
        if answers.len() < 2 {
            return Some((format!("{} answers", answers.len()), "at least two"));
        }
        for (place, (label, text)) in answers.iter().enumerate() {
            if text.trim().is_empty() {
                return Some((format!("an empty answer for {label:?}"), "at least one word"));
            }
            if answers[..place].iter().any(|(other, _)| other == label) {
                return Some((format!("two answers for {label:?}"), "one for each label"));
            }
            if let Some(declared) = &self.declared
                && declared.index(label).is_none()
            {
                let found = format!("an answer for {label:?}");
                return Some((found, "one of the labels that were declared"));
            }
        }
        (!answers.iter().any(|(label, _)| label == right)).then(|| {
            let known: Vec<&str> = answers.iter().map(|(label, _)| label.as_str()).collect();
            let found = format!("the label {right:?} beside answers for {}", known.join(", "));
            (found, "a label that has an answer")
        })
    }
}

fn example(row: Row, shape: LabelShape, set: &LabelSet) -> Example {
    let index = |name: &String| set.index(name).expect("every pushed name is in the set");
    let Row { body, labels: names, answers, client, split, document, place } = row;
    let labels = match (shape, answers) {
        (LabelShape::One, Answers::Choice(answers)) => {
            let mut candidates: Vec<(u32, String)> =
                answers.into_iter().map(|(name, text)| (index(&name), text)).collect();
            candidates.sort_by_key(|(label, _)| *label);
            Labels::Choice(Choice { label: index(&names[0]), candidates })
        }
        (LabelShape::Absent, Answers::Text(text)) => Labels::Text(text),
        (LabelShape::One, _) => Labels::One(index(&names[0])),
        (LabelShape::Many, _) => {
            Labels::Many(names.iter().map(index).collect::<BTreeSet<_>>().into_iter().collect())
        }
        (LabelShape::PerWord, _) => Labels::PerWord(names.iter().map(index).collect()),
        (LabelShape::Absent, _) => Labels::Absent,
    };
    Example { body, labels, client, split, document, place }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_labels_are_the_labels_whatever_rows_have() {
        let table = |rows: &[&str]| {
            let names = ["skin", "heart", "lung"].map(str::to_owned);
            let mut builder = TableBuilder::new(Task::Classes).with_labels(names);
            for label in rows {
                builder.push(Row::text("x").with_labels([*label]))?;
            }
            Ok::<_, DataError>(builder.finish())
        };
        let part = table(&["lung"]).unwrap();
        assert_eq!(part.labels.names(), ["heart", "lung", "skin"]);
        assert_eq!(part.examples[0].labels, Labels::One(1));
        let refused = table(&["lung", "bone"]).unwrap_err().to_string();
        assert!(refused.contains("the label \"bone\""), "{refused}");
        // The other half of a tag that was declared is declared too.
        let mut tags = TableBuilder::new(Task::Tokens).with_labels(["B-drug".to_owned()]);
        tags.push(Row::words(["a", "b", "c"]).with_labels(["O", "B-drug", "I-drug"])).unwrap();
        assert!(tags.push(Row::words(["a"]).with_labels(["B-dose"])).is_err());
    }

    #[test]
    fn numbering_does_not_depend_on_the_order_of_rows() {
        let build = |order: [&str; 3]| {
            let mut builder = TableBuilder::new(Task::Classes);
            for label in order {
                builder.push(Row::text(label).with_labels([label])).unwrap();
            }
            builder.finish().labels
        };
        assert_eq!(build(["b", "c", "a"]), build(["a", "b", "c"]));
    }

    #[test]
    fn a_row_with_too_few_tags_is_refused_with_both_counts() {
        let mut builder = TableBuilder::new(Task::Tokens);
        let error = builder.push(Row::words(["a", "b"]).with_labels(["O"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot use example 1 for task tokens: found 2 words and 1 tags, expected one tag a word"
        );
    }

    #[test]
    fn repeated_codes_count_once_and_ascend() {
        let mut builder = TableBuilder::new(Task::Diagnosis);
        builder.push(Row::text("x").with_labels(["486", "4019", "486"])).unwrap();
        builder.push(Row::text("healthy")).unwrap();
        let table = builder.finish();
        assert_eq!(table.examples[0].labels, Labels::Many(vec![0, 1]));
        assert_eq!(table.examples[1].labels, Labels::Many(vec![]));
    }
}
