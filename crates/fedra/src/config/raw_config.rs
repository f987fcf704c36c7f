//! An experiment as it is written: every key of the TOML file, with its default.
//!
//! A raw configuration has the right words and types and nothing more is known about it; [`super::Experiment`]
//! is what it becomes when its values make sense together. It is also what `experiment.toml` in an
//! output folder holds, with all defaults filled in, so that file runs again as it stands.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fedra_compute::{Precision, WeightFormat};
use fedra_data::{
    Augment, ChoiceTemplates, Clinic, Columns, Encoding as Letters, Format, LengthNorm, Mimic,
    Missing, PromptTemplate, Shares, Small, Task,
};
use fedra_engine::{
    ClassWeights, Conditions, Encoding, MaxNorm, MinArrivals, MomentsLife, OptimiserConfig,
    PreferenceLoss, RateDecay, RateWarmup, Sampler, Start, USUAL_RETRIES, settings,
};
use fedra_model::{Adapters, ModelError};
use fedra_plan::Role;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::device_name::DeviceName;
use super::lora_roles::{self, TargetModules};
use super::privacy_table::PrivacyTable;
use super::split_table::SplitTable;

settings! {
    /// The whole file.
    pub struct RawConfig {
        /// What the run is called; the file's name unless given.
        pub name: Option<String> = None,
        /// Where every draw starts.
        pub seed: u64 = 1,
        /// Who computes: `cpu`, `auto` or `cuda:N`.
        pub device: DeviceName = DeviceName::default(),
        /// In which precision a GPU computes: `f32`, `tf32` or `bf16`.
        #[serde(with = "super::device_name::precision")]
        pub precision: Precision = Precision::default(),
        /// The most of a GPU's memory to take, as in `8 GB`; all of it unless given.
        pub device_memory: Option<String> = None,
        /// How many threads; all cores unless given.
        pub threads: Option<usize> = None,
        /// Where a simulation keeps what its idle clients keep.
        pub keep: Keep = Keep::default(),
        /// Where rounds are logged beside `rounds.jsonl`.
        #[serde(skip_serializing_if = "BTreeSet::is_empty")]
        pub log: BTreeSet<LogFormat> = BTreeSet::new(),
        /// What is learnt from.
        pub data: Data = Data::default(),
        /// What learns.
        pub model: Model = Model::default(),
        /// Who takes part, and how often.
        pub federation: Federation = Federation::default(),
        /// What a client does in a round.
        pub work: Work = Work::default(),
        /// The method's name and its settings.
        pub method: Method = Method::default(),
        /// How parameters travel.
        pub wire: Wire = Wire::default(),
        /// How the model is cut between clients and server; absent: it is not.
        pub split: Option<SplitTable> = None,
        /// When the model is tested.
        pub evaluate: Evaluate = Evaluate::default(),
        /// What goes wrong on purpose; absent: nothing.
        pub conditions: Option<Conditions> = None,
        /// What `fedra compare` varies; a run takes no part of it.
        pub compare: Option<CompareTable> = None,
        /// What is guaranteed to those whose rows are learnt from; absent: nothing.
        pub privacy: Option<PrivacyTable> = None,
    }
}

impl RawConfig {
    /// What an experiment is called that neither its text nor a file names.
    pub(super) const UNNAMED: &str = "experiment";
}

/// Where idle clients' states lie; changes memory and time and no result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// In memory, unless it is too much ([`crate::forecast::state_placement`]).
    #[default]
    Auto,
    /// In memory.
    Memory,
    /// In a scratch file in the run's folder.
    Disk,
}

/// Chat templates that are built in.
pub const BUILT_IN_TEMPLATES: [&str; 2] = ["plain", "chatml"];

