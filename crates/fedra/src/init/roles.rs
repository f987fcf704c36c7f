//! What each column means: by its name where that says it, by its values where not.
//!
//! Nobody is made a client by a guess about values: a wrong partition would go unnoticed. Only a column
//! whose name says so is taken for one, and otherwise rows are dealt to clients that are made up, which
//! the file says.

use fedra_data::{ColumnSurvey, Format, LabelShape, Split, Task, printable};

use super::{Chosen, Sight, Wishes};
use crate::error::{Result, refuse};
use crate::text::grid::grouped;

/// Names of columns that are read.
const TEXT: [&str; 14] = [
    "text",
    "note",
    "notes",
    "sentence",
    "content",
    "body",
    "report",
    "document_text",
    "dialogue",
    "review",
    "abstract",
    "description",
    "question",
    "message",
];
/// Names of columns that are answered with.
const LABEL: [&str; 22] = [
    "label",
    "labels",
    "class",
    "category",
    "target",
    "diagnosis",
    "diagnoses",
    "code",
    "codes",
    "icd",
    "icd9",
    "icd10",
    "specialty",
    "department",
    "topic",
    "type",
    "kind",
    "sentiment",
    "intent",
    "outcome",
    "stars",
    "y",
];
/// Names of columns that say who holds a row.
const CLIENT: [&str; 17] = [
    "client",
    "hospital",
    "site",
    "institution",
    "center",
    "centre",
    "clinic",
    "provider",
    "organisation",
    "organization",
    "party",
    "silo",
    "node",
    "branch",
    "ward",
    "bank",
    "source",
];
/// Names of columns whose rows must stay together.
const DOCUMENT: [&str; 14] = [
    "document",
    "doc",
    "doc_id",
    "document_id",
    "patient",
    "patient_id",
    "subject",
    "subject_id",
    "hadm_id",
    "encounter",
    "encounter_id",
    "person_id",
    "mrn",
    "visit_id",
];
/// Names of columns that say which part of the data a row is.
const SPLIT: [&str; 4] = ["split", "set", "subset", "fold"];
/// Words of one value from which on it is rather a text than a label.
const MOST_LABEL_WORDS: f64 = 8.0;
/// Labels from which on a column is not proposed for its values alone.
const MOST_GUESSED: usize = 100;
/// Labels that are declared or asked about one by one.
pub(super) const MOST_LISTED: usize = 200;

/// The meaning of the columns.
#[derive(Clone, Debug)]
pub struct Roles {
    /// What is to be learnt.
    pub task: Chosen<Task>,
    /// What is read.
    pub text: Chosen<Vec<String>>,
    /// What is answered with; none for the next token.
    pub label: Option<Chosen<String>>,
    /// What stands between several labels in a cell, where it is not a semicolon.
    pub separator: Option<char>,
    /// Who holds a row; none where rows are dealt, or files say it.
    pub client: Option<Chosen<String>>,
    /// Which part of the data a row is.
    pub split: Option<String>,
    /// What must stay together.
    pub document: Option<Chosen<String>>,
}

impl Roles {
    pub(super) fn of(sight: &Sight, wishes: &Wishes) -> Result<Self> {
        let columns = &sight.survey.columns;
        let mut wished: Vec<&String> = wishes.text.iter().collect();
        wished.extend(wishes.label.iter().chain(&wishes.client));
        if let Some(absent) = wished.iter().find(|name| sight.survey.column(name).is_none()) {
            let names: Vec<String> = columns.iter().map(|column| short(&column.name)).collect();
            refuse!("found no column {absent:?}, expected one of {}", names.join(", "));
        }
        if wishes.text.len() > 2 {
            refuse!("--text: found {} columns, expected one or two", wishes.text.len());
        }
        let free = |name: &str| !wished.iter().any(|other| *other == name);
        let split = called(columns, &SPLIT)
            .find(|column| free(&column.name) && is_split(column))
            .map(|column| column.name.clone());
        let client = client(sight, wishes, &free);
        let document = document(sight, &free);
        let taken = |name: &str| {
            split.as_deref() == Some(name)
                || client.as_ref().is_some_and(|client| client.value == name)
                || document.as_ref().is_some_and(|document| document.value == name)
        };
        let rest: Vec<&ColumnSurvey> =
            columns.iter().filter(|column| column.filled > 0 && !taken(&column.name)).collect();
        let label = match &wishes.label {
            Some(name) => Some(Chosen::wished(name.clone())),
            None => label(sight, &rest, wishes),
        };
        let task = task(sight, &rest, (label.as_ref(), wishes))?;
        let label = label.filter(|_| task.value != Task::Language);
        let label = match (task.value, label, &wishes.label) {
            (Task::Generation, label, None) => longest(&rest, label.as_ref())
                .map(|name| Chosen::new(name, "the longest texts beside the ones that are read")),
            (_, label, _) => label,
        };
        let text = text(&rest, (task.value, label.as_ref()), wishes)?;
        let needs = task.value != Task::Language && sight.found.format != Format::Conll;
        if label.is_none() && needs {
            refuse!(
                "found no column that could be the label of the task {}, expected --label COLUMN\n{}",
                task.value.name(),
                listed(columns)
            );
        }
        let labels = label.as_ref().and_then(|label| sight.survey.column(&label.value));
        let separator =
            labels.and_then(separator).filter(|_| matches!(task.value.shape(), LabelShape::Many));
        Ok(Self { task, text, label, separator, client, split, document })
    }

