//! A model that has learnt, opened to be applied: a run's folder, a model folder, or adapters over
//! their base.
//!
//! Nothing is reinitialised here. A head that is not in the folder is an error, because a random one
//! would answer all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fedra_client::{ModelInput, Predictor};
use fedra_compute::{Device, Params, Seed, Tensor, WeightFormat};
use fedra_data::{ImageEncoder, LabelSet};
use fedra_hub::{Hub, ModelName};
use fedra_model::ClassKind;
use fedra_model::hf::config::Problem;
use fedra_model::hf::{Answers, Architecture, Checkpoint, Config, TrainedHead, WhyFresh};
use fedra_model::peft::AdapterFolder;
use fedra_model::{
    Classifier, Loaded, Model, ModelError, Wanted, WeightStorage, load_part_as, open_config,
};
use fedra_plan::{Layer, Layout, ParamId, Part};
use serde_json::Value;

use crate::config::ConfigError;
use crate::error::{Context, Result, refuse};
use crate::prepare::prepared::check_weights;
use crate::prepare::pretrained::{OpenedModel, RowReader};
use crate::run_files::{ADAPTER, ADAPTER_BEST, EXPERIMENT, MODEL, MODEL_BEST};

/// Which model is meant.
#[derive(Clone, Debug)]
pub struct ModelChoice {
    /// The folder of a run, a model or adapters.
    pub path: PathBuf,
    /// Which of a run's two models.
    pub round: WhichRound,
    /// The model that adapters belong to, where it is not where they say.
    pub base: Option<PathBuf>,
    /// How weights are stored; as the run of the adapters stored them, or in f32, unless given.
    pub weights: Option<WeightFormat>,
}

pub use crate::folder::model_card::WhichRound;

/// The folders that a choice comes down to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFolders {
    /// A whole model, or the base of adapters.
    pub model: PathBuf,
    /// Adapters over it.
    pub adapter: Option<PathBuf>,
    /// How weights are stored.
    pub weights: WeightFormat,
}

/// How a head's outputs are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Exactly one label a text.
    OneLabel,
    /// Any number of labels a text.
    SeveralLabels,
    /// One label a word.
    Words,
}

/// A model with its labels and what reads its rows.
pub struct TrainedModel {
    /// The structure.
    pub model: Model,
    /// The numbers.
    pub params: Params,
    /// The names of its outputs, in their order.
    pub labels: Vec<String>,
    /// How its outputs are read.
    pub reading: Reading,
    /// What cuts texts, or resizes images.
    pub reader: RowReader,
    /// Most tokens of a sequence, as its tokenizer's configuration and its positions say.
    pub longest: usize,
    /// What a person should know, a line each.
    pub notes: Vec<String>,
    device: Device,
}

/// Tokens in a batch: few enough that what a block makes of them stays near the core that works on them.
const TOKENS: usize = 512;
/// What marks a folder of adapters.
const ADAPTER_CONFIG: &str = "adapter_config.json";

impl ModelChoice {
    /// The adapters of a run in place of the whole model that it leaves beside them; the same for any other folder.
    #[must_use]
    pub(crate) fn adapters(&self) -> Self {
        let name = match self.round {
            WhichRound::Last => ADAPTER,
            WhichRound::Best => ADAPTER_BEST,
        };
        let path = self.path.join(name);
        if !self.path.join(EXPERIMENT).is_file() || !path.is_dir() {
            return self.clone();
        }
        Self { path, round: WhichRound::Last, ..self.clone() }
    }

