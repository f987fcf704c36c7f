//! `[data]`: where rows come from, and how they are dealt to clients.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use fedra_data::{
    AnswerForm, Clinic, Format, LabelShape, Partition, Split, Table, Task, TextColumns,
};

use fedra_privacy::Unit;

use super::values::{Result, at_least_one, existing};
use crate::config::checked::{DataFile, Source};
use crate::config::complaint::Complaint;
use crate::config::draft::{By, Data, Draft, Partition as Dealt, Source as Written};

/// What is read.
pub(super) fn source(draft: &mut Draft, task: Task, rows: Option<Arc<Table>>) -> Result<Source> {
    lone_tables(&draft.data)?;
    table_keys(&draft.data, task)?;
    own_files(&draft.data)?;
    all_or_parts(&draft.data)?;
    declared_labels(&draft.data, task)?;
    if let Some(folder) = &mut draft.data.cache {
        *folder = existing("data.cache", folder)?;
        if !folder.is_dir() {
            return Err(Complaint::new("data.cache", folder.display(), "a folder"));
        }
    }
    let format = match draft.data.source {
        Written::SyntheticClinic => return clinic(draft, task).map(Source::Clinic),
        Written::Mimic => {
            let path = existing("data.path", &required_path(&draft.data)?)?;
            return Ok(Source::Mimic(draft.data.mimic.clone().unwrap_or_default(), path));
        }
        Written::Rows => {
            no_paths(&draft.data, "no path: the rows are the program's own")?;
            let expected = "rows, which no file holds: the program that made them has to run again";
            let missing = || Complaint::new("data.source", "rows of a program", expected);
            return rows.map(Source::Rows).ok_or_else(missing);
        }
        Written::Jsonl => Format::JsonLines,
        Written::Csv => Format::Csv,
        Written::Tsv => Format::Tsv,
        Written::Parquet => Format::Parquet,
        Written::Conll => Format::Conll,
        Written::I2b2 => Format::I2b2,
    };
    let data = &mut draft.data;
    let mut files = Vec::new();
    for (key, path, split) in [
        ("data.path", &mut data.path, None),
        ("data.train", &mut data.train, Some(Split::Train)),
        ("data.validation", &mut data.validation, Some(Split::Validation)),
        ("data.test", &mut data.test, Some(Split::Test)),
    ] {
        if let Some(path) = path {
            *path = existing(key, path)?;
            files.push(DataFile { path: path.clone(), split, client: None });
        }
    }
    for (name, path) in &mut data.clients {
        *path = existing(&format!("data.clients.{name}"), path)?;
        files.push(DataFile { path: path.clone(), split: None, client: Some(name.clone()) });
    }
    // A server that knows its clients by name has nobody's rows.
    let is_empty = data.path.is_none() && data.train.is_none() && data.clients.is_empty();
    if is_empty && draft.federation.names.is_empty() {
        let expected = "a file (or data.train and data.test)";
        return Err(Complaint::new("data.path", "nothing", expected));
    }
    Ok(Source::Files(format, files))
}

/// Refuses files of clients beside other files, and where nothing is read from files.
fn own_files(data: &Data) -> Result<()> {
    let Some(first) = data.clients.keys().next() else { return Ok(()) };
    if !data.source.is_files() {
        let expected = "none: only sources that are files have one for each client";
        return Err(Complaint::new("data.clients", "files", expected));
    }
    if first.trim().is_empty() {
        return Err(Complaint::new("data.clients", "an empty name", "a name for every client"));
    }
    for (key, path) in [("data.path", &data.path), ("data.train", &data.train)] {
        if let Some(path) = path {
            let expected = "nothing beside data.clients, which has a file for each client";
            return Err(Complaint::new(key, path.display(), expected));
        }
    }
    match &data.columns.client {
        Some(column) => {
            let expected = "nothing beside data.clients: the file says whose rows they are";
            Err(Complaint::new("data.columns.client", format!("{column:?}"), expected))
        }
        None => Ok(()),
    }
}

