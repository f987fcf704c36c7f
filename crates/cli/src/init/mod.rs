//! `fedra init`: an experiment file for data that somebody has.
//!
//! Flags say what is known; on a terminal the rest is asked, each question with a proposal; elsewhere
//! `--yes` takes the proposals. The library looks at the files and proposes ([`fedra::init`]).

mod asking;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::init::{ModelChoice, Proposal, Sight, Wishes, look, propose, without_ending};
use fedra::text::grid::{Grid, counted, grouped};
use fedra::text::shell;
use fedra_data::{Missing, Task, printable};

use crate::console;
use crate::flags::{MISSING, Quiet, one_of, whole};
use crate::hub;
use crate::terminal::Terminal;
use asking::Asking;

const EXAMPLES: &str = "\
Examples:
  fedra init                                   asks for everything
  fedra init notes.csv                         looks at the file, asks for the rest
  fedra init notes.csv --yes                   takes every proposal
  fedra init notes.jsonl --text note --label department --client-column hospital --yes
  fedra init hospitals/ --model models/minilm --out study.toml --yes
  fedra init notes.csv --model hf:sentence-transformers/all-MiniLM-L6-v2 --yes
  fedra init --client north=n.csv --client south=s.csv --private 8 --model models/minilm --yes

DATA is CSV or TSV with a header, JSON lines, Parquet or CoNLL, plain or gzip; a folder has one
file for each client. Every question has a flag. docs/init.md says how columns, task and model
are proposed.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Init {
    /// A file with rows, or a folder with a file for each client
    #[arg(value_name = "DATA")]
    data: Option<PathBuf>,
    /// A client and its file; may be given several times, in place of DATA
    #[arg(long = "client", value_name = "NAME=FILE", value_parser = parse_client)]
    files: Vec<(String, PathBuf)>,
    /// Output file [default: the data's name with .toml]; - is stdout
    #[arg(long, short, value_name = "FILE.toml")]
    out: Option<PathBuf>,
    /// The task to learn
    #[arg(long, value_name = "TASK", value_parser = one_of(Task::ALL.map(|task| (task.name(), task))))]
    task: Option<Task>,
    /// The column with the text; give it twice for a pair of texts
    #[arg(long, value_name = "COLUMN")]
    text: Vec<String>,
    /// The column with the label, or with the text to write
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    /// The column with the client of a row
    #[arg(long, value_name = "COLUMN", conflicts_with = "clients")]
    client_column: Option<String>,
    /// Partition the rows among N simulated clients
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1, None))]
    clients: Option<u16>,
    /// A file with the rows of the central test set
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// A pretrained model: a folder in Hugging Face layout, a GGUF file, or hf:ORG/NAME, which is fetched
    #[arg(long, value_name = "DIR", conflicts_with = "preset")]
    model: Option<PathBuf>,
    /// A shape with fresh weights [default: tiny-encoder]
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// A tokenizer for a preset: a folder with tokenizer.json
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    tokenizer: Option<PathBuf>,
    /// The method [default: fedavg]
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
    /// Number of rounds
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, None))]
    rounds: Option<u32>,
    /// What to do with rows without a text or a label [default: refuse]
    #[arg(long, value_name = "CHOICE", value_parser = one_of(MISSING))]
    missing: Option<Missing>,
    /// Train with example-level differential privacy, up to this epsilon
    #[arg(long, value_name = "EPSILON", allow_negative_numbers = true,
          value_parser = parse_epsilon)]
    private: Option<f64>,
    /// Ask nothing and take every proposal
    #[arg(long, short)]
    yes: bool,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    quiet: Quiet,
}

impl Init {
    /// Looks, asks and writes.
    pub fn run(self) -> Result<()> {
        let (asking, voice) = (Asking::new(self.yes), self.quiet.voice());
        let data = match (&self.data, self.files.as_slice()) {
            (Some(data), _) => Some(data.clone()),
            (None, [_, ..]) => None,
            (None, []) => Some(asking.data()?),
        };
        let sight = look(data.as_deref(), &self.files)?;
        let mut wishes = self.wishes();
        hub::provide(voice, || propose(&sight, &wishes).map(drop))?;
        // What is wrong with flags is said before anything is asked.
        let first = propose(&sight, &wishes)?;
        voice.say(found(&sight, &first));
        asking.all(&sight, &mut wishes)?;
        let proposal = hub::opened(voice, || propose(&sight, &wishes))?;
        for note in proposal.notes() {
            voice.say(format_args!("note: {note}"));
        }
        let proposal = proposal.measured(&Terminal::new(voice))?;
        let usual = usual_out(data.as_deref());
        let out = match &self.out {
            Some(out) => out.clone(),
            None => asking.out(&usual)?,
        };
        let shown = out.display().to_string();
        let stem = out.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let stem = stem.as_deref().unwrap_or("experiment");
        let text = proposal.checked(&shown, stem)?;
        if out == Path::new("-") {
            console::bytes(text.as_bytes());
            return Ok(());
        }
        self.write(&out, &text)?;
        voice.say(told(&proposal, &shown));
        Ok(())
    }

    fn wishes(&self) -> Wishes {
        Wishes {
            task: self.task,
            text: self.text.clone(),
            label: self.label.clone(),
            client: self.client_column.clone(),
            clients: self.clients.map(usize::from),
            test: self.test.clone(),
            model: self.model.clone(),
            preset: self.preset.clone(),
            tokenizer: self.tokenizer.clone(),
            method: self.method.clone(),
            rounds: self.rounds,
            epsilon: self.private,
            missing: self.missing,
        }
    }

