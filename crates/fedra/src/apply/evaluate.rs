//! A trained model against labelled rows: all scores, by label and by client, and whether its
//! probabilities mean what they say.
//!
//! The rows are those of an experiment, partitioned and split as a run of it would, or those of one file. The
//! model is put in the place of the experiment's own, so reading, splitting and counting are the code
//! that a run goes through, and the same model has the same scores. Its labels are found by their
//! names; a label that it cannot answer is refused with both lists.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use fedra_client::{Evaluator, Examples, Scores};
use fedra_compute::ThreadPool;
use fedra_data::{ByLabel, Calibration, CalibrationScore, ConfusionMatrix, Split, Task};
use fedra_engine::EvaluationSet;
use fedra_model::hf::config::Problem;
use fedra_model::hf::{Answers, Config};
use fedra_model::open_config;
use fedra_model::peft::AdapterFolder;
use serde::Serialize;

use crate::apply::run_model::RunModel;
use crate::apply::trained_model::{ModelChoice, ModelFolders, adapter_answers, one_label_note};
use crate::config::raw_config::{
    Data, Federation, HeadChoice, Lora, LoraHead, Model as ModelTable, RawConfig, Source, Work,
};
use crate::config::{ComputeDevice, ConfigError, Experiment, OpenedDevice};
use crate::error::{Context, Error, Result, refuse};
use crate::folder::predictions::{self, Place};
use crate::listener::{Listener, followed};
use crate::prepare::data_notes;
use crate::prepare::partitioned_data::PartitionedData;
use crate::prepare::prepared::{Prepared, check_weights, evaluator};
use crate::prepare::token_lengths::TokenLengths;
use crate::text::grid::{Grid, counted, grouped};
use crate::text::headline::set_name;
use crate::text::label_table::label_table;

/// The rows that a model is held against.
#[derive(Clone, Debug)]
pub enum EvaluationData {
    /// Those of an experiment: its central test set, and the validation and test sets of its clients.
    Experiment(Box<Experiment>),
    /// Those of a file, or of one split of it. A task that is not given is what the model's head answers, and
    /// texts are as long as the model reads unless a number of tokens is given.
    File(Box<Data>, Option<Split>),
}

/// What an evaluation came to.
#[derive(Clone, Debug, Serialize)]
pub struct EvaluationReport {
    /// The folder of the model.
    pub model: String,
    /// What was asked.
    pub task: Task,
    /// The model's labels.
    pub labels: Vec<String>,
    /// The sets that have examples.
    pub sets: BTreeMap<String, SetReport>,
    /// What a person should know, a line each.
    pub notes: Vec<String>,
}

/// The scores on one set, or on one client's examples of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SetReport {
    /// How many examples.
    pub examples: u64,
    /// Every score, all examples as one set.
    pub scores: BTreeMap<String, f64>,
    /// Label by label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_label: Option<ByLabel>,
    /// What its probabilities are worth; absent where answers are text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Each client's own scores, where clients are told apart.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub clients: BTreeMap<String, SetReport>,
}

/// The usual column of images.
pub(crate) const IMAGE: &str = "image";
/// The name of the set that a file's rows make.
const ROWS: &str = "rows";

/// Scores a model, and writes each example's truth and answer where that is asked for. The device of an experiment
/// computes, or for a file the processor.
pub fn evaluate(
    choice: &ModelChoice,
    data: &EvaluationData,
    predictions: Option<&mut dyn Write>,
    listener: &dyn Listener,
) -> Result<EvaluationReport> {
    let own = match data {
        EvaluationData::Experiment(experiment) => experiment.device,
        EvaluationData::File(..) => ComputeDevice::default(),
    };
    evaluate_on(own, choice, data, (predictions, listener))
}

