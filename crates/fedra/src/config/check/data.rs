//! `[data]`: where rows come from, and how they are dealt to clients.

use std::collections::BTreeSet;
use std::sync::Arc;

use fedra_data::{
    AnswerForm, Clinic, Columns, LabelShape, Partition, Split, Table, TableBuilder, Task,
    TextColumns,
};
use fedra_privacy::Unit;

use super::values::{Result, at_least_one, existing, required};
use crate::config::ConfigError;
use crate::config::checked::{DataFile, Source};
use crate::config::raw_config::{By, Data, RawConfig, Source as Written};

/// What is read.
pub(super) fn source(raw: &mut RawConfig, task: Task, rows: Option<Arc<Table>>) -> Result<Source> {
    source_keys(&raw.data, task)?;
    files_of_clients(&raw.data)?;
    let hint = "data.path has all rows, data.train the training rows";
    ConfigError::excludes("data.path", "data.train")
        .with_hint(hint)
        .when(raw.data.path.is_some() && raw.data.train.is_some())?;
    if let Some(folder) = &mut raw.data.cache {
        *folder = existing("data.cache", folder)?;
        ConfigError::new("data.cache", folder.display(), "a folder").when(!folder.is_dir())?;
    }
    let Some(format) = raw.data.source.format() else { return without_files(raw, task, rows) };
    let data = &mut raw.data;
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
    ConfigError::missing("data.path", "a file (or data.train and data.test)")
        .when(is_empty && raw.federation.names.is_empty())?;
    Ok(Source::Files(format, files))
}

/// A source that is no set of files with rows.
fn without_files(raw: &mut RawConfig, task: Task, rows: Option<Arc<Table>>) -> Result<Source> {
    let data = &raw.data;
    if data.source == Written::Mimic {
        let folder = required("data.path", data.path.as_ref(), "the folder of the source")?;
        let path = existing("data.path", folder)?;
        return Ok(Source::Mimic(data.mimic.clone().unwrap_or_default(), path));
    }
    for (key, path) in [
        ("data.path", &data.path),
        ("data.train", &data.train),
        ("data.validation", &data.validation),
        ("data.test", &data.test),
    ] {
        only_files(key, data).when(path.is_some())?;
    }
    if data.source == Written::SyntheticClinic {
        return clinic(raw, task).map(Source::Clinic);
    }
    if let (Some(names), Some(rows)) = (&data.labels, &rows) {
        let declared = TableBuilder::new(task).with_labels(names.iter().cloned()).finish().labels;
        let expected = format_args!("the labels of the rows: {}", rows.labels.names().join(", "));
        ConfigError::new("data.labels", names.join(", "), expected)
            .when(declared != rows.labels)?;
    }
    let missing = "these rows are in no file: run the program that made them again";
    rows.map(Source::Rows).ok_or_else(|| ConfigError::sentence("data.source", missing))
}

/// About a key that names a file, where no file is read: mostly the source was left out.
fn only_files(key: &str, data: &Data) -> ConfigError {
    let hint = "data.source says how files are written, as in source = \"csv\"";
    let refusal = ConfigError::only(key, "to sources that are read from files");
    if data.source == Written::SyntheticClinic { refusal.with_hint(hint) } else { refusal }
}

/// Refuses files of clients beside other files, and where nothing is read from files.
fn files_of_clients(data: &Data) -> Result<()> {
    let Some(first) = data.clients.keys().next() else { return Ok(()) };
    let (is_file, column) = (data.source.format().is_some(), &data.columns.client);
    only_files("data.clients", data).when(!is_file)?;
    ConfigError::new("data.clients", "an empty name", "a name for every client")
        .when(first.trim().is_empty())?;
    ConfigError::excludes("data.clients", "data.path or data.train: each client has its own file")
        .when(data.path.is_some() || data.train.is_some())?;
    ConfigError::excludes("data.columns.client", "data.clients: each client has its own file")
        .when(column.is_some())
}

