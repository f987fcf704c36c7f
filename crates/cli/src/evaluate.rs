//! `fedra evaluate`: how good a trained model is on labelled rows.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::Experiment;
use fedra::apply::evaluate::EvaluationData;
use fedra::apply::output_file::OutputFile;
use fedra::config::raw_config::{Data, Source};
use fedra_data::{Columns, Encoding, Missing, Split, Task};
use serde::Deserialize as _;
use serde_json::Value;

use crate::console;
use crate::device::DeviceFlags;
use crate::experiment::Overrides;
use crate::flags::{MISSING, Threads, Verbosity, one_of};
use crate::hub;
use crate::interrupt;
use crate::keyed_errors::{FILE, MODEL, in_flags};
use crate::predict::{Chosen, existing, parse_encoding};
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  fedra evaluate --model runs/clinic runs/clinic/experiment.toml
  fedra evaluate --model runs/clinic --best experiments/clinic-concepts.toml --json
  fedra evaluate --model runs/notes notes.csv --columns text=note,label=diagnosis
  fedra evaluate --model runs/notes notes.jsonl --split test --predictions answers.jsonl

An experiment file sets its own rows, splits, clients and maximum length. docs/predict.md
explains the numbers.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Evaluate {
    #[command(flatten)]
    model: Chosen,
    /// Experiment in TOML, or labelled rows: JSON lines, CSV, TSV, Parquet, a word a line, a folder
    /// of images, or IDX files
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    device: DeviceFlags,
    /// The task of the rows [default: by the model's head]
    #[arg(long, value_name = "TASK", value_parser = one_of(Task::ALL.map(|task| (task.name(), task))))]
    task: Option<Task>,
    /// Column names, as in text=note,label=code,client=ward,split=part [default: the text and
    /// label columns of the model's run]
    #[arg(long, value_name = "KEY=NAME,..")]
    columns: Option<String>,
    /// Only rows of this split: train, validation or test
    #[arg(long, value_name = "NAME", value_parser = parse_split)]
    split: Option<Split>,
    /// Format of the rows: jsonl, csv, tsv, parquet, conll, images or idx [default: by the name]
    #[arg(long, value_name = "FORMAT", value_parser = parse_source)]
    input_format: Option<Source>,
    /// Character encoding of the file, as in `fedra predict`
    #[arg(long, value_name = "NAME", value_parser = parse_encoding)]
    encoding: Option<Encoding>,
    /// Character between the fields of CSV and TSV
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<char>,
    /// What to do with rows without a text or a label [default: refuse]
    #[arg(long, value_name = "CHOICE", value_parser = one_of(MISSING))]
    missing: Option<Missing>,
    /// Most tokens of a row [default: the model's limit, or the experiment's]
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Write each row's truth and answer to a file, in JSON lines
    #[arg(long, value_name = "FILE")]
    predictions: Option<PathBuf>,
    /// Replace an existing predictions file
    #[arg(long, requires = "predictions")]
    force: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    threads: Threads,
}

impl Evaluate {
    /// Scores.
    pub fn run(&self) -> Result<()> {
        let keys = if self.is_experiment() { MODEL } else { FILE };
        let scored = self.threads.pool()?.install(|| self.score());
        scored.map_err(|error| in_flags(error, keys))
    }

    fn score(&self) -> Result<()> {
        let (data, choice) = (self.data()?, self.model.choice()?);
        let mut predictions = match &self.predictions {
            Some(path) => Some(OutputFile::create("--predictions", path, existing(self.force))?),
            None => None,
        };
        interrupt::removes(predictions.as_ref().and_then(OutputFile::part));
        let terminal = Terminal::new(Verbosity::Lively);
        let written = predictions.as_mut().map(|file| file as &mut dyn Write);
        let device = match &data {
            EvaluationData::Experiment(experiment) => experiment.device,
            EvaluationData::File(..) => self.device.choice()?,
        };
        let report = fedra::evaluate_on(device, &choice, &data, (written, &terminal))?;
        if let Some(file) = predictions {
            file.finish()?;
        }
        for note in &report.notes {
            let key = "data.max_tokens";
            let flag = if self.is_experiment() { key } else { "--max-tokens" };
            console::say(format_args!("note: {}", note.replace(key, flag)));
        }
        if self.json {
            console::json(serde_json::to_string_pretty(&report)?);
        } else {
            console::data(report.text(console::table_width()));
        }
        Ok(())
    }