    /// The folders behind it.
    pub fn folders(&self) -> Result<ModelFolders> {
        let shown = self.path.display();
        ConfigError::new(
            "model.path",
            format_args!("no {shown}"),
            "the folder of a run or of a model",
        )
        .when(!self.path.exists())?;
        let mut path = self.path.clone();
        if path.join(EXPERIMENT).is_file() {
            let (whole, adapter) = match self.round {
                WhichRound::Last => (path.join(MODEL), path.join(ADAPTER)),
                WhichRound::Best => (path.join(MODEL_BEST), path.join(ADAPTER_BEST)),
            };
            // A run over weights that are not f32 leaves adapters alone.
            path = if !whole.is_dir() && adapter.is_dir() { adapter } else { whole };
            let why = match self.round {
                WhichRound::Last => "it is not complete, or every client keeps its own model",
                WhichRound::Best => "it did not track its best round",
            };
            let found = format_args!("no {} in the run", path.display());
            ConfigError::new("model.path", found, format_args!("one: {why}"))
                .when(!path.is_dir())?;
        } else {
            let expected = format_args!("the folder of a run, which has {EXPERIMENT}");
            ConfigError::new("model.best", shown, expected).when(self.round == WhichRound::Best)?;
        }
        if path.join(ADAPTER_CONFIG).is_file() {
            let base = match &self.base {
                Some(base) => base.clone(),
                None => declared_base(&path)?,
            };
            let weights = match self.weights {
                Some(weights) => weights,
                None => weights_of_run(&path).unwrap_or_default(),
            };
            return Ok(ModelFolders { model: base, adapter: Some(path), weights });
        }
        if let Some(base) = &self.base {
            let found = format!("{} with a whole model in {}", base.display(), path.display());
            let expected = "no --base: it applies only to a folder of adapters";
            return Err(ConfigError::new("model.base", found, expected).into());
        }
        let weights = self.weights.unwrap_or_default();
        Ok(ModelFolders { model: path, adapter: None, weights })
    }
}

/// How the run around a folder of adapters stored the weights under them.
fn weights_of_run(adapter: &Path) -> Option<WeightFormat> {
    let adapter = adapter.canonicalize().ok()?;
    let name = adapter.file_name()?;
    let run = adapter.parent().filter(|_| name == ADAPTER || name == ADAPTER_BEST)?;
    let text = std::fs::read_to_string(run.join(EXPERIMENT)).ok()?;
    let table: toml::Table = text.parse().ok()?;
    table.get("model")?.get("weights")?.as_str()?.parse().ok()
}

/// Where adapters say that their base lies: a path as it is, or beside them.
fn declared_base(adapter: &Path) -> Result<PathBuf> {
    let file = adapter.join(ADAPTER_CONFIG);
    let config = read_json(&file)?;
    let Some(name) = config["base_model_name_or_path"].as_str().filter(|name| !name.is_empty())
    else {
        let found = format!("none, and no base_model_name_or_path in {}", file.display());
        return Err(ConfigError::new("model.base", found, "one or the other").into());
    };
    let places = [PathBuf::from(name), adapter.join(name)];
    if let Some(place) = places.into_iter().find(|place| place.exists()) {
        return Ok(place);
    }
    // Other libraries name a base as the hub does. The cache may have it; nobody asked to fetch it.
    let revision = config["revision"].as_str().map_or(String::new(), |it| format!("@{it}"));
    let known = format!("hf:{name}{revision}").parse::<ModelName>().ok();
    let cached = || Hub::from_env().ok()?.cached(known.as_ref()?);
    cached().map(|snapshot| snapshot.folder).ok_or_else(|| {
        let place = format!("base_model_name_or_path of {}", file.display());
        let found = format!("none, and {name:?}, the {place}, is not here");
        let expected = "the folder of the model that the adapters belong to";
        let refusal = ConfigError::new("model.base", found, expected);
        let hint = |name: &ModelName| format!("--base {name} fetches it from the Hugging Face hub");
        known.as_ref().map(hint).into_iter().fold(refusal, ConfigError::with_hint).into()
    })
}

impl TrainedModel {
    /// Opens and reads the folders; the processor computes.
    pub fn open(folders: &ModelFolders) -> Result<Self> {
        Self::open_on(folders, Device::cpu())
    }