/// The same with another device that computes.
pub fn evaluate_on(
    device: ComputeDevice,
    choice: &ModelChoice,
    data: &EvaluationData,
    (predictions, listener): (Option<&mut dyn Write>, &dyn Listener),
) -> Result<EvaluationReport> {
    let OpenedDevice { device, note } = device.open()?;
    let task = match data {
        EvaluationData::Experiment(experiment) => Some(experiment.task),
        EvaluationData::File(file, _) => {
            file.task.or_else(|| RunModel::of(choice)?.task_without_labels())
        }
    };
    // A preference is judged against the model without its adapters.
    let adapters = (task == Some(Task::Preference)).then(|| choice.adapters());
    let choice = adapters.as_ref().unwrap_or(choice);
    let folders = choice.folders()?;
    let run = RunModel::of(choice);
    let mut notes = run.as_ref().map(RunModel::notes).unwrap_or_default();
    let mut experiment = match data {
        EvaluationData::Experiment(experiment) => of_experiment(experiment, &folders)?,
        EvaluationData::File(file, split) => {
            let (experiment, note) = of_file((file, task), &folders, run.as_ref())?;
            notes.extend(note);
            if !matches!(split, Some(Split::Validation | Split::Test)) {
                let path = file.path.as_ref();
                notes.extend(run.as_ref().zip(path).and_then(|(run, path)| run.note_on_file(path)));
            }
            experiment
        }
    };
    // Rows are prepared by as many threads as score them.
    experiment.raw.threads = Some(ThreadPool::current_threads());
    experiment.learns = false;
    notes.splice(..0, note.map(|note| note.trim_start_matches("note: ").to_owned()));
    let (prepared, division, owners, read) = followed(&experiment, listener, |work| {
        let holdings = match data {
            EvaluationData::Experiment(_) => PartitionedData::of_with(&experiment, None, work)?,
            EvaluationData::File(file, split) => {
                let mut holdings = PartitionedData::of_server(&experiment, work)?;
                keep_split(&mut holdings, *split, file)?;
                holdings
            }
        };
        let division = holdings.division.clone();
        let owners: Vec<Option<String>> =
            holdings.table.examples.iter().map(|example| example.client.clone()).collect();
        let data_notes = data_notes::of_reading(&holdings).into_iter();
        let mut read: Vec<String> =
            data_notes.map(|note| note.trim_start_matches("note: ").to_owned()).collect();
        if let (EvaluationData::Experiment(_), Some(run)) = (data, &run) {
            read.extend(run.note_on_rows(&holdings));
        }
        let prepared = Prepared::of(&experiment, holdings, (&device, None), work);
        let prepared = prepared.map_err(of_labels)?;
        check_weights(&device)?;
        Ok((prepared, division, owners, read))
    })?;
    let shards = &prepared.shards;
    let evaluator = evaluator(&prepared.model, &device, shards);
    let mut sets = Sets { prepared: &prepared, evaluator, predictions, reports: BTreeMap::new() };
    match data {
        EvaluationData::Experiment(_) => {
            let central = (&shards.central_test, &division.central_test[..]);
            sets.add(set_name(EvaluationSet::CentralTest), None, central)?;
            for (shard, holding) in shards.clients.iter().zip(&division.clients) {
                for (on, examples, rows) in [
                    (EvaluationSet::ClientValidation, &shard.validation, &holding.validation),
                    (EvaluationSet::ClientTest, &shard.test, &holding.test),
                ] {
                    sets.add(set_name(on), Some(&shard.name), (examples, rows))?;
                }
            }
        }
        EvaluationData::File(..) => {
            let (examples, rows) = (&shards.central_test, &division.central_test);
            // Where a row may be several examples, nobody is told apart.
            let is_known = rows.len() == examples.len();
            let owner = |place: usize| owners.get(*rows.get(place)?)?.clone().filter(|_| is_known);
            let owners: Vec<Option<String>> = (0..examples.len()).map(owner).collect();
            for client in owners.iter().collect::<BTreeSet<_>>() {
                let kept: Vec<bool> = owners.iter().map(|owner| owner == client).collect();
                let own = rows.iter().zip(&kept).filter_map(|(row, kept)| kept.then_some(*row));
                let own: Vec<usize> = own.collect();
                sets.add(ROWS, client.as_deref(), (&examples.kept(&kept), &own))?;
            }
        }
    }
    let reports = sets.finish();
    if reports.is_empty() {
        refuse!("found no test or validation example in the data, expected at least one");
    }
    let positions = prepared.model.longest();
    let cut_rows = TokenLengths::of(shards, experiment.max_tokens, positions).note();
    let shown = folders.adapter.as_ref().unwrap_or(&folders.model);
    Ok(EvaluationReport {
        model: shown.display().to_string(),
        task: shards.task,
        labels: shards.labels.names().to_vec(),
        sets: reports,
        notes: notes
            .into_iter()
            .chain(read)
            .chain(prepared.notes.iter().cloned())
            .chain(cut_rows.map(|note| note.trim_start_matches("note: ").to_owned()))
            .collect(),
    })
}