    fn is_experiment(&self) -> bool {
        self.file.extension().is_some_and(|end| end.eq_ignore_ascii_case("toml"))
    }

    fn data(&self) -> Result<EvaluationData> {
        if self.is_experiment() {
            for (flag, given) in [
                ("--task", self.task.is_some()),
                ("--columns", self.columns.is_some()),
                ("--split", self.split.is_some()),
                ("--input-format", self.input_format.is_some()),
                ("--encoding", self.encoding.is_some()),
                ("--delimiter", self.delimiter.is_some()),
                ("--missing", self.missing.is_some()),
                ("--max-tokens", self.max_tokens.is_some()),
            ] {
                if given {
                    bail!(
                        "{flag} applies only to a file of rows, not to an experiment\n\
                           hint: --set changes a key of the experiment"
                    );
                }
            }
            let overrides = self.device.over(self.overrides.as_given());
            let open = || Experiment::open(&self.file, &overrides);
            let experiment = hub::opened(Verbosity::Lively, open)?;
            return Ok(EvaluationData::Experiment(Box::new(experiment)));
        }
        if self.overrides.is_given() {
            bail!("--set and --seed apply only to an experiment, not to a file of rows");
        }
        let named = || {
            if self.file.is_dir() {
                let is_idx = fedra_data::idx_files(&self.file).is_ok();
                return Some(if is_idx { Source::Idx } else { Source::Images });
            }
            let name = self.file.to_string_lossy();
            if name.contains("-idx3-") || name.contains(".idx3-") {
                return Some(Source::Idx);
            }
            let name = name.strip_suffix(".gz").unwrap_or(&name);
            parse_source(name.rsplit('.').next().unwrap_or_default()).ok()
        };
        let Some(source) = self.input_format.or_else(named) else {
            bail!(
                "--input-format is missing: the name {} does not tell the format; expected jsonl, csv, tsv, \
                 parquet, conll, images or idx",
                self.file.display()
            );
        };
        let data = Data {
            path: Some(self.file.clone()),
            source,
            task: self.task,
            columns: columns(self.columns.as_deref().unwrap_or_default())?,
            encoding: self.encoding,
            delimiter: self.delimiter,
            missing: self.missing,
            max_tokens: self.max_tokens,
            ..Data::default()
        };
        Ok(EvaluationData::File(Box::new(data), self.split))
    }
}

/// Columns by what they mean; a second `text` makes a pair.
fn columns(text: &str) -> Result<Columns> {
    let mut columns = serde_json::Map::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let Some((key, name)) = part.split_once('=') else {
            bail!("--columns: found {part:?}, expected KEY=NAME");
        };
        let (key, name) = (key.trim().to_owned(), Value::from(name));
        let named = match columns.remove(&key) {
            None => name,
            Some(Value::Array(names)) => names.into_iter().chain([name]).collect(),
            Some(first) => Value::Array(vec![first, name]),
        };
        columns.insert(key, named);
    }
    Columns::deserialize(Value::Object(columns)).context("--columns")
}

fn parse_split(text: &str) -> Result<Split, String> {
    Split::parse(text).ok_or_else(|| format!("found {text:?}, expected train, validation or test"))
}

fn parse_source(text: &str) -> Result<Source, String> {
    match text.to_ascii_lowercase().as_str() {
        "jsonl" | "ndjson" | "json" => Ok(Source::Jsonl),
        "csv" => Ok(Source::Csv),
        "tsv" | "tab" => Ok(Source::Tsv),
        "parquet" => Ok(Source::Parquet),
        "conll" | "bio" | "iob" => Ok(Source::Conll),
        "images" => Ok(Source::Images),
        "idx" => Ok(Source::Idx),
        other => {
            Err(format!("found {other:?}, expected jsonl, csv, tsv, parquet, conll, images or idx"))
        }
    }
}