    /// The same with another device that computes.
    pub fn open_on(folders: &ModelFolders, device: Device) -> Result<Self> {
        Self::open_over(folders, device, None)
    }

    /// The same; what adapters find of their base among these parameters is not read again, so that several adapters
    /// have the base in memory once.
    pub fn open_over(
        folders: &ModelFolders,
        device: Device,
        base: Option<&Params>,
    ) -> Result<Self> {
        let OpenedModel { checkpoint, reader } =
            OpenedModel::open(&folders.model).context("model.path")?;
        let mut notes = Vec::new();
        let (loaded, labels, reading) = match &folders.adapter {
            None => whole(&checkpoint, &folders.model, (&device, folders.weights))?,
            Some(adapter) => {
                let how = (&device, folders.weights);
                adapted(&checkpoint, (&folders.model, adapter), how, (base, &mut notes))?
            }
        };
        check_weights(&device)?;
        let Loaded { model, params, companions, .. } = loaded;
        let vocabulary = model.config().vocab_size;
        if let RowReader::Tokenizer(tokenizer) = &reader
            && tokenizer.highest_id() as usize >= vocabulary
        {
            refuse!(
                "{}: found a tokenizer with ids up to {}, expected ids below the {vocabulary} rows of the \
                 model's embedding",
                folders.model.display(),
                tokenizer.highest_id()
            );
        }
        let declared = companions.get("tokenizer_config.json").and_then(|bytes| {
            let config: Value = serde_json::from_slice(bytes).ok()?;
            // Some files say 1e30 for no bound.
            config["model_max_length"].as_f64().filter(|length| *length >= 3.0)
        });
        let positions = model.longest();
        let longest = declared.map_or(positions, |length| positions.min(length as usize));
        Ok(Self { model, params, labels, reading, reader, longest, notes, device })
    }

    /// Reads its outputs as any number of labels a text, whatever the folder says.
    pub fn read_several(&mut self) -> Result<()> {
        ConfigError::new("model.multi_label", "a head for words", "one for whole texts")
            .when(self.reading == Reading::Words)?;
        self.reading = Reading::SeveralLabels;
        self.notes.clear();
        Ok(())
    }

    /// What applies it.
    pub fn predictor(&self) -> Predictor<'_> {
        let input = match (&self.reader, self.model.config().image) {
            (RowReader::Processor(processor), Some(image)) => {
                let shape = [image.channels, image.height, image.width];
                ModelInput::Images(ImageEncoder::new(processor, shape, image.tokens()))
            }
            (RowReader::Processor(_), None) => {
                unreachable!("only models of images have a processor")
            }
            (RowReader::Tokenizer(tokenizer), _) => {
                ModelInput::Texts { tokenizer, longest: self.longest }
            }
        };
        let (model, params, device) = (&self.model, &self.params, &self.device);
        Predictor { model, params, device, input, tokens: TOKENS }
    }

    /// Whether it reads images.
    pub fn reads_images(&self) -> bool {
        matches!(self.reader, RowReader::Processor(_))
    }

    /// Whether the labels of words mark spans, as `B-` and `I-` do.
    pub fn marks_spans(&self) -> bool {
        fedra_client::marks_spans(&LabelSet::new(self.labels.iter().cloned()))
    }
}