/// Refuses keys that do nothing for this source or this task.
fn source_keys(data: &Data, task: Task) -> Result<()> {
    let source = data.source;
    let hint = "start from a file without that table; docs/data.md has one for your own data";
    ConfigError::only("data.clinic", "with data.source = \"synthetic-clinic\"")
        .with_hint(hint)
        .when(data.clinic.is_some() && source != Written::SyntheticClinic)?;
    ConfigError::only("data.mimic", "with data.source = \"mimic-iii\"")
        .with_hint(hint)
        .when(data.mimic.is_some() && source != Written::Mimic)?;
    ConfigError::only("data.columns.rows", "with data.source = \"jsonl\"")
        .when(data.columns.rows.is_some() && source != Written::Jsonl)?;
    if let Some(delimiter) = data.delimiter {
        ConfigError::only("data.delimiter", "with data.source = \"csv\" or \"tsv\"")
            .when(!matches!(source, Written::Csv | Written::Tsv))?;
        let expected = "one ASCII character that is no quote and no line end";
        ConfigError::new("data.delimiter", format_args!("{delimiter:?}"), expected)
            .when(!delimiter.is_ascii() || matches!(delimiter, '"' | '\n' | '\r' | '\0'))?;
    }
    let is_file = source.format().is_some();
    ConfigError::only("data.encoding", "to text files: csv, tsv, jsonl, conll or i2b2-2010")
        .when(data.encoding.is_some() && (!is_file || source == Written::Parquet))?;
    let is_images = matches!(source, Written::Images | Written::Idx);
    ConfigError::only("data.columns", "to files with columns")
        .when(is_images && data.columns != Columns::default())?;
    ConfigError::only(
        "data.missing",
        "to files: other sources have a text and a label in every row",
    )
    .when(data.missing.is_some() && !is_file)?;
    let has_labels = task.answer_form() == AnswerForm::Labels;
    let is_whole = matches!(task.shape(), LabelShape::One | LabelShape::Many);
    ConfigError::sentence(
        "data.columns.text",
        "pairs of texts are for the tasks classes and diagnosis",
    )
    .when(matches!(data.columns.text, Some(TextColumns::Pair(_))) && !(has_labels && is_whole))?;
    let Some(names) = &data.labels else { return Ok(()) };
    ConfigError::only("data.labels", "to tasks with labels")
        .when(task.shape() == LabelShape::Absent)?;
    ConfigError::only(
        "data.labels",
        "to sources that are read from files: others know their labels",
    )
    .when(source == Written::SyntheticClinic)?;
    ConfigError::new("data.labels", "an empty list", "the names of all labels")
        .when(names.is_empty())?;
    distinct("data.labels", names)
}

/// Refuses a name that is empty or stands there twice.
fn distinct(key: &str, names: &[String]) -> Result<()> {
    let mut seen = BTreeSet::new();
    let twice = names.iter().find(|name| name.is_empty() || !seen.insert(*name));
    let expected = "every name once, none empty";
    twice.map_or(Ok(()), |name| Err(ConfigError::new(key, format_args!("{name:?}"), expected)))
}

fn clinic(raw: &mut RawConfig, task: Task) -> Result<Clinic> {
    let expected = "concepts or diagnosis, which the synthetic clinic writes";
    ConfigError::new("data.task", format_args!("{:?}", task.name()), expected)
        .when(!matches!(task, Task::Concepts | Task::Diagnosis))?;
    let data = &mut raw.data;
    let clinic = data.clinic.get_or_insert_with(Clinic::default);
    // Where rows are dealt anew, the number of clients says nothing about hospitals.
    match (data.partition.by, raw.federation.clients) {
        (By::Client, Some(clients)) => {
            let given = clinic.hospitals != Clinic::default().hospitals;
            let expected = format_args!("the {clients} of federation.clients, or no key");
            ConfigError::new("data.clinic.hospitals", clinic.hospitals, expected)
                .when(given && clinic.hospitals != clients)?;
            clinic.hospitals = clients;
        }
        (By::Client, None) => raw.federation.clients = Some(clinic.hospitals),
        (By::Iid | By::Dirichlet | By::Shards | By::Quantity, _) => {}
    }
    at_least_one("data.clinic.hospitals", Some(clinic.hospitals))?;
    let expected = format_args!("at least one for each of the {} hospitals", clinic.hospitals);
    ConfigError::new("data.clinic.notes", clinic.notes, expected)
        .when(clinic.notes < clinic.hospitals)?;
    for (key, knob, top) in [
        ("data.clinic.feature_shift", clinic.feature_shift, 1.0),
        ("data.clinic.label_shift", clinic.label_shift, 1.0),
        ("data.clinic.size_skew", clinic.size_skew, 4.0),
    ] {
        let expected = format_args!("a number from 0 to {top}");
        ConfigError::new(key, knob, expected).when(!(0.0..=top).contains(&knob))?;
    }
    Ok(clinic.clone())
}