    /// Writes the file; one that came there in the meantime is not written over either.
    fn write(&self, out: &Path, text: &str) -> Result<()> {
        let shown = out.display();
        let mut options = OpenOptions::new();
        if self.force {
            options.create(true).truncate(true);
        } else {
            options.create_new(true);
        }
        let mut file = match options.write(true).open(out) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
                "--out: {shown} exists already\n\
                 hint: --force overwrites it, --out FILE.toml takes another name"
            ),
            Err(error) => return Err(error).with_context(|| format!("cannot write {shown}")),
        };
        file.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))
    }
}

/// The data's name with another ending, where fedra runs.
fn usual_out(data: Option<&Path>) -> PathBuf {
    let name = data.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let stem = without_ending(&name).trim_matches('.');
    let stem = if stem.is_empty() { "experiment" } else { stem };
    // Names of experiments become folders.
    let legal = |c: char| if c.is_alphanumeric() || "-_".contains(c) { c } else { '_' };
    PathBuf::from(format!("{}.toml", stem.chars().map(legal).collect::<String>()))
}

/// Most columns that are listed.
const MOST_COLUMNS: usize = 20;
/// Letters of a name that are shown.
const LONGEST_NAME: usize = 32;

/// What was found in the files, column by column.
fn found(sight: &Sight, proposal: &Proposal) -> String {
    let mut grid = Grid::new(["column", ">filled", ">different", ">words", "proposed as"]);
    let roles = &proposal.roles;
    let role = |name: &str| {
        let is = |chosen: Option<&String>| chosen.is_some_and(|chosen| chosen == name);
        if roles.text.value.iter().any(|text| text == name) {
            return if sight.images.is_some() { "image" } else { "text" };
        }
        let label = roles.label.as_ref().map(|label| &label.value);
        let client = roles.client.as_ref().map(|client| &client.value);
        let document = roles.document.as_ref().map(|document| &document.value);
        let others = [
            ("label", label),
            ("client", client),
            ("split", roles.split.as_ref()),
            ("document", document),
        ];
        others.into_iter().find(|(_, column)| is(*column)).map_or("", |(role, _)| role)
    };
    for column in sight.survey.columns.iter().take(MOST_COLUMNS) {
        // Long values are not kept, so nobody knows how many differ.
        let counted = || grouped(column.distinct() as u64);
        let different = if column.has_more { "many".to_owned() } else { counted() };
        let name: String = printable(&column.name).chars().take(LONGEST_NAME).collect();
        grid.row([
            name,
            grouped(column.filled as u64),
            different,
            format!("{:.1}", column.mean_words()),
            role(&column.name).to_owned(),
        ]);
    }
    let rows = counted(sight.survey.rows as u64, "row");
    let more = match sight.survey.columns.len().saturating_sub(MOST_COLUMNS) {
        0 => String::new(),
        more => format!("\nand {more} more columns"),
    };
    let what = match sight.files.as_slice() {
        [one] => one.path.display().to_string(),
        files => format!("{} files", files.len()),
    };
    let what = printable(&what);
    format!("{what}: {rows}\n{grid}{more}\n{}", models(sight, proposal))
}

/// Most models that are listed.
const MOST_MODELS: usize = 10;

/// The pretrained models that were found, and which one is proposed.
fn models(sight: &Sight, proposal: &Proposal) -> String {
    if sight.models.is_empty() {
        return String::new();
    }
    let taken = match &proposal.training.model {
        ModelChoice::Folder(path) => Some(path),
        ModelChoice::Preset(..) => None,
    };
    let mut grid = Grid::new(["model", "what it is", ""]);
    for model in sight.models.iter().take(MOST_MODELS) {
        let name = printable(&model.name);
        let name = if model.is_cached { format!("{name} (cached)") } else { name.into_owned() };
        let (what, is_usable) = match &model.shape {
            Ok(shape) => (shape.in_words(), true),
            Err(reason) => (format!("cannot be used: {reason}"), false),
        };
        let is_taken = is_usable && taken == Some(&model.written());
        grid.row([name, what, if is_taken { "proposed" } else { "" }.to_owned()]);
    }
    let more = match sight.models.len().saturating_sub(MOST_MODELS) {
        0 => String::new(),
        more => format!("\nand {more} more models"),
    };
    format!("\n{grid}{more}\n")
}

/// What was written, and what to do with it.
fn told(proposal: &Proposal, file: &str) -> String {
    let file = shell::quoted(file);
    let (roles, training) = (&proposal.roles, &proposal.training);
    let clients = counted(training.clients as u64, "client");
    let clients = match &roles.client {
        Some(client) => format!("{clients}, by column {:?}", client.value),
        None if proposal.makes_up_clients() => format!("{clients}, simulated"),
        None => clients,
    };
    format!(
        "wrote {file}: {} ({}), {clients}, {}\n\n  \
         fedra data {file}    are these my rows, labels and clients?\n  \
         fedra plan {file}    what would learn and travel?\n  \
         fedra run {file}     run it",
        roles.task.value.name(),
        roles.task.why,
        counted(u64::from(training.rounds.value), "round"),
    )
}

fn parse_client(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.trim().is_empty() && !file.is_empty() => {
            Ok((name.trim().to_owned(), PathBuf::from(file)))
        }
        Some(_) | None => Err("expected NAME=FILE".to_owned()),
    }
}

fn parse_epsilon(text: &str) -> Result<f64, String> {
    let read = text.parse::<f64>().ok().filter(|epsilon| *epsilon > 0.0 && epsilon.is_finite());
    read.ok_or_else(|| "expected a number above 0, such as 8".to_owned())
}