/// `[data]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// The format, or the clinic that needs no file.
    pub source: Source,
    /// The task to learn.
    pub task: Option<Task>,
    /// A file with all rows, or a folder: of images, IDX files, i2b2 or MIMIC-III.
    pub path: Option<PathBuf>,
    /// A file for each client by its name, in place of one with everybody's rows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub clients: BTreeMap<String, PathBuf>,
    /// A file with rows to learn from.
    pub train: Option<PathBuf>,
    /// A file with rows to decide on.
    pub validation: Option<PathBuf>,
    /// A file with rows to report on: the central test set.
    pub test: Option<PathBuf>,
    /// The names of all labels; those of the rows unless given.
    pub labels: Option<Vec<String>>,
    /// What stands between the fields of a CSV or TSV file, where it is not the usual character.
    pub delimiter: Option<char>,
    /// How the letters of a text file are written; UTF-8 unless given.
    pub encoding: Option<Letters>,
    /// What becomes of rows without a text or a label; they are refused unless given.
    pub missing: Option<Missing>,
    /// What the model reads, written from columns, for tasks that are answered in text.
    pub prompt: Option<PromptTemplate>,
    /// The answers among which a label chooses, for `choice`.
    pub answers: Option<ChoiceTemplates>,
    /// What should be written, for `generation`.
    pub target: Option<PromptTemplate>,
    /// What likelihoods are divided by before they are compared, for `choice`.
    pub length_norm: Option<LengthNorm>,
    /// Most tokens that are written, for `generation`, and for `chat` where last answers are to be written too.
    pub max_new_tokens: Option<usize>,
    /// How conversations are written, in place of the model's own template: a file in Jinja, or `plain` or `chatml`.
    pub chat_template: Option<PathBuf>,
    /// Which column means what.
    pub columns: Columns,
    /// How rows find their client.
    pub partition: Partition,
    /// How rows are split where the source does not say.
    pub shares: Shares,
    /// The share of the training rows that is used: the chance with which each of them is.
    pub sample: Option<f64>,
    /// Most training examples at a client; the rest is left out.
    pub max_examples: Option<usize>,
    /// Most examples in each test or validation set; the rest is left out.
    pub max_test: Option<usize>,
    /// Most tokens of an example; the rest is cut.
    pub max_tokens: Option<usize>,
    /// What training may do to images: random flips and crops; nothing unless given.
    pub augment: Option<Augment>,
    /// A folder that keeps tokenised rows for the next time; nothing is kept unless given.
    pub cache: Option<PathBuf>,
    /// The knobs of the synthetic clinic; its hospitals are `federation.clients`.
    pub clinic: Option<Clinic>,
    /// Which notes and codes of MIMIC-III to take.
    pub mimic: Option<Mimic>,
}

/// Where rows come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Notes that no patient wrote.
    #[default]
    SyntheticClinic,
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated, with a header.
    Csv,
    /// Tab-separated, with a header.
    Tsv,
    /// Parquet.
    Parquet,
    /// One word a line.
    Conll,
    /// The folder of i2b2 2010.
    #[serde(rename = "i2b2-2010")]
    I2b2,
    /// A folder of PNG and JPEG files, one folder a class.
    Images,
    /// Images and labels as MNIST has them.
    Idx,
    /// The folder of MIMIC-III.
    #[serde(rename = "mimic-iii")]
    Mimic,
    /// Rows of a program: a file that says so cannot be run again without that program.
    #[serde(rename = "rows-of-a-program", skip_deserializing)]
    Rows,
}

impl Data {
    /// Whether rows are images.
    pub fn is_images(&self) -> bool {
        matches!(self.source, Source::Images | Source::Idx) || self.columns.image.is_some()
    }
}

impl Source {
    /// The format of files that hold rows and nothing else, if rows come from such.
    pub(super) const fn format(self) -> Option<Format> {
        match self {
            Self::Jsonl => Some(Format::JsonLines),
            Self::Csv => Some(Format::Csv),
            Self::Tsv => Some(Format::Tsv),
            Self::Parquet => Some(Format::Parquet),
            Self::Conll => Some(Format::Conll),
            Self::I2b2 => Some(Format::I2b2),
            Self::Images => Some(Format::Images),
            Self::Idx => Some(Format::Idx),
            Self::SyntheticClinic | Self::Mimic | Self::Rows => None,
        }
    }

    /// How rows of a program are written down.
    pub(super) const ROWS: &str = "rows-of-a-program";
}

/// How rows find their client; how many clients there are is `federation.clients`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Partition {
    /// The way.
    pub by: By,
    /// The concentration, for `dirichlet` and `quantity`.
    pub alpha: Option<f64>,
    /// Shards a client, for `shards`.
    pub shards: Option<usize>,
    /// Fewest training rows of a client.
    pub min_examples: Option<usize>,
    /// What becomes of clients with fewer: `merge` into one called `others`, or `drop`.
    pub small: Option<Small>,
    /// Clients of the source who take no part: none of their rows is trained on or tested on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leave_out: Vec<String>,
}

/// The ways to deal rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// As the source says.
    #[default]
    Client,
    /// At random, each client with the same chance.
    Iid,
    /// Label by label in drawn shares.
    Dirichlet,
    /// A few labels each.
    Shards,
    /// At random, with drawn chances.
    Quantity,
}