/// How rows find their client.
pub(super) fn partition(raw: &RawConfig) -> Result<Partition> {
    let written = &raw.data.partition;
    let by = written.by;
    ConfigError::only(
        "data.partition.alpha",
        "to data.partition.by = \"dirichlet\" or \"quantity\"",
    )
    .when(written.alpha.is_some() && !matches!(by, By::Dirichlet | By::Quantity))?;
    ConfigError::only("data.partition.shards", "to data.partition.by = \"shards\"")
        .when(written.shards.is_some() && by != By::Shards)?;
    ConfigError::only("data.partition.small", "with data.partition.min_examples")
        .when(written.small.is_some() && written.min_examples.is_none())?;
    at_least_one("data.partition.min_examples", written.min_examples)?;
    at_least_one("data.partition.shards", written.shards)?;
    if let Some(alpha) = written.alpha {
        ConfigError::new("data.partition.alpha", alpha, "a number above 0")
            .when(!(alpha > 0.0 && alpha.is_finite()))?;
    }
    shares(&raw.data)?;
    let count = raw.federation.clients;
    let clients =
        || required("federation.clients", count, "the number of clients to partition rows among");
    let alpha = || required("data.partition.alpha", written.alpha, "a number above 0");
    let shards =
        || required("data.partition.shards", written.shards, "the number of shards per client");
    Ok(match by {
        By::Client => Partition::Client,
        By::Iid => Partition::Iid { clients: clients()? },
        By::Dirichlet => Partition::Dirichlet { clients: clients()?, alpha: alpha()? },
        By::Quantity => Partition::Quantity { clients: clients()?, alpha: alpha()? },
        By::Shards => Partition::Shards { clients: clients()?, shards: shards()? },
    })
}

fn shares(data: &Data) -> Result<()> {
    let shares = data.shares;
    for (key, share) in [
        ("data.shares.central", shares.central),
        ("data.shares.validation", shares.validation),
        ("data.shares.test", shares.test),
    ] {
        ConfigError::new(key, share, "a share from 0 to below 1")
            .when(!(0.0..1.0).contains(&share))?;
    }
    if let Some(share) = data.sample {
        ConfigError::new("data.sample", share, "a share above 0 and at most 1")
            .when(!(share > 0.0 && share <= 1.0))?;
    }
    let expected = "less than 1 together with data.shares.test";
    ConfigError::new("data.shares.validation", shares.validation, expected)
        .when(shares.validation + shares.test >= 1.0)
}

/// Refuses to decide on a row by what other rows there are, where single rows are hidden: one row less would
/// change what is learnt from others, and the noise covers one.
pub(super) fn private_rows(raw: &RawConfig) -> Result<()> {
    let Some(privacy) = raw.privacy.as_ref().filter(|it| it.unit == Unit::Example) else {
        return Ok(());
    };
    let data = &raw.data;
    let counted = "example-level differential privacy: removing one row would let another one in";
    let hint = "data.sample = 0.5 uses a share of the rows, sampled independently";
    ConfigError::excludes("data.max_examples", counted)
        .with_hint(hint)
        .when(data.max_examples.is_some())?;
    ConfigError::excludes("data.mimic.notes", counted)
        .with_hint(hint)
        .when(data.mimic.as_ref().is_some_and(|mimic| mimic.notes.is_some()))?;
    let shards = "\"shards\" cannot be combined with example-level differential privacy: removing one row would \
                  move others";
    ConfigError::sentence("data.partition.by", shards).when(data.partition.by == By::Shards)?;
    let small = "privacy.rows: which clients are small depends on the true numbers of rows";
    ConfigError::excludes("data.partition.min_examples", small)
        .when(data.partition.min_examples.is_some() && privacy.rows.is_some())
}

/// Refuses names that cannot be the clients'.
pub(super) fn names(raw: &RawConfig) -> Result<()> {
    let names = &raw.federation.names;
    if names.is_empty() {
        return Ok(());
    }
    let key = "federation.names";
    ConfigError::excludes(key, "the synthetic clinic, which names its hospitals")
        .when(raw.data.source == Written::SyntheticClinic)?;
    let partition = &raw.data.partition;
    ConfigError::only(key, "where every client of the data takes part")
        .when(partition.by != By::Client || partition.min_examples.is_some())?;
    distinct(key, names)?;
    let clients = raw.federation.clients.unwrap_or(names.len());
    let expected = format_args!("the {clients} of federation.clients, or no such key");
    ConfigError::new(key, format_args!("{} names", names.len()), expected)
        .when(clients != names.len())
}