/// The model that is evaluated is given, and so is its head: where they do not fit, the rows' labels are others.
fn of_labels(error: Error) -> Error {
    if let Error::Config(refused) = error {
        let is_head = refused.key == "model.head";
        return if is_head { refused.with_key("data.columns.label") } else { refused }.into();
    }
    error
}

/// Scores of sets as they grow, client by client.
struct Sets<'a, 'w> {
    prepared: &'a Prepared,
    evaluator: Evaluator<'a>,
    predictions: Option<&'w mut dyn Write>,
    reports: BTreeMap<String, Growing>,
}

struct Growing {
    scores: Scores,
    calibration: CalibrationScore,
    clients: BTreeMap<String, SetReport>,
}

impl Sets<'_, '_> {
    /// Adds the examples of one holder to a set.
    fn add(
        &mut self,
        set: &str,
        client: Option<&str>,
        (examples, rows): (&Examples, &[usize]),
    ) -> Result<()> {
        if examples.is_empty() {
            return Ok(());
        }
        let params = &self.prepared.params;
        let mut calibration = CalibrationScore::default();
        let scores = if self.evaluator.can_examine() {
            let (mut written, labels) = (Ok(()), self.evaluator.labels);
            let predictions = &mut self.predictions;
            let scores = self.evaluator.examine(params, examples, &mut |examined| {
                predictions::calibrate(&mut calibration, &examined);
                if let (Some(out), Ok(())) = (predictions.as_deref_mut(), &written) {
                    let row = rows.get(examined.example).copied().unwrap_or(examined.example);
                    let line = predictions::line(Place { set, client, row }, &examined, labels);
                    written = writeln!(out, "{line}");
                }
            })?;
            let what = "the predictions".to_owned();
            written.map_err(|source| Error::Unwritten { what, source })?;
            scores
        } else {
            let found = format_args!("the task {}", self.evaluator.task.name());
            ConfigError::new("evaluate.predictions", found, "one whose labels a head answers")
                .when(self.predictions.is_some())?;
            self.evaluator.score(params, examples)?
        };
        let empty = || Growing {
            scores: Scores::new(self.evaluator.task, self.evaluator.labels),
            calibration: CalibrationScore::default(),
            clients: BTreeMap::new(),
        };
        let growing = self.reports.entry(set.to_owned()).or_insert_with(empty);
        growing.scores.merge(&scores);
        growing.calibration.merge(&calibration);
        if let Some(client) = client {
            let (examples, scores) = (scores.examples, named(&scores));
            let report = SetReport { examples, scores, ..SetReport::default() };
            growing.clients.insert(client.to_owned(), report);
        }
        Ok(())
    }

    fn finish(self) -> BTreeMap<String, SetReport> {
        let labels = self.evaluator.labels;
        let report = |(set, growing): (String, Growing)| {
            let Growing { scores, calibration, clients } = growing;
            let report = SetReport {
                examples: scores.examples,
                scores: named(&scores),
                by_label: scores.by_label(labels),
                calibration: calibration.calibration(),
                clients,
            };
            (set, report)
        };
        self.reports.into_iter().map(report).collect()
    }
}

