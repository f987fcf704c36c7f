//! What each column means: by its name where that says it, by its values where not.
//!
//! Nobody is made a client by a guess about values: a wrong partition would go unnoticed. Only a column
//! whose name says so is taken for one, and otherwise rows are partitioned over clients that are made up, which
//! the file says.

use std::collections::BTreeSet;

use fedra_data::{
    CONVERSATION_PAIRS, ColumnSurvey, Format, LabelShape, PREFERENCE_COLUMNS, Split, Task,
    printable,
};

use super::options::FoundOptions;
use super::sight::Sight;
use super::wishes::{Chosen, Wishes};
use crate::config::ConfigError;
use crate::error::{Result, refuse};
use crate::text::grid::grouped;

/// Names of columns that are read.
const TEXT: &str = "text note notes sentence content body report document_text dialogue review abstract \
                    description question message";
/// Names of columns that are answered with.
const LABEL: &str = "label labels class category target diagnosis diagnoses code codes icd icd9 icd10 \
                     specialty department topic type kind sentiment intent outcome stars y";
/// Names of columns that say who holds a row.
const CLIENT: &str = "client hospital site institution center centre clinic provider organisation \
                      organization party silo node branch ward bank source";
/// Names of columns whose rows must stay together.
const DOCUMENT: &str = "document doc doc_id document_id patient patient_id subject subject_id hadm_id \
                        encounter encounter_id person_id mrn visit_id";
/// Names of columns that say which part of the data a row is.
const SPLIT: &str = "split set subset fold";
/// Words of one value from which on it is rather a text than a label.
const MOST_LABEL_WORDS: f64 = 8.0;
/// Labels from which on a column is not proposed for its values alone.
const MOST_GUESSED: usize = 100;
/// Labels that are declared or asked about one by one.
pub(super) const MOST_LISTED: usize = 200;

/// The meaning of the columns.
#[derive(Clone, Debug)]
pub struct Roles {
    /// The task to learn.
    pub task: Chosen<Task>,
    /// What is read.
    pub text: Chosen<Vec<String>>,
    /// What is answered with; none for the next token.
    pub label: Option<Chosen<String>>,
    /// What stands between several labels in a cell, where it is not a semicolon.
    pub separator: Option<char>,
    /// Who holds a row; none where rows are partitioned, or files say it.
    pub client: Option<Chosen<String>>,
    /// Which part of the data a row is.
    pub split: Option<String>,
    /// What must stay together.
    pub document: Option<Chosen<String>>,
    /// The options of questions that have some.
    pub options: Option<FoundOptions>,
}

/// Columns that are left for a role.
type Columns<'a> = [&'a ColumnSurvey];