/// A model folder with its own head.
fn whole(
    checkpoint: &Checkpoint,
    path: &Path,
    (device, weights): (&Device, WeightFormat),
) -> Result<(Loaded, Vec<String>, Reading)> {
    let shown = path.display();
    let config = checkpoint.config();
    let Some(architecture) = config.architecture() else {
        let found = config.original.get("architectures").map_or("nothing".into(), Value::to_string);
        let usual = Architecture { family: config.family, kind: ClassKind::Sequences };
        refuse!(
            "{shown}: config.json: architectures: found {found}, expected a class of {} that classifies, such \
             as {:?}",
            config.family.name,
            usual.class_name()
        );
    };
    let answers = match architecture.answers() {
        Some(answers) => answers,
        None if config.causal && architecture.kind == ClassKind::Language => refuse!(
            "{shown}: found a decoder that writes text, expected a head that classifies\n\
             hint: fedra generate writes text"
        ),
        None => refuse!(
            "{shown}: found {}, which has no head that classifies, expected a fine-tuned model",
            architecture.class_name()
        ),
    };
    let names = match checkpoint.trained_head(answers)? {
        TrainedHead::Named(names) => names,
        TrainedHead::Numbered(count) => (0..count).map(fedra_model::hf::Labels::numbered).collect(),
        TrainedHead::OtherTask(task) => {
            refuse!("{shown}: found a head for {task}, expected one that classifies")
        }
        TrainedHead::Absent => refuse!("{shown}: found no trained head, expected one"),
    };
    let problem = config.labels.as_ref().and_then(|labels| labels.problem);
    let rows = Classifier::Rows((0..names.len()).collect());
    let head = config.head(answers, names.len());
    let wanted = Wanted { head, classifier: rows, adapters: None };
    let loaded = load_as(checkpoint, wanted, (device, weights)).context("model.path")?;
    if let Some(fresh) = loaded.report.fresh.first() {
        refuse!("{shown}: found no {}, expected a whole head", fresh.id);
    }
    let reading = reading(answers, problem, names.len());
    Ok((loaded, names, reading))
}

/// What the head beside adapters answers, as their folder or the run around it says: whole texts or words, and how
/// outputs are read, which is unknown for adapters that come from elsewhere.
pub(crate) fn adapter_answers(
    path: &Path,
    adapter: &AdapterFolder,
    base: &Config,
) -> Result<(Answers, Option<Problem>)> {
    let shown = path.display();
    let config = read_json(&path.join(ADAPTER_CONFIG))?;
    let answers = match config["task_type"].as_str() {
        Some("SEQ_CLS") => Answers::Sequences,
        Some("TOKEN_CLS") => Answers::Tokens,
        Some("CAUSAL_LM") => refuse!(
            "{shown}: found adapters of a decoder that writes text, expected a head that classifies\n\
             hint: fedra generate writes text"
        ),
        Some(task) => refuse!(
            "{shown}: {ADAPTER_CONFIG}: task_type: found {task:?}, expected \"SEQ_CLS\" or \"TOKEN_CLS\""
        ),
        // PEFT has no word for images, and other programs leave it out.
        None => match unnamed_task(&config, base) {
            Some(answers) => answers,
            None => refuse!(
                "{shown}: {ADAPTER_CONFIG}: task_type: found {}, and neither auto_mapping nor the base model \
                 names a class that classifies\n\
                 hint: set task_type to \"SEQ_CLS\" or \"TOKEN_CLS\"",
                config["task_type"]
            ),
        },
    };
    // Adapters of earlier versions do not say it; the whole model beside them in a run does.
    let is_of_run = |name: &std::ffi::OsStr| name == ADAPTER || name == ADAPTER_BEST;
    let beside = || {
        path.file_name().filter(|name| is_of_run(name))?;
        let model = open_config(&path.parent()?.join(MODEL)).ok()?;
        model.labels.as_ref().and_then(|labels| labels.problem)
    };
    Ok((answers, adapter.problem().or_else(beside)))
}

/// The task of adapters that do not name it: that of the class which they were made with, or of their base.
fn unnamed_task(adapter: &Value, base: &Config) -> Option<Answers> {
    if base.image.is_some() {
        return Some(Answers::Sequences);
    }
    let class = adapter["auto_mapping"]["base_model_class"].as_str().and_then(Architecture::parse);
    class.or_else(|| base.architecture()).and_then(Architecture::answers)
}