    /// The names of all labels, where they are few enough to be listed.
    pub(super) fn labels(&self, sight: &Sight) -> Option<Vec<String>> {
        let name = match (&self.label, self.task.value.shape()) {
            (_, LabelShape::PerWord) if sight.found.format == Format::Conll => "tags",
            (Some(label), _) => &label.value,
            (None, _) => return None,
        };
        let column = sight.survey.column(name)?;
        if column.has_more {
            return None;
        }
        let mut labels: Vec<String> = match (self.task.value.shape(), column.is_list()) {
            (LabelShape::Many, false) => {
                let separator = self.separator.unwrap_or(';');
                let parts = column.values.keys().flat_map(|value| value.split(separator));
                parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
            }
            (LabelShape::PerWord, false) => {
                let words = column.values.keys().flat_map(|value| value.split_whitespace());
                words.map(str::to_owned).collect()
            }
            (LabelShape::PerWord | LabelShape::Many, true)
            | (LabelShape::One | LabelShape::Absent, _) => column.values.keys().cloned().collect(),
        };
        labels.sort();
        labels.dedup();
        Some(labels)
    }
}

/// Columns by what they are called, in the order of the names.
fn called<'a>(
    columns: &'a [ColumnSurvey],
    names: &'a [&str],
) -> impl Iterator<Item = &'a ColumnSurvey> {
    names.iter().flat_map(move |name| {
        let alike = move |column: &&ColumnSurvey| {
            let own = column.name.to_lowercase().replace([' ', '-'], "_");
            let last = own.rsplit('.').next().unwrap_or_default().to_owned();
            last == *name || last == format!("{name}_name") || last == format!("{name}_id")
        };
        columns.iter().filter(alike)
    })
}

fn is_split(column: &ColumnSurvey) -> bool {
    !column.has_more
        && column.distinct() > 0
        && column.values.keys().all(|value| Split::parse(value).is_some())
}

fn client(sight: &Sight, wishes: &Wishes, free: &dyn Fn(&str) -> bool) -> Option<Chosen<String>> {
    if sight.is_by_client() || wishes.clients.is_some() {
        return None;
    }
    if let Some(name) = &wishes.client {
        return Some(Chosen::wished(name.clone()));
    }
    let rows = sight.survey.rows;
    // Rows without a client are refused, and a client a row is a row's name.
    let fits = |column: &&ColumnSurvey| {
        free(&column.name)
            && column.filled == rows
            && !column.is_list()
            && !column.has_more
            && (2..=rows / 2).contains(&column.distinct())
    };
    let column = called(&sight.survey.columns, &CLIENT).find(fits)?;
    let why = format!("its name says who holds a row; {} clients", column.distinct());
    Some(Chosen::new(column.name.clone(), why))
}

fn document(sight: &Sight, free: &dyn Fn(&str) -> bool) -> Option<Chosen<String>> {
    let fits = |column: &&ColumnSurvey| {
        let repeats = column.has_more || column.distinct() * 10 < column.filled * 9;
        free(&column.name) && !column.is_list() && column.mean_words() < 12.0 && repeats
    };
    let column = called(&sight.survey.columns, &DOCUMENT).find(fits)?;
    let why = "rows that share it stay together: all of them train, or all of them test";
    Some(Chosen::new(column.name.clone(), why))
}