fn named(scores: &Scores) -> BTreeMap<String, f64> {
    scores.named().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn keep_split(
    holdings: &mut PartitionedData,
    split: Option<Split>,
    file: &Data,
) -> Result<(), ConfigError> {
    let Some(split) = split else { return Ok(()) };
    let examples = &holdings.table.examples;
    holdings.division.central_test.retain(|&row| examples[row].split == Some(split));
    let path = file.path.as_deref().unwrap_or(Path::new("the file"));
    let found = format_args!("no matching row in {}", path.display());
    ConfigError::new(
        "data.split",
        found,
        "at least one: the column \"split\" names the split of each row",
    )
    .when(holdings.division.central_test.is_empty())
}

/// The experiment with this model in place of its own, and nothing of how it learnt.
fn of_experiment(given: &Experiment, folders: &ModelFolders) -> Result<Experiment> {
    let RawConfig { name, seed, threads, data, federation, .. } = given.raw.clone();
    let Federation { clients, names, .. } = federation;
    let federation = Federation { rounds: Some(1), clients, names, ..Federation::default() };
    let (model, rest) = (model_table(folders, given.task)?, RawConfig::default());
    let work = Work { preference: given.raw.work.preference, ..Work::default() };
    given.over_its_rows(RawConfig { name, seed, threads, data, model, federation, work, ..rest })
}

/// An experiment whose data are one file, and what a person should know about its task. Where no columns are
/// named, they are those that the model's run was trained with.
fn of_file(
    (file, task): (&Data, Option<Task>),
    folders: &ModelFolders,
    run: Option<&RunModel>,
) -> Result<(Experiment, Option<String>)> {
    let config = open_config(&folders.model).context("model.path")?;
    let (task, note) = match task {
        Some(task) => (task, None),
        None => task_of(&config, folders)?,
    };
    let mut data = Data { task: Some(task), ..file.clone() };
    if config.image.is_some() {
        let has_columns =
            matches!(data.source, Source::Jsonl | Source::Csv | Source::Tsv | Source::Parquet);
        if has_columns && data.columns.image.is_none() {
            let own = run.and_then(RunModel::image_column);
            data.columns.image = Some(own.unwrap_or(IMAGE).to_owned());
        }
    } else {
        data.max_tokens.get_or_insert(config.max_position_embeddings);
    }
    let has_columns =
        matches!(data.source, Source::Jsonl | Source::Csv | Source::Tsv | Source::Parquet);
    if let Some(run) = run.filter(|_| has_columns) {
        data.columns = run.fill(data.columns);
    }
    let federation = Federation { rounds: Some(1), ..Federation::default() };
    let model = model_table(folders, task)?;
    let experiment =
        Experiment::new(RawConfig { data, model, federation, ..RawConfig::default() })?;
    Ok((experiment, note))
}

fn model_table(folders: &ModelFolders, task: Task) -> Result<ModelTable> {
    let has_head = task.answer_form() == fedra_data::AnswerForm::Labels;
    let lora = (task == Task::Preference).then(|| over_reference(folders)).transpose()?;
    Ok(ModelTable {
        path: Some(folders.model.clone()),
        adapter: folders.adapter.clone(),
        head: has_head.then_some(HeadChoice::Trained),
        weights: folders.weights,
        lora,
        ..ModelTable::default()
    })
}

/// The adapters of a model that judges pairs of answers, beside a head that is that of its reference.
fn over_reference(folders: &ModelFolders) -> Result<Lora> {
    let Some(adapter) = &folders.adapter else {
        let found = format!("the whole model {}", folders.model.display());
        let expected = "adapters: preferences are scored against the model without them";
        return Err(ConfigError::new("model.path", found, expected).into());
    };
    let config = open_config(&folders.model).context("model.path")?;
    let opened = AdapterFolder::open(adapter, &config).context("model.path")?;
    let adapters = opened.adapters();
    let roles = adapters.roles().iter().copied().collect();
    let (rank, alpha, head) = (adapters.rank(), adapters.alpha(), LoraHead::Frozen);
    let dora = adapters.has_magnitudes();
    Ok(Lora { rank, alpha, dora, roles, head, ..Lora::default() })
}

/// What a model's head answers; that of adapters is in their own folder.
fn task_of(config: &Config, folders: &ModelFolders) -> Result<(Task, Option<String>)> {
    let (answers, problem) = if let Some(adapter) = &folders.adapter {
        let opened = AdapterFolder::open(adapter, config).context("model.path")?;
        let (answers, problem) = adapter_answers(adapter, &opened, config).context("data.task")?;
        (Some(answers), problem)
    } else {
        let answers = config.architecture().and_then(fedra_model::hf::Architecture::answers);
        (answers, config.labels.as_ref().and_then(|labels| labels.problem))
    };
    let note = |adapter: &PathBuf| {
        format!("{}; the task diagnosis reads several", one_label_note(adapter))
    };
    match (answers, problem) {
        (Some(Answers::Tokens), _) => Ok((Task::Tokens, None)),
        (Some(Answers::Sequences), Some(Problem::MultiLabel)) => Ok((Task::Diagnosis, None)),
        (Some(Answers::Sequences), Some(Problem::SingleLabel | Problem::Regression)) => {
            Ok((Task::Classes, None))
        }
        (Some(Answers::Sequences), None) => Ok((Task::Classes, folders.adapter.as_ref().map(note))),
        (None, _) => {
            let model = folders.model.display();
            let found =
                format!("nothing, and config.json of {model} names no head that classifies");
            let expected = "classes, diagnosis, tokens or another task";
            Err(ConfigError::new("data.task", found, expected).into())
        }
    }
}

impl EvaluationReport {
    /// The report for people, on lines of so many characters: a part for each set.
    pub fn text(&self, width: usize) -> String {
        let set = |(name, set): (&String, &SetReport)| set.text(name, width);
        let parts: Vec<String> = self.sets.iter().map(set).collect();
        parts.join("\n\n")
    }
}

/// Most labels that a matrix for people has.
const MOST_LABELS: usize = 12;
/// Most labels and clients that are listed one by one.
const MOST_LINES: usize = 40;

impl SetReport {
    fn text(&self, name: &str, width: usize) -> String {
        let title = format!("{}: {}", name.replace('_', " "), counted(self.examples, "example"));
        let mut parts = Vec::new();
        let mut grid = Grid::new(["score", ">value"]);
        for (name, value) in &self.scores {
            grid.row([name.clone(), format!("{value:.4}")]);
        }
        if let Some(calibration) = &self.calibration {
            grid.row(["calibration error".into(), format!("{:.4}", calibration.expected_error)]);
            grid.row(["brier".into(), format!("{:.4}", calibration.brier)]);
        }
        parts.push(format!("{title}\n{}", grid.within(width)));
        if let Some(by_label) = &self.by_label {
            let table = label_table(by_label, MOST_LINES).within(width);
            parts.push(with_rest(table, by_label.labels.len(), "labels"));
            parts.extend(
                by_label.confusion.as_ref().map(|confusion| confusion_text(confusion, width)),
            );
        }
        if self.clients.len() > 1 {
            parts.push(self.clients_text(width));
        }
        parts.join("\n\n")
    }

    fn clients_text(&self, width: usize) -> String {
        // A client may lack a score that others have.
        let scores = self.clients.values().flat_map(|client| client.scores.keys());
        let names: BTreeSet<&String> = scores.collect();
        let headings = ["client", ">examples"].map(str::to_owned).into_iter();
        let mut grid = Grid::new(headings.chain(names.iter().map(|name| format!(">{name}"))));
        for (client, report) in self.clients.iter().take(MOST_LINES) {
            let value = |name: &&String| {
                report.scores.get(*name).map_or(String::new(), |value| format!("{value:.4}"))
            };
            let cells = [client.clone(), grouped(report.examples)];
            grid.row(cells.into_iter().chain(names.iter().map(value)));
        }
        with_rest(grid.within(width), self.clients.len(), "clients")
    }
}

fn confusion_text(confusion: &ConfusionMatrix, width: usize) -> String {
    let count = confusion.labels.len();
    if count > MOST_LABELS {
        return format!("{count} labels: --json has the confusion matrix");
    }
    let named = confusion_grid(confusion, |_, label| (label.to_owned(), label.to_owned()));
    if named.lines().iter().all(|line| line.chars().count() <= width) {
        return named.to_string();
    }
    // Long names side by side: columns have the numbers of their rows.
    let numbered = confusion_grid(confusion, |number, label| {
        (format!("{number} {label}"), number.to_string())
    });
    numbered.within(width)
}

/// The matrix with what a label is called as a row and as a column, by its number from 1.
fn confusion_grid(
    ConfusionMatrix { labels, counts }: &ConfusionMatrix,
    name: impl Fn(usize, &str) -> (String, String),
) -> Grid {
    let names: Vec<(String, String)> =
        (1..).zip(labels).map(|(number, label)| name(number, label)).collect();
    let headings = names.iter().map(|(_, column)| format!(">{column}"));
    let mut grid = Grid::new(std::iter::once("true \\ answered".to_owned()).chain(headings));
    for ((label, _), row) in names.iter().zip(counts) {
        grid.row(std::iter::once(label.clone()).chain(row.iter().map(|count| grouped(*count))));
    }
    grid
}

fn with_rest(text: String, all: usize, what: &str) -> String {
    if all <= MOST_LINES {
        return text;
    }
    format!("{text}\nand {} more {what}: --json has them all", grouped((all - MOST_LINES) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_that_only_a_later_client_has_gets_a_column() {
        let client = |scores: &[(&str, f64)]| SetReport {
            examples: 3,
            scores: scores.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..SetReport::default()
        };
        let clients =
            [("a", client(&[("loss", 1.5)])), ("b", client(&[("auc", 0.5), ("loss", 2.0)]))];
        let clients = clients.map(|(name, report)| (name.to_owned(), report)).into();
        let text = SetReport { clients, ..SetReport::default() }.clients_text(80);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["client", "examples", "auc", "loss"]);
        assert_eq!(rows.last().unwrap(), &["b", "3", "0.5000", "2.0000"]);
        assert!(rows.contains(&vec!["a", "3", "1.5000"]), "{text}");
    }
}