impl Roles {
    pub(super) fn of(sight: &Sight, wishes: &Wishes) -> Result<Self> {
        let columns: Vec<&ColumnSurvey> = sight.survey.columns.iter().collect();
        let wished: Vec<&String> =
            wishes.text.iter().chain(&wishes.label).chain(&wishes.client).collect();
        if let Some(absent) = wished.iter().find(|name| sight.survey.column(name).is_none()) {
            let names: Vec<String> = columns.iter().map(|column| short(&column.name)).collect();
            refuse!("found no column {absent:?}, expected one of {}", names.join(", "));
        }
        ConfigError::new("text", format_args!("{} columns", wishes.text.len()), "one or two")
            .when(wishes.text.len() > 2)?;
        let free: Vec<&ColumnSurvey> =
            columns.iter().copied().filter(|column| !wished.contains(&&column.name)).collect();
        let is_split = |column: &&ColumnSurvey| {
            let says = |value: &String| Split::parse(value).is_some();
            !column.has_more && column.distinct() > 0 && column.values.keys().all(says)
        };
        let split = called(&free, SPLIT).find(is_split);
        let split = split.map(|column| column.name.clone());
        let client = client(sight, wishes, &free);
        let document = document(&free);
        let taken: Vec<&String> = (split.iter())
            .chain([&client, &document].into_iter().flatten().map(|chosen| &chosen.value))
            .collect();
        let image = sight.images.as_ref().and_then(|images| images.column.as_ref());
        let is_left = |column: &&ColumnSurvey| {
            let is_image = image == Some(&column.name);
            column.filled > 0 && !taken.contains(&&column.name) && !is_image
        };
        let rest: Vec<&ColumnSurvey> = columns.iter().copied().filter(is_left).collect();
        if let Some((task, text)) = conversations(&rest, wishes)? {
            let (label, separator) = (None, None);
            let options = None;
            return Ok(Self { task, text, label, separator, client, split, document, options });
        }
        if let Some(found) = FoundOptions::of(&rest, wishes) {
            let why = "a question with options, and a column that says which is right";
            let task = match wishes.task {
                Some(task) => Chosen::wished(task),
                None => Chosen::new(Task::Choice, why),
            };
            let text = Chosen::new(vec![found.question.clone()], "the question");
            let label = Some(Chosen::new(found.label.clone(), "which option is right"));
            let (separator, options) = (None, Some(found));
            // What a question is about, not who it is about.
            let document = document.filter(|document| !is_topic(&document.value));
            return Ok(Self { task, text, label, separator, client, split, document, options });
        }
        let label = match &wishes.label {
            Some(name) => Some(Chosen::wished(name.clone())),
            None => label(sight, &rest, wishes),
        };
        if label.is_none() && wishes.task.is_none() {
            check_varies((sight, wishes), &rest)?;
        }
        let task = task(sight, &rest, (label.as_ref(), wishes))?;
        if wishes.text.len() == 2
            && !matches!(task.value.shape(), LabelShape::One | LabelShape::Many)
        {
            let problem = format!(
                "two columns are read only for tasks with a label of the whole text, and the task is {}: name the \
                 column of labels with --label, or give --text once",
                task.value.name()
            );
            return Err(ConfigError::sentence("text", problem).into());
        }
        let label = match (task.value, label, &wishes.label) {
            (Task::Language, ..) => None,
            (Task::Generation, label, None) => second_text(&rest, label.as_ref())
                .map(|name| Chosen::new(name, "the longest texts besides the input")),
            (_, label, _) => label,
        };
        let text = match &sight.images {
            Some(images) => Chosen::new(images.column.iter().cloned().collect(), "images"),
            None => text(&rest, (task.value, label.as_ref()), wishes)?,
        };
        if wishes.text.is_empty() && task.value.shape() == LabelShape::One {
            check_exchanged(sight, &text.value, label.as_ref())?;
        }
        let needs = task.value != Task::Language && sight.found.format != Format::Conll;
        let found = format_args!("no column that fits the task {}", task.value.name());
        let expected = format_args!("the name of one\n{}", listed(&columns));
        ConfigError::new("label", found, expected).when(label.is_none() && needs)?;
        let labels = label.as_ref().and_then(|label| sight.survey.column(&label.value));
        let separator =
            labels.and_then(separator).filter(|_| task.value.shape() == LabelShape::Many);
        let options = None;
        Ok(Self { task, text, label, separator, client, split, document, options })
    }

    /// The names of all labels, where they are few enough to be listed.
    pub(super) fn labels(&self, sight: &Sight) -> Option<Vec<String>> {
        if let Some(options) = &self.options {
            return Some(('A'..='Z').take(options.count).map(String::from).collect());
        }
        let shape = self.task.value.shape();
        let name = match &self.label {
            _ if shape == LabelShape::PerWord && sight.found.format == Format::Conll => "tags",
            Some(label) => &label.value,
            None => return None,
        };
        let column = sight.survey.column(name).filter(|column| !column.has_more)?;
        let values = column.values.keys().map(String::as_str);
        let labels: BTreeSet<&str> = match shape {
            LabelShape::Many if !column.is_list() => {
                let parts = values.flat_map(|value| value.split(self.separator.unwrap_or(';')));
                parts.map(str::trim).filter(|part| !part.is_empty()).collect()
            }
            LabelShape::PerWord if !column.is_list() => {
                values.flat_map(str::split_whitespace).collect()
            }
            LabelShape::PerWord | LabelShape::Many | LabelShape::One | LabelShape::Absent => {
                values.collect()
            }
        };
        Some(labels.into_iter().map(str::to_owned).collect())
    }
}

/// Whether a column of questions names their topic, as sets of exams have it.
fn is_topic(name: &str) -> bool {
    ["subject", "subject_name"].contains(&name)
}

/// A task, and the columns of its texts.
type TaskOfTexts = (Chosen<Task>, Chosen<Vec<String>>);