fn label(sight: &Sight, rest: &[&ColumnSurvey], wishes: &Wishes) -> Option<Chosen<String>> {
    let free: Vec<ColumnSurvey> = rest
        .iter()
        .filter(|column| !wishes.text.contains(&column.name))
        .filter(|column| !says_site(sight, column))
        .map(|column| (*column).clone())
        .collect();
    if sight.found.format == Format::Conll || tagged(&free).is_some() {
        return tagged(&free).map(|(_, tags)| Chosen::new(tags, "a list with a tag for each word"));
    }
    let varies = |column: &&ColumnSurvey| column.distinct() > 1;
    let is_short = |column: &&ColumnSurvey| {
        column.is_list() || (!column.has_more && column.mean_words() <= MOST_LABEL_WORDS)
    };
    let named = called(&free, &LABEL).filter(varies).find(is_short);
    if let Some(column) = named {
        let why =
            format!("its name says so; {} different values", grouped(column.distinct() as u64));
        return Some(Chosen::new(column.name.clone(), why));
    }
    let few = |column: &&ColumnSurvey| {
        let most = MOST_GUESSED.min(column.filled / 4);
        !column.has_more
            && column.mean_words() <= MOST_LABEL_WORDS / 2.0
            && (2..=most).contains(&column.distinct())
    };
    let column = free.iter().filter(few).min_by_key(|column| column.distinct())?;
    let why = format!("{} different short values; --label COLUMN names another", column.distinct());
    Some(Chosen::new(column.name.clone(), why))
}

/// Whether a column says where a row comes from, which nobody wants to be told by a model: it is called so,
/// or it has one value in each client's file.
fn says_site(sight: &Sight, column: &ColumnSurvey) -> bool {
    let is_called = is_called_site(&column.name);
    let is_label = called(std::slice::from_ref(column), &LABEL).next().is_some();
    let is_constant = sight.is_by_client() && sight.constant.contains(&column.name);
    (is_called && !is_label) || is_constant
}

/// Whether one of the words in a column's name is one for who holds a row.
pub(super) fn is_called_site(name: &str) -> bool {
    let mut spaced = String::with_capacity(name.len() + 4);
    let mut before = ' ';
    for letter in name.chars() {
        if before.is_lowercase() && letter.is_uppercase() {
            spaced.push(' ');
        }
        spaced.extend(letter.to_lowercase());
        before = letter;
    }
    let mut words = spaced.split(|c: char| !c.is_alphanumeric());
    words.any(|word| CLIENT.contains(&word))
}

/// A list of words and a list of tags.
fn tagged(columns: &[ColumnSurvey]) -> Option<(String, String)> {
    let words = called(columns, &["tokens", "words"]).find(|column| column.is_list())?;
    let names = ["tags", "ner_tags", "labels", "label", "pos_tags"];
    let tags = called(columns, &names).find(|column| column.is_list())?;
    Some((words.name.clone(), tags.name.clone()))
}

fn task(
    sight: &Sight,
    rest: &[&ColumnSurvey],
    (label, wishes): (Option<&Chosen<String>>, &Wishes),
) -> Result<Chosen<Task>> {
    let is_conll = sight.found.format == Format::Conll;
    if let Some(task) = wishes.task {
        let is_tags = matches!(task.shape(), LabelShape::PerWord);
        if is_conll && !is_tags {
            refuse!("--task: found {}, expected tokens or concepts for CoNLL", task.name());
        }
        return Ok(Chosen::wished(task));
    }
    let all: Vec<ColumnSurvey> = rest.iter().map(|column| (*column).clone()).collect();
    let tags = if is_conll { Some("tags".to_owned()) } else { tagged(&all).map(|(_, tags)| tags) };
    if let Some(tags) = tags {
        let values = sight.survey.column(&tags).map(|column| &column.values);
        let kinds = values.into_iter().flat_map(|values| values.keys());
        let clinical = |tag: &String| {
            let kind = tag.split_once('-').map_or(tag.as_str(), |(_, kind)| kind);
            ["O", "problem", "test", "treatment"].contains(&kind)
        };
        return Ok(if kinds.clone().count() > 1 && kinds.clone().all(clinical) {
            Chosen::new(Task::Concepts, "a tag for each word: problems, tests and treatments")
        } else {
            Chosen::new(Task::Tokens, "a tag for each word")
        });
    }
    let Some(column) = label.and_then(|label| sight.survey.column(&label.value)) else {
        let why = "no column looks like a label, so the next token is learnt; --label COLUMN and --task \
                   TASK say otherwise";
        return Ok(Chosen::new(Task::Language, why));
    };
    Ok(if column.is_list() {
        Chosen::new(Task::Diagnosis, "any number of labels a row: the column holds lists")
    } else if let Some(separator) = separator(column) {
        let why = format!("any number of labels a row, with {separator:?} between them");
        Chosen::new(Task::Diagnosis, why)
    } else {
        Chosen::new(Task::Classes, "one label a row")
    })
}

