//! `fedra predict`: what a trained model says about texts or images.

use std::cell::RefCell;
use std::io::{self, BufWriter, Cursor, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::apply::output_file::{Existing, OutputFile};
use fedra::apply::predict::{
    BadRows, PredictReport, PredictSettings, PredictionWriter, WriteSettings,
};
use fedra::apply::run_model::RunModel;
use fedra::apply::trained_model::{ModelChoice, ModelFolders, Reading, TrainedModel, WhichRound};
use fedra::prepare::token_lengths::cut_rows;
use fedra::text::grid::{counted, grouped};
use fedra_compute::Params;
use fedra_data::{Encoding, OtherFormats, TextColumns, TextFile, TextFormat, printable};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;

use crate::console;
use crate::device::DeviceFlags;
use crate::flags::{Threads, Verbosity, one_of};
use crate::hub;
use crate::interrupt;
use crate::keyed_errors::{FILE, data_in_flags, in_flags};
use crate::openai::{adapter_folder, named_folder};
use crate::screen::{self, TextLine};
use crate::weights::WeightsFlag;

const EXAMPLES: &str = "\
Examples:
  fedra predict --model runs/clinic --text 'No chest pain since the stent.'
  fedra predict --model runs/skin --image lesion.jpg --image other.png
  fedra predict --model runs/skin --input folder-of-images --output labelled.csv
  fedra predict --model runs/clinic --input notes.csv --column note --output labelled.csv
  fedra predict --model runs/clinic --best --input notes.jsonl > labelled.jsonl
  fedra predict --model models/minilm --adapter north=runs/north --adapter south=runs/south \\
      --input notes.csv --output labelled.csv
  cut -f3 notes.tsv | fedra predict --model runs/clinic --input - --input-format text

docs/predict.md lists every key of an answer. For a decoder that writes text see `fedra generate`.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Predict {
    #[command(flatten)]
    model: Chosen,
    /// Adapters over the model, which is their base; may be given several times. Each answers into a file of its own,
    /// whose name is that of --output with NAME in front of its ending
    #[arg(long, value_name = "NAME=DIR", requires = "output", conflicts_with_all = ["best", "base"],
          value_parser = named_folder)]
    adapter: Vec<(String, PathBuf)>,
    #[command(flatten)]
    texts: Texts,
    /// Column to read; two of them are a pair of texts [default: as the run was trained, or text, or
    /// image for a model of images]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["text", "image"])]
    column: Vec<String>,
    /// Format of the input [default: by the ending of its name]
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["text", "image"],
          value_parser = one_of(TextFormat::ALL.map(|format| (format.name(), format))))]
    input_format: Option<TextFormat>,
    /// Character encoding of the input: utf-8, latin-1, windows-1252, utf-16, utf-16le or utf-16be
    #[arg(long, value_name = "NAME", default_value = "utf-8", value_parser = parse_encoding)]
    encoding: Encoding,
    /// Character between the fields of CSV and TSV
    #[arg(long, value_name = "CHARACTER", conflicts_with_all = ["text", "image"])]
    delimiter: Option<char>,
    /// Write answers to a file [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of the answers [default: by the ending of --output, or jsonl]
    #[arg(long, value_name = "FORMAT", value_parser = one_of(TextFormat::ALL.map(|format| (format.name(), format))))]
    format: Option<TextFormat>,
    /// Replace an existing file
    #[arg(long, requires = "output")]
    force: bool,
    /// Number of labels in `probabilities` [default: 5 in jsonl, no such column in tables]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// With several labels per row: predict those with a probability above this [default: 0.5]
    #[arg(long, value_name = "P")]
    threshold: Option<f64>,
    /// Read a head's outputs as any number of labels, where the folder does not say so
    #[arg(long)]
    multi_label: bool,
    /// Most tokens of a text [default: the model's limit]
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Skip and count rows that cannot be read, instead of stopping at the first
    #[arg(long)]
    skip_bad: bool,
    #[command(flatten)]
    device: DeviceFlags,
    #[command(flatten)]
    threads: Threads,
}