/// Refuses a file of all rows beside one of those to train on: they would be added up.
fn all_or_parts(data: &Data) -> Result<()> {
    match (&data.path, &data.train) {
        (Some(path), Some(train)) => {
            let expected = format!("nothing beside data.train = {}", train.display());
            let hint = "data.path has all rows, data.train those to train on; --set replaces one of them by another \
                        file of the same key";
            Err(Complaint::new("data.path", path.display(), expected).with_hint(hint))
        }
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

/// Refuses a list of labels that is none, or where nothing asks for one.
fn declared_labels(data: &Data, task: Task) -> Result<()> {
    let Some(names) = &data.labels else { return Ok(()) };
    let refuse =
        |found: String, expected: &str| Err(Complaint::new("data.labels", found, expected));
    if task.shape() == LabelShape::Absent {
        return refuse("a list".to_owned(), "it only for a task with labels");
    }
    match data.source {
        Written::SyntheticClinic | Written::Rows => {
            return refuse(
                "a list".to_owned(),
                "it only beside files: the source knows its labels",
            );
        }
        Written::Mimic
        | Written::Jsonl
        | Written::Csv
        | Written::Tsv
        | Written::Parquet
        | Written::Conll
        | Written::I2b2 => {}
    }
    if names.is_empty() {
        return refuse("an empty list".to_owned(), "the names of all labels");
    }
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| name.is_empty() || !seen.insert(*name)) {
        Some(name) if name.is_empty() => refuse("an empty name".to_owned(), "a name"),
        Some(name) => refuse(format!("{name:?} twice"), "every name once"),
        None => Ok(()),
    }
}

/// Refuses the table of another source than the one that is read.
fn lone_tables(data: &Data) -> Result<()> {
    let spelt = |source: Written| {
        toml::Value::try_from(source).map_or_else(|e| e.to_string(), |v| v.to_string())
    };
    for (key, given, own) in [
        ("data.clinic", data.clinic.is_some(), Written::SyntheticClinic),
        ("data.mimic", data.mimic.is_some(), Written::Mimic),
    ] {
        if given && data.source != own {
            let found = format!("a table beside data.source = {}", spelt(data.source));
            let expected = format!("it only beside {}", spelt(own));
            let hint =
                "start from a file without that table; docs/data.md has one for your own data";
            return Err(Complaint::new(key, found, expected).with_hint(hint));
        }
    }
    Ok(())
}

/// Refuses keys about tables where they have no effect, and values that no table can have.
fn table_keys(data: &Data, task: Task) -> Result<()> {
    let (is_delimited, is_text) = match data.source {
        Written::Csv | Written::Tsv => (true, true),
        Written::Jsonl | Written::Conll | Written::I2b2 => (false, true),
        Written::Parquet | Written::SyntheticClinic | Written::Mimic | Written::Rows => {
            (false, false)
        }
    };
    if let Some(delimiter) = data.delimiter {
        let found = format!("{delimiter:?}");
        if !is_delimited {
            let expected = "it only beside data.source = \"csv\" or \"tsv\"";
            return Err(Complaint::new("data.delimiter", found, expected));
        }
        if !delimiter.is_ascii() || matches!(delimiter, '"' | '\n' | '\r' | '\0') {
            let expected = "one ASCII character that is no quote and no line end";
            return Err(Complaint::new("data.delimiter", found, expected));
        }
    }
    if let Some(encoding) = data.encoding.filter(|_| !is_text) {
        let expected = "it only beside a source of text files: csv, tsv, jsonl, conll or i2b2-2010";
        return Err(Complaint::new("data.encoding", format!("{:?}", encoding.name()), expected));
    }
    if data.missing.is_some() && !data.source.is_files() {
        let expected = "it only beside files: no other source has rows without a text or a label";
        return Err(Complaint::new("data.missing", "a choice", expected));
    }
    if let Some(TextColumns::Pair([first, second])) = &data.columns.text {
        let found = format!("the two columns {first:?} and {second:?}");
        match task.shape() {
            LabelShape::One | LabelShape::Many if task.answer_form() == AnswerForm::Labels => {}
            LabelShape::One | LabelShape::Many | LabelShape::PerWord | LabelShape::Absent => {
                let expected = format!("one column for the task {}", task.name());
                let hint = "pairs of texts are for the tasks classes and diagnosis";
                let complaint = Complaint::new("data.columns.text", found, expected);
                return Err(complaint.with_hint(hint));
            }
        }
    }
    Ok(())
}

fn clinic(draft: &mut Draft, task: Task) -> Result<Clinic> {
    if !matches!(task, Task::Concepts | Task::Diagnosis) {
        let expected = "concepts or diagnosis, which the synthetic clinic writes";
        return Err(Complaint::new("data.task", format!("{:?}", task.name()), expected));
    }
    no_paths(&draft.data, "no path: the synthetic clinic needs none")?;
    let data = &mut draft.data;
    let clinic = data.clinic.get_or_insert_with(Clinic::default);
    // Where rows are dealt anew, the number of clients says nothing about hospitals.
    match (data.partition.by, draft.federation.clients) {
        (By::Client, Some(clients)) => {
            let given = clinic.hospitals != Clinic::default().hospitals;
            if given && clinic.hospitals != clients {
                let expected = format!("the {clients} of federation.clients, or no key");
                return Err(Complaint::new("data.clinic.hospitals", clinic.hospitals, expected));
            }
            clinic.hospitals = clients;
        }
        (By::Client, None) => draft.federation.clients = Some(clinic.hospitals),
        (By::Iid | By::Dirichlet | By::Shards | By::Quantity, _) => {}
    }
    at_least_one("data.clinic.hospitals", Some(clinic.hospitals))?;
    if clinic.notes < clinic.hospitals {
        let expected = format!("at least one for each of the {} hospitals", clinic.hospitals);
        return Err(Complaint::new("data.clinic.notes", clinic.notes, expected));
    }
    for (key, knob, top) in [
        ("data.clinic.feature_shift", clinic.feature_shift, 1.0),
        ("data.clinic.label_shift", clinic.label_shift, 1.0),
        ("data.clinic.size_skew", clinic.size_skew, 4.0),
    ] {
        if !(0.0..=top).contains(&knob) {
            return Err(Complaint::new(key, knob, format!("a number from 0 to {top}")));
        }
    }
    Ok(clinic.clone())
}

/// Refuses a path where nothing is read from one.
fn no_paths(data: &Data, expected: &str) -> Result<()> {
    for (key, path) in [
        ("data.path", &data.path),
        ("data.train", &data.train),
        ("data.validation", &data.validation),
        ("data.test", &data.test),
    ] {
        if let Some(path) = path {
            return Err(Complaint::new(key, path.display(), expected));
        }
    }
    Ok(())
}

fn required_path(data: &Data) -> Result<PathBuf> {
    let expected = "the folder of the source";
    data.path.clone().ok_or_else(|| Complaint::new("data.path", "nothing", expected))
}

/// How rows find their client.
pub(super) fn partition(draft: &Draft) -> Result<Partition> {
    let written = &draft.data.partition;
    let clients = || {
        let expected = "how many clients to deal the rows to";
        let count = draft.federation.clients;
        count.ok_or_else(|| Complaint::new("federation.clients", "nothing", expected))
    };
    let alpha = || match written.alpha {
        Some(alpha) if alpha > 0.0 && alpha.is_finite() => Ok(alpha),
        Some(alpha) => Err(Complaint::new("data.partition.alpha", alpha, "a number above 0")),
        None => Err(Complaint::new("data.partition.alpha", "nothing", "a number above 0")),
    };
    let partition = match written.by {
        By::Client => Partition::Client,
        By::Iid => Partition::Iid { clients: clients()? },
        By::Dirichlet => Partition::Dirichlet { clients: clients()?, alpha: alpha()? },
        By::Quantity => Partition::Quantity { clients: clients()?, alpha: alpha()? },
        By::Shards => {
            let key = "data.partition.shards";
            let expected = "how many shards a client gets";
            let shards = written.shards.ok_or_else(|| Complaint::new(key, "nothing", expected))?;
            at_least_one(key, Some(shards))?;
            Partition::Shards { clients: clients()?, shards }
        }
    };
    idle_knobs(written)?;
    at_least_one("data.partition.min_examples", written.min_examples)?;
    if written.small.is_some() && written.min_examples.is_none() {
        let expected = "it only beside data.partition.min_examples";
        return Err(Complaint::new("data.partition.small", "a choice", expected));
    }
    let shares = draft.data.shares;
    for (key, share) in [
        ("data.shares.central", shares.central),
        ("data.shares.validation", shares.validation),
        ("data.shares.test", shares.test),
    ] {
        if !(0.0..1.0).contains(&share) {
            return Err(Complaint::new(key, share, "a share from 0 to below 1"));
        }
    }
    if let Some(share) = draft.data.sample.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
        return Err(Complaint::new("data.sample", share, "a share above 0 and at most 1"));
    }
    let sum = shares.validation + shares.test;
    if sum >= 1.0 {
        let expected = "less than 1 together with data.shares.test";
        return Err(Complaint::new("data.shares.validation", shares.validation, expected));
    }
    Ok(partition)
}