/// `[model]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// A shape by name, with fresh weights.
    pub preset: Option<String>,
    /// A folder in Hugging Face layout, a GGUF file, or `hf:ORG/NAME@REVISION` for a model of the hub.
    pub path: Option<PathBuf>,
    /// Most pieces of the vocabulary grown for a preset.
    pub vocabulary: Option<usize>,
    /// A tokenizer for a preset, in place of a vocabulary that is grown: a model folder or a
    /// `tokenizer.json`.
    pub tokenizer: Option<PathBuf>,
    /// Another number of blocks than the preset has.
    pub blocks: Option<usize>,
    /// Another width than the preset has.
    pub width: Option<usize>,
    /// Another number of attention heads than the preset has.
    pub heads: Option<usize>,
    /// Pixels of a preset's images along each side, which rows are resized to.
    pub image_size: Option<usize>,
    /// Pixels of a preset's patches along each side.
    pub patch: Option<usize>,
    /// Channels of a preset's images: 1 is grey, 3 is colour.
    pub channels: Option<usize>,
    /// Whether a folder's trained head is left aside; kept where its labels are the data's unless
    /// given.
    pub head: Option<HeadChoice>,
    /// How weights that never learn are stored: `f32`, `bf16`, `int8` or `int4`.
    #[serde(with = "super::device_name::weights", skip_serializing_if = "is_f32")]
    pub weights: WeightFormat,
    /// A folder with adapters that the run starts from, in PEFT's layout; beside a path.
    pub adapter: Option<PathBuf>,
    /// Low-rank adapters that learn in place of the model's weights; absent: the weights learn.
    pub lora: Option<Lora>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_f32(format: &WeightFormat) -> bool {
    *format == WeightFormat::F32
}

/// `[model] head`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadChoice {
    /// Reinitialised whatever the folder has.
    Fresh,
    /// The folder's, or an error: never reinitialised.
    Trained,
}

settings! {
    /// `[model] lora`
    pub struct Lora {
        /// Rank of the correction.
        pub rank: usize = 8,
        /// The correction is multiplied by alpha / rank.
        pub alpha: f32 = 16.0,
        /// The correction is multiplied by alpha / sqrt(rank) instead (rsLoRA).
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub rslora: bool = false,
        /// Whether the rows of corrected weights have magnitudes that learn beside them (`DoRA`).
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub dora: bool = false,
        /// The projections that get an adapter, in every block.
        #[serde(deserialize_with = "lora_roles::read")]
        pub roles: Vec<Role> = vec![Role::Query, Role::Value],
        /// The same as PEFT says it, in place of `roles`: the ends of modules' paths, `all-linear`, or a pattern.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub target_modules: Option<TargetModules> = None,
        /// How adapters of several clients become one.
        pub mean: LoraMean = LoraMean::Separate,
        /// Whether the head learns beside the adapters.
        #[serde(skip_serializing_if = "LoraHead::is_usual")]
        pub head: LoraHead = LoraHead::Learns,
    }
}

impl Lora {
    /// The adapters that it stands for. Rank-stabilised ones (Kalajdzievski 2023, <https://arxiv.org/abs/2312.03732>)
    /// are those with alpha multiplied by the root of the rank.
    pub fn adapters(&self) -> Result<Adapters, ModelError> {
        let plain = Adapters::new(self.rank, self.plain_alpha(), self.roles.iter().copied())?;
        Ok(if self.dora { plain.with_magnitudes() } else { plain })
    }

    /// Alpha, as it is divided by the rank.
    pub fn plain_alpha(&self) -> f32 {
        let stabilised = f64::from(self.alpha) * (self.rank as f64).sqrt();
        if self.rslora { stabilised as f32 } else { self.alpha }
    }
}

/// `model.lora.head`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoraHead {
    /// It learns.
    #[default]
    Learns,
    /// It stays as it is, with the norm in front of it.
    Frozen,
}

impl LoraHead {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// `model.lora.mean`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoraMean {
    /// Each factor by itself, which is not the mean of the corrections.
    #[default]
    Separate,
    /// The first factor stays as it was drawn; the mean of the second is then exact.
    FreezeA,
    /// The mean of the corrections, factored again.
    Exact,
}

settings! {
    /// `[federation]`
    pub struct Federation {
        /// How many rounds.
        pub rounds: Option<u32> = None,
        /// How many clients; the source's own number unless given.
        pub clients: Option<usize> = None,
        /// The clients' names in the order of their numbers, for a server that has nobody's rows; those
        /// of the rows unless given.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub names: Vec<String> = Vec::new(),
        /// Who takes part in a round.
        pub sample: Sampler = Sampler::default(),
        /// The fewest updates with which a round counts: a number of clients, or a share of the cohort.
        pub min_arrivals: MinArrivals = MinArrivals::default(),
        /// The largest norm of an update: a number, or a multiple of the cohort's median.
        pub max_norm: Option<MaxNorm> = None,
        /// How often a round with fewer is repeated, with a new cohort, before the run stops.
        pub retries: u32 = USUAL_RETRIES,
        /// What clients hold before the first round: nothing (`sent`), or the model (`shared`).
        pub start: Start = Start::default(),
        /// How many of the blocks a client has, by name; all of them unless given. `default` may say
        /// the model's own number.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub depths: BTreeMap<String, u16> = BTreeMap::new(),
        /// The rank of a client's adapters, by name; that of `model.lora` unless given.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub ranks: BTreeMap<String, u16> = BTreeMap::new(),
    }
}