/// The columns of two answers, of which one is preferred.
fn preferences(rest: &Columns<'_>, wishes: &Wishes) -> Result<Option<TaskOfTexts>> {
    let is_wished = wishes.task == Some(Task::Preference);
    let has = |name: &&str| rest.iter().any(|column| column.name == **name);
    let is_there = PREFERENCE_COLUMNS.iter().all(has);
    let is_open = wishes.task.is_none() && wishes.text.is_empty() && wishes.label.is_none();
    if is_there && (is_open || is_wished) {
        let why = "the columns chosen and rejected are two answers, of which one is preferred";
        let task = Chosen::new(Task::Preference, why);
        let task = if is_wished { Chosen::wished(Task::Preference) } else { task };
        let columns = PREFERENCE_COLUMNS.map(str::to_owned).to_vec();
        return Ok(Some((task, Chosen::new(columns, why))));
    }
    let expected =
        format!("chosen and rejected, and prompt where these are texts\n{}", listed(rest));
    ConfigError::new("task", "no columns of two answers", expected).when(is_wished)?;
    Ok(None)
}

/// The columns of conversations: one with messages, or those of a question and its answer.
fn conversations(rest: &Columns<'_>, wishes: &Wishes) -> Result<Option<TaskOfTexts>> {
    if let Some(found) = preferences(rest, wishes)? {
        return Ok(Some(found));
    }
    let is_wished = wishes.task == Some(Task::Chat);
    if wishes.task.is_some() && !is_wished {
        return Ok(None);
    }
    let task = |why: &str| {
        if is_wished { Chosen::wished(Task::Chat) } else { Chosen::new(Task::Chat, why) }
    };
    if let ([prompt], Some(answer), true) = (wishes.text.as_slice(), &wishes.label, is_wished) {
        return Ok(Some((task(""), Chosen::wished(vec![prompt.clone(), answer.clone()]))));
    }
    if let ([messages], None, true) = (wishes.text.as_slice(), &wishes.label, is_wished) {
        return Ok(Some((task(""), Chosen::wished(vec![messages.clone()]))));
    }
    if wishes.text.is_empty() && wishes.label.is_none() {
        let holds = |column: &&&ColumnSurvey| column.conversations * 2 > column.filled;
        if let Some(column) = rest.iter().find(holds) {
            let text = Chosen::new(vec![column.name.clone()], "lists of messages");
            return Ok(Some((task("what the assistant says: a column holds messages"), text)));
        }
        let has = |name: &str| rest.iter().any(|column| column.name == name);
        let pair = CONVERSATION_PAIRS.iter().find(|(prompt, answer)| has(prompt) && has(answer));
        if let Some((prompt, answer)) = pair {
            let why = format!("the columns {prompt} and {answer} are a question and its answer");
            let text = Chosen::new([*prompt, *answer].map(str::to_owned).to_vec(), why.clone());
            return Ok(Some((task(&why), text)));
        }
    }
    let expected = format!(
        "messages, --text for the column that holds them, or --text for what is asked and --label for what is \
         answered\n{}",
        listed(rest)
    );
    ConfigError::new("task", "no column of conversations", expected).when(is_wished)?;
    Ok(None)
}

/// Columns by what they are called, in the order of the names.
fn called<'a>(columns: &Columns<'a>, names: &str) -> impl Iterator<Item = &'a ColumnSurvey> {
    let named = move |name| columns.iter().copied().filter(move |column| is_called(column, name));
    names.split(' ').flat_map(named)
}

fn is_called(column: &ColumnSurvey, name: &str) -> bool {
    let own = column.name.to_lowercase().replace([' ', '-'], "_");
    let rest = own.rsplit('.').next().and_then(|last| last.strip_prefix(name));
    rest.is_some_and(|rest| ["", "_name", "_id"].contains(&rest))
}

fn client(sight: &Sight, wishes: &Wishes, free: &Columns<'_>) -> Option<Chosen<String>> {
    if sight.is_by_client() || wishes.clients.is_some() {
        return None;
    }
    if let Some(name) = &wishes.client {
        return Some(Chosen::wished(name.clone()));
    }
    let rows = sight.survey.rows;
    // Rows without a client are refused, and a client a row is a row's name.
    let fits = |column: &&ColumnSurvey| {
        column.filled == rows
            && !column.is_list()
            && !column.has_more
            && (2..=rows / 2).contains(&column.distinct())
    };
    let column = called(free, CLIENT).find(fits)?;
    let why = format!("its name suggests the client of a row; {} clients", column.distinct());
    Some(Chosen::new(column.name.clone(), why))
}