/// Refuses to decide on a row by what other rows there are, where single rows are hidden: one row less would
/// change what is learnt from others, and the noise covers one.
pub(super) fn private_rows(draft: &Draft) -> Result<()> {
    let Some(privacy) = draft.privacy.as_ref().filter(|it| it.unit == Unit::Example) else {
        return Ok(());
    };
    let data = &draft.data;
    if let Some(most) = data.max_examples {
        let expected = "none where single rows are hidden: one row less lets another one in; data.sample = 0.5 \
                        uses a share of the rows, each by its own draw";
        return Err(Complaint::new("data.max_examples", most, expected));
    }
    if let Some(most) = data.mimic.as_ref().and_then(|mimic| mimic.notes) {
        let expected = "none where single rows are hidden: one row less lets another one in; data.sample = 0.5 \
                        uses a share of the rows, each by its own draw";
        return Err(Complaint::new("data.mimic.notes", most, expected));
    }
    if data.partition.by == By::Shards {
        let expected = "\"client\", \"iid\", \"dirichlet\" or \"quantity\" where single rows are hidden: shards are \
                        cut by counting, so one row less moves others";
        return Err(Complaint::new("data.partition.by", "\"shards\"", expected));
    }
    if let (Some(fewest), Some(_)) = (data.partition.min_examples, privacy.rows) {
        let expected =
            "none beside privacy.rows: who is small follows from the true numbers of rows";
        return Err(Complaint::new("data.partition.min_examples", fewest, expected));
    }
    Ok(())
}

