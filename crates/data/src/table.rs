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

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::chat;
use crate::error::{Mismatch, counted};
use crate::example::{Body, Choice, Example, Labels};
use crate::reading_report::{LeftOut, ReadingReport, Trimmed, folded};
use crate::row::{Answers, Row};
use crate::{Advice, DataError, LabelSet, LabelShape, Message, Result, RowPlace, Task};

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
            for &label in example.labels.numbers() {
                counts[label as usize] += 1;
            }
        }
        counts
    }
}

/// Gathers rows of one task, from as many files as there are.
#[derive(Clone, Debug)]
pub struct TableBuilder {
    pub(crate) task: Task,
    rows: Vec<Row>,
    names: BTreeSet<String>,
    /// The only labels that rows may have.
    pub(crate) declared: Option<LabelSet>,
    /// The file that rows were last read from.
    file: Option<Arc<Path>>,
    report: ReadingReport,
}

impl TableBuilder {
    /// An empty table of a task.
    pub fn new(task: Task) -> Self {
        let (rows, names, report) = (Vec::new(), BTreeSet::new(), ReadingReport::default());
        Self { task, rows, names, declared: None, file: None, report }
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

    /// Adds a row after checking its labels against the task. Blanks around names are no part of them.
    pub fn push(&mut self, mut row: Row) -> Result<()> {
        let trimmed = Trimmed::of(&mut row);
        if let Some((found, expected)) = self.mismatch(&row) {
            let example = format!("{}", self.rows.len() + 1);
            let task = self.task.name();
            return Err(DataError::Example { example, task, found, expected: expected.into() });
        }
        self.report.trimmed.add(trimmed);
        // A label that is right nowhere may still be the guess.
        let answers = if let Answers::Choice(all) = &row.answers { all.as_slice() } else { &[] };
        for name in row.labels.iter().chain(answers.iter().map(|(name, _)| name)) {
            if !self.names.contains(name) {
                self.names.insert(name.clone());
            }
        }
        self.rows.push(row);
        Ok(())
    }

    /// The place of a row; rows of one file share its name.
    pub(crate) fn place(&mut self, file: &Path, line: u64) -> RowPlace {
        let known = self.file.take().filter(|known| known.as_ref() == file);
        let file = known.unwrap_or_else(|| Arc::from(file));
        self.file = Some(Arc::clone(&file));
        RowPlace::new(file, line)
    }

    /// What a row lacks that the task cannot do without, as (found, expected).
    pub(crate) fn missing(&self, row: &Row) -> Option<(&'static str, &'static str)> {
        let is_blank = |text: &String| text.trim().is_empty();
        if let Body::Conversation(messages) = &row.body {
            return match &row.answers {
                Answers::Preference(pair) => chat::pair_fault(messages, pair),
                Answers::Absent | Answers::Choice(_) | Answers::Text(_) => chat::fault(messages),
            };
        }
        if row.body.is_blank() {
            return Some(("no text", "at least one word"));
        }
        if let (Task::Generation, Answers::Text(text)) = (self.task, &row.answers)
            && is_blank(text)
        {
            return Some(("an empty text to write", "at least one word"));
        }
        match (self.task.shape(), row.labels.as_slice()) {
            (LabelShape::One | LabelShape::PerWord, []) => Some(("no label", "one")),
            (LabelShape::One, [only]) if only.is_empty() => Some(("an empty label", "a name")),
            (LabelShape::One | LabelShape::PerWord | LabelShape::Many | LabelShape::Absent, _) => {
                None
            }
        }
    }

    /// Counts names that lost the blanks around them.
    pub(crate) fn trimmed(&mut self, trimmed: Trimmed) {
        self.report.trimmed.add(trimmed);
    }

    /// Counts a row that is no part of the table.
    pub(crate) fn leave_out(
        &mut self,
        place: RowPlace,
        mismatch: Mismatch,
        advice: Option<Advice>,
    ) {
        let first = vec![(place, mismatch, advice)];
        self.report.left_out.add(LeftOut { rows: 1, first });
    }

    /// Counts the rows that a file lacks by themselves, and adds them to those of the files before it.
    pub(crate) fn by_file<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<LeftOut> {
        let mut before = std::mem::take(&mut self.report.left_out);
        let outcome = read(self);
        let found = self.report.left_out.clone();
        before.add(found.clone());
        self.report.left_out = before;
        outcome.map(|_| found)
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
    pub(crate) fn mismatch(&self, row: &Row) -> Option<(String, &'static str)> {
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
        match (self.task, &row.body) {
            (Task::Chat, Body::Conversation(messages)) => {
                return chat::fault(messages)
                    .map(|(found, expected)| (found.to_owned(), expected))
                    .or_else(|| chat::check(messages).err());
            }
            (Task::Preference, Body::Conversation(messages)) => {
                let Answers::Preference(pair) = &row.answers else {
                    return Some((
                        "no two answers".into(),
                        "one that is chosen and one that is not",
                    ));
                };
                let whole = |answer: &[Message]| [messages, answer].concat();
                return chat::pair_fault(messages, pair)
                    .map(|(found, expected)| (found.to_owned(), expected))
                    .or_else(|| chat::check(&whole(&pair.chosen)).err())
                    .or_else(|| chat::check(&whole(&pair.rejected)).err());
            }
            (Task::Chat | Task::Preference, _) => {
                return Some(("no conversation".into(), "messages of a user and an assistant"));
            }
            (_, Body::Conversation(_)) => {
                return Some(("a conversation".into(), "the task chat or preference, or a text"));
            }
            (_, _) => {}
        }
        match (self.task.shape(), &row.body) {
            (LabelShape::PerWord | LabelShape::Absent, Body::Image(_)) => {
                Some(("an image".into(), "text: images are for the tasks classes and diagnosis"))
            }
            (LabelShape::PerWord, Body::Text(_)) => {
                Some(("running text".into(), "words with one tag each"))
            }
            (LabelShape::PerWord | LabelShape::Absent, Body::Pair(..)) => Some((
                "two texts".into(),
                "one text: only a label of the whole text can have a pair",
            )),
            (LabelShape::PerWord, Body::Words(words)) if words.is_empty() => {
                Some(("no words".into(), "at least one word"))
            }
            (LabelShape::PerWord, Body::Words(words)) if words.len() != count => {
                let (words, tags) =
                    (counted(words.len() as u64, "word"), counted(count as u64, "tag"));
                Some((format!("{words} and {tags}"), "one tag per word"))
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
            (Task::Choice, Answers::Absent | Answers::Text(_) | Answers::Preference(_)) => {
                Some(("no answers".into(), "at least two, of which one is right"))
            }
            (Task::Generation, Answers::Text(text)) => text
                .trim()
                .is_empty()
                .then(|| ("an empty text to write".into(), "at least one word")),
            (Task::Generation, Answers::Absent | Answers::Choice(_) | Answers::Preference(_)) => {
                Some(("no text to write".into(), "the text that follows the prompt"))
            }
            (
                Task::Concepts
                | Task::Diagnosis
                | Task::Classes
                | Task::Tokens
                | Task::Language
                | Task::Chat
                | Task::Preference,
                answers,
            ) => (*answers != Answers::Absent).then(|| {
                (
                    "answers in text".into(),
                    "no such key: they apply only to the tasks choice and generation",
                )
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
        (LabelShape::Absent, Answers::Preference(pair)) => Labels::Preference(pair),
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
            "cannot use example 1 for task tokens: found 2 words and 1 tag, expected one tag per word"
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