fn document(free: &Columns<'_>) -> Option<Chosen<String>> {
    let fits = |column: &&ColumnSurvey| {
        let repeats = column.has_more || column.distinct() * 10 < column.filled * 9;
        !column.is_list() && column.mean_words() < 12.0 && repeats
    };
    let column = called(free, DOCUMENT).find(fits)?;
    let why = "rows that share it stay together: all of them train, or all of them test";
    Some(Chosen::new(column.name.clone(), why))
}

fn label(sight: &Sight, rest: &Columns<'_>, wishes: &Wishes) -> Option<Chosen<String>> {
    let is_free =
        |column: &&ColumnSurvey| !wishes.text.contains(&column.name) && !says_site(sight, column);
    let free: Vec<&ColumnSurvey> = rest.iter().copied().filter(is_free).collect();
    if let Some((_, tags)) = tagged(&free) {
        return Some(Chosen::new(tags.name.clone(), "a list with a tag for each word"));
    }
    if sight.found.format == Format::Conll {
        return None;
    }
    let is_short = |column: &&ColumnSurvey| {
        let words = column.mean_words();
        column.is_list() || (!column.has_more && words <= MOST_LABEL_WORDS)
    };
    let varies = |column: &&ColumnSurvey| column.distinct() > 1;
    if let Some(column) = called(&free, LABEL).filter(varies).find(is_short) {
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
    let column = free.into_iter().filter(few).min_by_key(|column| column.distinct())?;
    let why = format!("{} different short values; --label COLUMN names another", column.distinct());
    Some(Chosen::new(column.name.clone(), why))
}

/// Refuses a column of labels that has one value: there is nothing to learn, and no other task was asked for.
fn check_varies((sight, wishes): (&Sight, &Wishes), rest: &Columns<'_>) -> Result<(), ConfigError> {
    let is_free =
        |column: &&ColumnSurvey| !wishes.text.contains(&column.name) && !says_site(sight, column);
    let free: Vec<&ColumnSurvey> = rest.iter().copied().filter(is_free).collect();
    let mut labels = called(&free, LABEL);
    let Some(column) = labels.find(|column| !column.has_more && column.distinct() == 1) else {
        return Ok(());
    };
    let problem = format!(
        "column {:?} has a single value in all rows, so there is no label to learn: name another column with --label, \
         or give --task language to learn the texts alone",
        short(&column.name)
    );
    Err(ConfigError::sentence("label", problem))
}

/// Refuses a column of texts that somebody names as the label, where what is left to read is shorter.
fn check_exchanged(
    sight: &Sight,
    text: &[String],
    label: Option<&Chosen<String>>,
) -> Result<(), ConfigError> {
    let column = |name: &String| sight.survey.column(name);
    let (Some(label), Some(text)) =
        (label.and_then(|label| column(&label.value)), text.first().and_then(column))
    else {
        return Ok(());
    };
    let is_text = label.has_more || label.distinct() * 2 > label.filled;
    let problem = format!(
        "column {:?} holds texts ({:.0} words on average), and column {:?}, which is left to be read, holds shorter \
         ones: name the column of labels with --label, or the column to read with --text",
        short(&label.name),
        label.mean_words(),
        short(&text.name)
    );
    ConfigError::sentence("label", problem)
        .when(is_text && !label.is_list() && label.mean_words() > text.mean_words())
}

/// Whether a column says where a row comes from, which nobody wants to be told by a model: it is called so,
/// or it has one value in each client's file.
fn says_site(sight: &Sight, column: &ColumnSurvey) -> bool {
    let is_label = LABEL.split(' ').any(|name| is_called(column, name));
    let is_constant = sight.is_by_client() && sight.constant.contains(&column.name);
    (is_called_site(&column.name) && !is_label) || is_constant
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
    words.any(|word| CLIENT.split(' ').any(|name| name == word))
}

/// A list of words and a list of tags.
fn tagged<'a>(columns: &Columns<'a>) -> Option<(&'a ColumnSurvey, &'a ColumnSurvey)> {
    let list = |names: &str| called(columns, names).find(|column| column.is_list());
    list("tokens words").zip(list("tags ner_tags labels label pos_tags"))
}