/// Refuses names that cannot be the clients'.
pub(super) fn names(draft: &Draft) -> Result<()> {
    let names = &draft.federation.names;
    let refuse =
        |found: String, expected: &str| Err(Complaint::new("federation.names", found, expected));
    if names.is_empty() {
        return Ok(());
    }
    if draft.data.source == Written::SyntheticClinic {
        return refuse("a list".to_owned(), "none: the synthetic clinic names its hospitals");
    }
    if draft.data.partition.by != By::Client || draft.data.partition.min_examples.is_some() {
        return refuse("a list".to_owned(), "it only where every client of the data takes part");
    }
    let mut seen = BTreeSet::new();
    if let Some(name) = names.iter().find(|name| name.is_empty() || !seen.insert(*name)) {
        return refuse(format!("{name:?}"), "every name once, and no empty one");
    }
    match draft.federation.clients {
        Some(clients) if clients != names.len() => {
            let expected = format!("the {clients} of federation.clients, or no such key");
            refuse(format!("{} names", names.len()), &expected)
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a knob that the way of dealing does not turn: who sets alpha believes that it matters.
fn idle_knobs(written: &Dealt) -> Result<()> {
    let (by, turns_alpha, turns_shards) = match written.by {
        By::Client => ("client", false, false),
        By::Iid => ("iid", false, false),
        By::Dirichlet => ("dirichlet", true, false),
        By::Quantity => ("quantity", true, false),
        By::Shards => ("shards", false, true),
    };
    let alpha = written.alpha.filter(|_| !turns_alpha).map(|alpha| ("alpha", alpha.to_string()));
    let shards = written.shards.filter(|_| !turns_shards).map(|n| ("shards", n.to_string()));
    let Some((key, found)) = alpha.or(shards) else { return Ok(()) };
    let ways = if key == "alpha" { "dirichlet or quantity" } else { "shards" };
    let expected = format!("it only where rows are dealt by {ways}, not by {by}");
    let turned = if key == "alpha" { "dirichlet" } else { "shards" };
    let hint = format!(
        "--set data.partition.by={turned} puts it to use, --set 'data.partition={{ by = \"{by}\" }}' \
         drops it"
    );
    Err(Complaint::new(&format!("data.partition.{key}"), found, expected).with_hint(hint))
}