/// Adapters, and the head that learnt with them, over their base.
fn adapted(
    checkpoint: &Checkpoint,
    (base, path): (&Path, &Path),
    (device, weights): (&Device, WeightFormat),
    (known, notes): (Option<&Params>, &mut Vec<String>),
) -> Result<(Loaded, Vec<String>, Reading)> {
    let adapter = AdapterFolder::open(path, checkpoint.config()).context("model.path")?;
    let shown = path.display();
    let (answers, problem) = adapter_answers(path, &adapter, checkpoint.config())?;
    let names = match adapter.trained_head() {
        TrainedHead::Named(names) => names,
        TrainedHead::Numbered(count) => (0..count).map(fedra_model::hf::Labels::numbered).collect(),
        TrainedHead::Absent | TrainedHead::OtherTask(_) => {
            refuse!(
                "{shown}: found adapters without a head, expected the head that was trained with them"
            )
        }
    };
    let head = checkpoint.config().head(answers, names.len());
    let wanted = Wanted {
        head,
        classifier: Classifier::Fresh(WhyFresh::Asked),
        adapters: Some(adapter.adapters().clone()),
    };
    let is_base =
        |id: ParamId| id.layer != Layer::Head && matches!(id.part, Part::Weight | Part::Bias);
    let known = known.map(|known| known.iter().filter(|(id, _)| is_base(*id)));
    let known: BTreeMap<ParamId, &Tensor> = known.into_iter().flatten().collect();
    let stored = |layout: &Layout| WeightStorage::of_all(weights, layout);
    let keep = |id: ParamId| !known.contains_key(&id);
    let loaded = load_part_as(checkpoint, wanted, (device, Seed(0)), keep, stored);
    let mut loaded = loaded.context("model.base")?;
    for (id, tensor) in known {
        if loaded.model.layout().get(id).is_some() {
            loaded.params.insert(id, tensor.clone());
        }
    }
    let rows = Classifier::Rows((0..names.len()).collect());
    let Loaded { model, params, .. } = &mut loaded;
    let taken: BTreeSet<ParamId> =
        adapter.load((model, params), &rows, device).context("model.path")?;
    let fresh = loaded.report.fresh.iter().map(|fresh| fresh.id);
    if let Some(id) = fresh.into_iter().find(|id| !taken.contains(id)) {
        refuse!("{shown}: found no {id}, neither there nor in {}, expected one", base.display());
    }
    if answers == Answers::Sequences && problem.is_none() && names.len() > 1 {
        notes.push(one_label_note(path));
    }
    let reading = reading(answers, problem, names.len());
    Ok((loaded, names, reading))
}

/// A whole model that nothing of learns, its large matrices in a format.
fn load_as(
    checkpoint: &Checkpoint,
    wanted: Wanted,
    (device, format): (&Device, WeightFormat),
) -> std::result::Result<Loaded, ModelError> {
    let stored = |layout: &Layout| WeightStorage::of_all(format, layout);
    load_part_as(checkpoint, wanted, (device, Seed(0)), |_| true, stored)
}

/// What is said of adapters that do not tell how their labels are read.
pub(crate) fn one_label_note(path: &Path) -> String {
    format!(
        "{} does not say whether a text has one label or several; Fedra assumes one",
        path.display()
    )
}

/// As `transformers` reads them: one output alone is a label that is there or not.
fn reading(answers: Answers, problem: Option<Problem>, classes: usize) -> Reading {
    match (answers, problem) {
        (Answers::Tokens, _) => Reading::Words,
        (Answers::Sequences, Some(Problem::MultiLabel)) => Reading::SeveralLabels,
        (Answers::Sequences, _) if classes == 1 => Reading::SeveralLabels,
        (Answers::Sequences, Some(Problem::SingleLabel | Problem::Regression) | None) => {
            Reading::OneLabel
        }
    }
}

fn read_json(path: &Path) -> Result<Value> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let read = serde_json::from_str(&text);
    read.with_context(|| format!("{}: found no JSON, expected an object", path.display()))
}