/// What stands between labels, if several stand in one cell: parts come back in other combinations.
fn separator(column: &ColumnSurvey) -> Option<char> {
    let has = |separator: char| {
        let several = column.values.keys().filter(|value| value.contains(separator)).count();
        let parts: std::collections::BTreeSet<&str> =
            column.values.keys().flat_map(|value| value.split(separator)).map(str::trim).collect();
        several * 5 >= column.distinct() && parts.len() < column.distinct() && several > 0
    };
    [';', '|', ','].into_iter().find(|separator| has(*separator))
}

fn text(
    rest: &[&ColumnSurvey],
    (task, label): (Task, Option<&Chosen<String>>),
    wishes: &Wishes,
) -> Result<Chosen<Vec<String>>> {
    if !wishes.text.is_empty() {
        return Ok(Chosen::wished(wishes.text.clone()));
    }
    let all: Vec<ColumnSurvey> = rest.iter().map(|column| (*column).clone()).collect();
    if matches!(task.shape(), LabelShape::PerWord) {
        let words = tagged(&all).map(|(words, _)| words);
        let plain = || called(&all, &["tokens", "words", "text"]).next().map(|c| c.name.clone());
        if let Some(words) = words.or_else(plain) {
            return Ok(Chosen::new(vec![words], "the words that have tags"));
        }
    }
    let is_label = |column: &ColumnSurvey| label.is_some_and(|label| label.value == column.name);
    let weight = |column: &&&ColumnSurvey| {
        let known = called(std::slice::from_ref(**column), &TEXT).next().is_some();
        let factor = if known { 3.0 } else { 1.0 };
        // Lists are read as lines, where there is nothing better.
        let plain = if column.is_list() { 0.1 } else { 1.0 };
        (1000.0 * column.mean_words() * factor * plain) as u64
    };
    let texts =
        rest.iter().filter(|column| !is_label(column) && column.numbers * 2 < column.filled);
    let Some(column) = texts.max_by_key(weight) else {
        refuse!("found no column of texts, expected --text COLUMN\n{}", listed(&all));
    };
    let why = format!("{:.0} words a row, in the mean", column.mean_words());
    Ok(Chosen::new(vec![column.name.clone()], why))
}

/// The second text of a file, where the first is read and this is to be written: the shorter of the two
/// longest.
fn longest(rest: &[&ColumnSurvey], label: Option<&Chosen<String>>) -> Option<String> {
    let mut texts: Vec<&&ColumnSurvey> =
        rest.iter().filter(|column| !column.is_list() && column.mean_words() > 1.0).collect();
    texts.sort_by_key(|column| std::cmp::Reverse((1000.0 * column.mean_words()) as u64));
    let second = texts.get(1).map(|column| column.name.clone());
    second.or_else(|| label.map(|label| label.value.clone()))
}

/// Every column in a line each, for a message.
fn listed(columns: &[ColumnSurvey]) -> String {
    let line = |column: &ColumnSurvey| {
        let more = if column.has_more { "more than " } else { "" };
        let distinct = grouped(column.distinct() as u64);
        format!(
            "  {}: {more}{distinct} different values, {:.0} words in the mean",
            short(&column.name),
            column.mean_words()
        )
    };
    let lines: Vec<String> = columns.iter().take(30).map(line).collect();
    lines.join("\n")
}

/// A name for people, however long it is in the file.
pub(super) fn short(name: &str) -> String {
    let start: String = printable(name).chars().take(60).collect();
    if start.chars().count() < name.chars().count() { format!("{start}..") } else { start }
}