settings! {
    /// `[work]`
    pub struct Work {
        /// Passes over a client's examples.
        pub epochs: u32 = 1,
        /// Examples that are worked on at once: those of a step, unless it accumulates.
        pub batch: u32 = 16,
        /// Batches whose gradients make one step.
        pub accumulate: u32 = 1,
        /// Stops a client's round early.
        pub max_steps: Option<u32> = None,
        /// Scales gradients down to this norm.
        pub clip: Option<f32> = None,
        /// How a gradient becomes a step.
        pub optimiser: OptimiserConfig = OptimiserConfig::default(),
        /// What becomes of the rate over all rounds.
        pub schedule: RateDecay = RateDecay::Constant,
        /// How long the rate rises from 0 at first: a number of rounds, or a share of all steps.
        pub warmup: RateWarmup = RateWarmup::Rounds(0),
        /// Whether the optimiser's moments live on between a client's rounds.
        pub moments: MomentsLife = MomentsLife::Fresh,
        /// What a target counts by its label; all alike unless given.
        pub class_weights: Option<ClassWeights> = None,
        /// What share of a target goes to all labels alike.
        pub label_smoothing: f32 = 0.0,
        /// How a pair of answers is learned, for preferences.
        pub preference: Option<PreferenceLoss> = None,
        /// The chance of an activation to be dropped in training.
        pub dropout: f32 = 0.0,
    }
}

/// `[method]`: a name, and settings that only the method itself knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Method {
    /// The name.
    pub name: String,
    /// All other keys.
    #[serde(flatten)]
    pub settings: Table,
}

impl Default for Method {
    fn default() -> Self {
        Self { name: "fedavg".to_owned(), settings: Table::new() }
    }
}

/// `[wire]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wire {
    /// How changes are written on the way up.
    pub encoding: Encoding,
    /// How values are written on the way down.
    pub download: Encoding,
}

settings! {
    /// `[evaluate]`
    #[derive(Copy, Eq)]
    pub struct Evaluate {
        /// Every so many rounds; the last is always tested.
        pub every: u32 = 1,
        /// Measure how far the clients of each round go apart; methods that need it do so anyway.
        pub drift: bool = false,
        /// Follow the attention of the model on a fixed sample of each client's training examples.
        pub attention: bool = false,
        /// Keep the model of the round that did best on the clients' validation examples too; so it is
        /// unless given, where there are such examples.
        pub best: Option<bool> = None,
        /// Stop once so many scorings in a row brought nothing better on those examples.
        pub patience: Option<u32> = None,
        /// Write each example of the central test set with its truth and the last model's answer to
        /// `predictions.jsonl`.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub predictions: bool = false,
    }
}

impl Evaluate {
    /// Whether the model of the best round is kept, where validation examples say which it is.
    pub fn keeps_best(&self) -> bool {
        self.best != Some(false)
    }

    /// The keys that ask for a decision by validation examples.
    pub fn deciding(&self) -> impl Iterator<Item = &'static str> {
        let best = (self.best == Some(true)).then_some("best");
        best.into_iter().chain(self.patience.map(|_| "patience"))
    }
}

/// `[compare]`: what `fedra compare` does with a file beyond running it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompareTable {
    /// How many seeds, from the experiment's own upwards.
    pub seeds: Option<u32>,
    /// With how many of them a tuned value is chosen.
    pub tune_seeds: Option<u32>,
    /// What the others are held against.
    pub baseline: Option<String>,
    /// Sets of overrides with a name, for methods with settings of their own.
    pub variants: Vec<NamedVariant>,
    /// Keys and the values they take, in all combinations.
    pub sweep: Table,
    /// Keys whose value each variant chooses for itself.
    pub tune: Table,
}

/// One entry of `compare.variants`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedVariant {
    /// What it is called.
    pub name: String,
    /// Keys with their values; a table replaces a table.
    #[serde(default)]
    pub set: Table,
    /// Keys that are tuned for it alone, or in another grid than the others'.
    #[serde(default)]
    pub tune: Table,
}

/// Where the rounds are logged beside `rounds.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Event files in `tensorboard/`.
    Tensorboard,
    /// `rounds.csv`
    Csv,
    /// `rounds.parquet`
    Parquet,
}