/// Which model.
#[derive(Args)]
pub struct Chosen {
    /// Folder of a run, of a model in Hugging Face layout or of adapters, or hf:ORG/NAME
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Of a run: the model of its best round instead of the last
    #[arg(long)]
    best: bool,
    /// Of adapters: their base model, if it is not where the adapter folder says
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    #[command(flatten)]
    weights: WeightsFlag,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Texts {
    /// A text; may be given several times
    #[arg(long, value_name = "TEXT")]
    text: Vec<String>,
    /// A PNG or JPEG file, for a model of images; may be given several times
    #[arg(long, value_name = "FILE", num_args = 1..)]
    image: Vec<PathBuf>,
    /// A file with a text or an image in every row, a folder of images, or - for standard input
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

impl Chosen {
    /// The same for the library; a model of the hub that this machine lacks is fetched.
    pub fn choice(&self) -> fedra::Result<ModelChoice> {
        let round = if self.best { WhichRound::Best } else { WhichRound::Last };
        let path = hub::folder("model.path", &self.model, Verbosity::Lively)?;
        let base = self.base.as_ref();
        let base =
            base.map(|base| hub::folder("model.base", base, Verbosity::Lively)).transpose()?;
        Ok(ModelChoice { path, round, base, weights: self.weights.format() })
    }
}

impl Predict {
    /// Answers.
    pub fn run(&self) -> Result<()> {
        if let Some(threshold) = self.threshold
            && !(0.0..=1.0).contains(&threshold)
        {
            bail!("--threshold: found {threshold}, expected a number from 0 to 1");
        }
        let answered = self.threads.pool()?.install(|| self.answer());
        answered.map_err(|error| in_flags(error, FILE))
    }

    fn answer(&self) -> Result<()> {
        // Flags are judged before a model is read.
        let input = self.input_format()?;
        let format = self.output_format()?;
        self.columns()?;
        if let (Some(output), Some(input)) = (&self.output, &self.texts.input)
            && is_same(output, input)
        {
            bail!("--output: {} is the input file; name another one", output.display());
        }
        let choice = self.model.choice()?;
        let folders = choice.folders()?;
        let device = self.device.open(Verbosity::Lively)?;
        if self.adapter.is_empty() {
            let model = TrainedModel::open_on(&folders, device)?;
            return self.answer_with(model, &choice, (input, format), self.output.as_deref());
        }
        let outputs = self.outputs()?;
        let mut base: Option<Params> = None;
        for ((name, adapter), output) in self.adapter.iter().zip(&outputs) {
            let adapter = Some(adapter_folder(adapter, false)?);
            let folders = ModelFolders { adapter, ..folders.clone() };
            let opened = TrainedModel::open_over(&folders, device.clone(), base.as_ref());
            let model = opened
                .map_err(|error| anyhow::anyhow!("--adapter {name}: {}", error.in_words()))?;
            base.get_or_insert_with(|| model.params.clone());
            console::say(format_args!("{name}: {}", output.display()));
            self.answer_with(model, &choice, (input, format), Some(output))?;
        }
        Ok(())
    }

    /// The file of each adapter.
    fn outputs(&self) -> Result<Vec<PathBuf>> {
        if self.texts.input.as_deref().is_some_and(is_stdin) {
            bail!("--adapter: standard input can be read once; give a file to --input");
        }
        let Some(output) = &self.output else { return Ok(Vec::new()) };
        let mut outputs: Vec<PathBuf> = Vec::new();
        for (name, _) in &self.adapter {
            let is_plain =
                name.chars().all(|letter| letter.is_alphanumeric() || "-_".contains(letter));
            if !is_plain {
                bail!(
                    "--adapter: found the name {name:?}, expected letters, digits, - and _: it is part of a file's name"
                );
            }
            let own = match output.extension() {
                Some(end) => output.with_extension(format!("{name}.{}", end.to_string_lossy())),
                None => output.with_extension(name),
            };
            if outputs.contains(&own) {
                bail!(
                    "--adapter: found two with the name {name:?}, expected another name for each"
                );
            }
            outputs.push(own);
        }
        Ok(outputs)
    }

    /// Answers with one model.
    fn answer_with(
        &self,
        mut model: TrainedModel,
        choice: &ModelChoice,
        (input, format): (TextFormat, TextFormat),
        output: Option<&Path>,
    ) -> Result<()> {
        let mut columns = self.columns()?;
        let run = RunModel::of(choice);
        for note in run.iter().flat_map(RunModel::notes) {
            console::say(format_args!("note: {note}"));
        }
        let column_hint = self.take_columns_of(run.as_ref(), input, &mut columns);
        if self.multi_label {
            model.read_several()?;
        }
        for note in &model.notes {
            console::say(format_args!("note: {note}; --multi-label reads several"));
        }
        self.check_kind(&model)?;
        let answers = model.reading;
        let other = match answers {
            Reading::SeveralLabels => None,
            Reading::OneLabel => Some((
                "exactly one label",
                "--multi-label reads the head's outputs as several labels",
            )),
            Reading::Words => Some(("a label for each word", "leave it out")),
        };
        if let (Some(_), Some((told, hint))) = (self.threshold, other) {
            bail!(
                "--threshold applies only where a text may have several labels, and this model answers {told}\nhint: {hint}"
            );
        }
        if let Some(most) = self.max_tokens {
            if model.reads_images() {
                bail!("--max-tokens applies only to texts, and this model reads images");
            }
            if most > model.longest {
                bail!(
                    "--max-tokens: found {most}, expected at most {}, the model's longest",
                    model.longest
                );
            }
            model.longest = most;
        }
        let path = match &self.texts.input {
            None if model.reads_images() => PathBuf::from("--image"),
            None => PathBuf::from("--text"),
            Some(path) if is_stdin(path) => PathBuf::from("standard input"),
            Some(path) => path.clone(),
        };
        let image = model.reads_images().then(|| {
            let own = run.as_ref().and_then(RunModel::image_column);
            let named = self.column.first().map(String::as_str);
            named.or(own).unwrap_or("image").to_owned()
        });
        let images = self.images()?;
        let image = if images.is_some() { Some("image".to_owned()) } else { image };
        let file = TextFile {
            path,
            format: input,
            columns: columns.filter(|_| image.is_none()),
            image,
            words: model.words_are(),
            encoding: self.encoding,
            delimiter: self.delimiter,
            column_hint,
            anywhere: images.is_some(),
        };
        let stream = images.or_else(|| self.stream());
        let bad_rows = if self.skip_bad { BadRows::Skip } else { BadRows::Refuse };
        let usual = PredictSettings::default();
        let settings =
            PredictSettings { threshold: self.threshold.unwrap_or(usual.threshold), bad_rows };
        let writing = WriteSettings { format, top: self.top, answers };
        let start = Instant::now();
        let progress = RowsDone::new(start, output.is_some());
        let told = |rows| progress.told(rows);
        let input = (&file, stream);
        let answered = match output {
            None => {
                let writer = PredictionWriter::new(BufWriter::new(Stdout), writing);
                let done = model.predict_rows(input, settings, writer, &told);
                done.and_then(|(report, mut output)| Ok((report, output.flush()?)))
            }
            Some(path) => {
                let output = OutputFile::create("--output", path, existing(self.force))?;
                interrupt::removes(output.part());
                let writer = PredictionWriter::new(output, writing);
                let done = model.predict_rows(input, settings, writer, &told);
                done.and_then(|(report, output)| Ok((report, output.finish()?)))
            }
        };
        progress.end();
        let (report, ()) = answered?;
        self.say(report, start.elapsed().as_secs_f64(), model.longest);
        Ok(())
    }

    /// Refuses texts for a model of images, and images for one of texts.
    fn check_kind(&self, model: &TrainedModel) -> Result<()> {
        if model.reads_images() {
            if !self.texts.text.is_empty() {
                bail!("--text: this model reads images\nhint: --image FILE names one");
            }
            if self.column.len() > 1 {
                bail!("--column: found {} of them, expected one: the image", self.column.len());
            }
            return Ok(());
        }
        let is_folder = self.texts.input.as_ref().is_some_and(|input| input.is_dir());
        if !self.texts.image.is_empty() || is_folder {
            bail!("this model reads texts, not images\nhint: --text TEXT or --input FILE");
        }
        Ok(())
    }

    /// Images that no table names, as a table: those of flags, or of a folder with their classes and splits.
    fn images(&self) -> Result<Option<Box<dyn io::Read>>> {
        let mut lines = Vec::new();
        for path in &self.texts.image {
            lines.push(serde_json::json!({ "image": path.to_string_lossy() }));
        }
        if let Some(folder) = self.texts.input.as_ref().filter(|input| input.is_dir()) {
            for file in fedra_data::image_files(folder, OtherFormats::Listed)? {
                lines.push(serde_json::json!({ "image": file.path.to_string_lossy() }));
            }
        }
        if lines.is_empty() {
            return Ok(None);
        }
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        Ok(Some(Box::new(Cursor::new(lines.join("\n")))))
    }

    /// Texts that no file holds.
    fn stream(&self) -> Option<Box<dyn io::Read>> {
        match &self.texts.input {
            None => {
                let line = |text: &String| serde_json::json!({ "text": text }).to_string();
                let lines: Vec<String> = self.texts.text.iter().map(line).collect();
                Some(Box::new(Cursor::new(lines.join("\n"))))
            }
            Some(path) if is_stdin(path) => Some(Box::new(io::stdin())),
            Some(_) => None,
        }
    }

    /// Where no flag names columns, those that the run was trained with are read; returns what an error adds
    /// then.
    fn take_columns_of(
        &self,
        run: Option<&RunModel>,
        input: TextFormat,
        columns: &mut Option<TextColumns>,
    ) -> &'static str {
        let Some(own) = run.and_then(RunModel::text_columns) else { return "" };
        match (&self.texts.input, own) {
            (None, TextColumns::Pair([first, second])) => {
                console::say(format_args!(
                    "note: the run was trained with pairs of texts ({} and {}), and --text is one text",
                    printable(first),
                    printable(second)
                ));
                return "";
            }
            (None, TextColumns::One(_)) => return "",
            (Some(_), _) => {}
        }
        match input {
            TextFormat::Lines => "",
            TextFormat::JsonLines | TextFormat::Csv | TextFormat::Tsv | TextFormat::Parquet => {
                if columns.is_some() {
                    return "";
                }
                *columns = Some(own.clone());
                ", with which the run was trained; --column NAME names another"
            }
        }
    }

    fn say(&self, report: PredictReport, seconds: f64, longest: usize) {
        for refusal in report.complaints {
            console::say(format_args!("left out: {}", data_in_flags(refusal, FILE)));
        }
        if report.skipped > 0 {
            console::say(format_args!("{} left out", counted(report.skipped, "row")));
        }
        if report.truncated > 0 {
            console::say(format_args!(
                "note: {}: the rest was not read (`truncated` gives the number of tokens)",
                cut_rows((report.truncated, report.rows), longest)
            ));
        }
        if report.blank > 0 {
            let verb = if report.blank == 1 { "has" } else { "have" };
            console::say(format_args!(
                "note: {} of {} {verb} no text, the first at {}: its prediction is meaningless",
                grouped(report.blank),
                counted(report.rows, "row"),
                printable(&report.first_blank.to_string())
            ));
        }
        if self.texts.input.is_some() {
            let speed = report.rows as f64 / seconds.max(1e-9);
            console::say(format_args!(
                "{} in {seconds:.1} s, {speed:.0} per second",
                counted(report.rows, "row")
            ));
        }
    }

    fn input_format(&self) -> Result<TextFormat> {
        let Some(path) = &self.texts.input else { return Ok(TextFormat::JsonLines) };
        if path.is_dir() {
            return Ok(TextFormat::JsonLines);
        }
        if let Some(format) = self.input_format {
            return Ok(format);
        }
        if is_stdin(path) {
            return Ok(TextFormat::Lines);
        }
        format_of("--input-format", path)
    }

    fn columns(&self) -> Result<Option<TextColumns>> {
        match &self.column[..] {
            [] => Ok(None),
            [one] => Ok(Some(TextColumns::One(one.clone()))),
            [first, second] => Ok(Some(TextColumns::Pair([first.clone(), second.clone()]))),
            more => {
                bail!("--column: found {} of them, expected one, or two for a pair", more.len())
            }
        }
    }

    fn output_format(&self) -> Result<TextFormat> {
        match (self.format, &self.output) {
            (Some(format), _) => Ok(format),
            (None, None) if io::stdout().is_terminal() => Ok(TextFormat::Lines),
            (None, None) => Ok(TextFormat::JsonLines),
            (None, Some(path)) => format_of("--format", path),
        }
    }
}

/// How long nobody asks how far it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// A live line that counts rows, where that disturbs nobody.
struct RowsDone {
    begun: Instant,
    /// Drawn once it takes a while.
    line: RefCell<Option<TextLine>>,
    is_shown: bool,
}

impl RowsDone {
    /// Answers that scroll by on the same terminal show by themselves how far it is.
    fn new(begun: Instant, to_file: bool) -> Self {
        let is_shown = screen::is_live() && (to_file || !io::stdout().is_terminal());
        Self { begun, line: RefCell::new(None), is_shown }
    }

