//! An experiment as checked: what a run takes, and what a file that repeats it says.

use std::path::PathBuf;
use std::sync::Arc;

use fedra_compute::Seed;
use fedra_data::{Clinic, Format, Mimic, Partition, Split, Table, Task};
use fedra_engine::{OwnParts, Recipe};
use fedra_model::ImageInput;
use fedra_model::hf::Config;

use super::compute_device::ComputeDevice;
use super::origin::Origin;
use super::raw_config::{CompareTable, RawConfig};
use super::split_table::CutChoice;
use crate::error::Result;

/// An experiment whose values make sense together.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What it is called.
    pub name: String,
    /// Where every draw starts.
    pub seed: Seed,
    /// Who computes.
    pub device: ComputeDevice,
    /// Where rows come from.
    pub source: Source,
    /// The task to learn.
    pub task: Task,
    /// Most tokens of an example; the model has as many positions.
    pub max_tokens: usize,
    /// The images that the model reads, where rows are images.
    pub image: Option<ImageInput>,
    /// How rows find their client.
    pub partition: Partition,
    /// What learns.
    pub model: ModelSource,
    /// Whether anything of it learns: a model that is only scored may be stored in another format altogether.
    pub learns: bool,
    /// How many rounds.
    pub rounds: u32,
    /// The method as the engine takes it.
    pub recipe: Recipe,

    /// What code of a program decides.
    pub parts: Option<Arc<dyn OwnParts>>,
    /// How the model is cut, where that waits for the model; the recipe has the rest.
    pub cut: Option<CutChoice>,
    /// The rest, as written and now known to be legal; also what `experiment.toml` says.
    pub raw: RawConfig,
    /// What `fedra compare` does with the file; no part of a run.
    pub compare: Option<CompareTable>,
    /// Where its keys were written, for errors.
    pub origin: Origin,
}

/// Where rows come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Notes that no patient wrote.
    Clinic(Clinic),
    /// Files of one format.
    Files(Format, Vec<DataFile>),
    /// The folder of MIMIC-III.
    Mimic(Mimic, PathBuf),
    /// Rows that a program made, which no file can name.
    Rows(Arc<Table>),
}

/// A file with rows.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Where it is.
    pub path: PathBuf,
    /// The split of its rows, where the key says it.
    pub split: Option<Split>,
    /// Whose rows they are, where each client has a file.
    pub client: Option<String>,
}

/// What learns.
#[derive(Clone, Debug)]
pub enum ModelSource {
    /// A shape with fresh weights.
    Fresh(Box<Config>, Vocabulary),
    /// A folder in Hugging Face layout, or a GGUF file.
    Folder(PathBuf),
}

/// Where the pieces come from into which a preset's text is cut.
#[derive(Clone, Debug)]
pub enum Vocabulary {
    /// Grown from the training text, at most this many.
    Grown(usize),
    /// Those of a tokenizer that somebody declared, by its folder.
    Declared(PathBuf),
    /// None: rows are images.
    Absent,
}

impl Experiment {
    /// The file that would repeat this experiment.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(&self.raw)?)
    }

    /// The rows of the program's own, if it learns from such.
    pub(super) fn own_rows(&self) -> Option<Arc<Table>> {
        if let Source::Rows(rows) = &self.source { Some(Arc::clone(rows)) } else { None }
    }
}