fn task(
    sight: &Sight,
    rest: &Columns<'_>,
    (label, wishes): (Option<&Chosen<String>>, &Wishes),
) -> Result<Chosen<Task>> {
    let is_conll = sight.found.format == Format::Conll;
    if let Some(task) = wishes.task {
        ConfigError::new("task", task.name(), "tokens or concepts for CoNLL")
            .when(is_conll && task.shape() != LabelShape::PerWord)?;
        return Ok(Chosen::wished(task));
    }
    let tags =
        if is_conll { sight.survey.column("tags") } else { tagged(rest).map(|(_, tags)| tags) };
    if is_conll || tags.is_some() {
        let clinical = |tag: &String| {
            let kind = tag.split_once('-').map_or(tag.as_str(), |(_, kind)| kind);
            ["O", "problem", "test", "treatment"].contains(&kind)
        };
        let is_clinical =
            tags.is_some_and(|tags| tags.values.len() > 1 && tags.values.keys().all(clinical));
        return Ok(if is_clinical {
            Chosen::new(Task::Concepts, "a tag for each word: problems, tests and treatments")
        } else {
            Chosen::new(Task::Tokens, "a tag for each word")
        });
    }
    let Some(column) = label.and_then(|label| sight.survey.column(&label.value)) else {
        let why = "no column looks like a label, so the task is to predict the next token; --label COLUMN and \
                   --task TASK change this";
        return Ok(Chosen::new(Task::Language, why));
    };
    Ok(if column.is_list() {
        Chosen::new(Task::Diagnosis, "any number of labels per row: the column holds lists")
    } else if let Some(separator) = separator(column) {
        let why = format!("any number of labels per row, with {separator:?} between them");
        Chosen::new(Task::Diagnosis, why)
    } else {
        Chosen::new(Task::Classes, "one label per row")
    })
}

/// What stands between labels, if several stand in one cell: parts come back in other combinations.
fn separator(column: &ColumnSurvey) -> Option<char> {
    let has = |separator: &char| {
        let several = column.values.keys().filter(|value| value.contains(*separator)).count();
        let parts: BTreeSet<&str> =
            column.values.keys().flat_map(|value| value.split(*separator)).map(str::trim).collect();
        several * 5 >= column.distinct() && parts.len() < column.distinct() && several > 0
    };
    [';', '|', ','].into_iter().find(has)
}

fn text(
    rest: &Columns<'_>,
    (task, label): (Task, Option<&Chosen<String>>),
    wishes: &Wishes,
) -> Result<Chosen<Vec<String>>> {
    if !wishes.text.is_empty() {
        return Ok(Chosen::wished(wishes.text.clone()));
    }
    if task.shape() == LabelShape::PerWord {
        let words = tagged(rest).map(|(words, _)| words);
        if let Some(words) = words.or_else(|| called(rest, "tokens words text").next()) {
            return Ok(Chosen::new(vec![words.name.clone()], "the words that have tags"));
        }
    }
    let is_text = |column: &&&ColumnSurvey| {
        label.is_none_or(|label| label.value != column.name) && column.numbers * 2 < column.filled
    };
    let weight = |column: &&&ColumnSurvey| {
        let known = if TEXT.split(' ').any(|name| is_called(column, name)) { 3.0 } else { 1.0 };
        // Lists are read as lines, where there is nothing better.
        let plain = if column.is_list() { 0.1 } else { 1.0 };
        (1000.0 * column.mean_words() * known * plain) as u64
    };
    let Some(column) = rest.iter().filter(is_text).max_by_key(weight) else {
        let expected = format!("the name of one\n{}", listed(rest));
        return Err(ConfigError::new("text", "no column of texts", expected).into());
    };
    let why = format!("{:.0} words per row on average", column.mean_words());
    Ok(Chosen::new(vec![column.name.clone()], why))
}

/// The second text of a file, where the first is read and this is to be written: the shorter of the two
/// longest.
fn second_text(rest: &Columns<'_>, label: Option<&Chosen<String>>) -> Option<String> {
    let is_text = |column: &&&ColumnSurvey| !column.is_list() && column.mean_words() > 1.0;
    let mut texts: Vec<&&ColumnSurvey> = rest.iter().filter(is_text).collect();
    texts.sort_by_key(|column| std::cmp::Reverse((1000.0 * column.mean_words()) as u64));
    let second = texts.get(1).map(|column| column.name.clone());
    second.or_else(|| label.map(|label| label.value.clone()))
}

/// Every column in a line each, for a message.
fn listed(columns: &Columns<'_>) -> String {
    let line = |column: &&ColumnSurvey| {
        let more = if column.has_more { "more than " } else { "" };
        let distinct = grouped(column.distinct() as u64);
        format!(
            "  {}: {more}{distinct} different values, {:.0} words on average",
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