    fn told(&self, rows: u64) {
        if !self.is_shown || self.begun.elapsed() < PATIENCE {
            return;
        }
        let speed = rows as f64 / self.begun.elapsed().as_secs_f64();
        let mut line = self.line.borrow_mut();
        let line = line.get_or_insert_with(|| TextLine::new(true));
        line.set(format!("{}, {speed:.0} per second", counted(rows, "row")));
    }

    fn end(&self) {
        if let Some(line) = self.line.take() {
            line.remove();
        }
    }
}

/// Standard output as data are written there: a reader that is gone ends nothing.
struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        console::bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The format that the end of a file's name says, where a flag does not.
/// What becomes of a file that is there already.
pub fn existing(force: bool) -> Existing {
    if force { Existing::Replaced } else { Existing::Refused("--force replaces it") }
}

fn format_of(flag: &str, path: &Path) -> Result<TextFormat> {
    TextFormat::of(path).with_context(|| {
        format!(
            "{flag} is missing: the name {} does not tell the format; expected jsonl, csv, tsv, text or parquet",
            path.display()
        )
    })
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// An encoding by the name that it has in an experiment file.
pub fn parse_encoding(text: &str) -> Result<Encoding, String> {
    let read: Result<Encoding, serde::de::value::Error> =
        Encoding::deserialize(text.into_deserializer());
    read.map_err(|error| error.to_string())
}
