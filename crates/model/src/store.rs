//! Models from folders and into folders.

use crate::error::ModelError;
use crate::head::Head;
use crate::hf::config::{Labels, Problem};
use crate::hf::{Architecture, Checkpoint, Companions, Config, Folder, Precision};
use crate::init::{fresh, matrix_shape};
use crate::layout;
use crate::lora::Adapters;
use crate::model::Model;
use fedra_compute::{Device, Params, Seed, Tensor};
use fedra_plan::{ParamId, Part, Site};
use std::borrow::Cow;
use std::path::Path;

/// A model read from a folder.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its structure.
    pub model: Model,
    /// Its numbers.
    pub params: Params,
    /// Tokenizer and other files that belong to it.
    pub companions: Companions,
    /// Parameters that the folder does not have and that were made anew (a new head, adapters).
    pub fresh: Vec<ParamId>,
    /// Tensors of the folder that the model has no use for, and why, for people to read.
    pub ignored: Vec<String>,
}

/// Reads a model folder, and puts the given head and adapters on it.
///
/// A head that the folder does not have, or has for other classes, is made fresh from `seed`; a
/// backbone tensor that is missing, superfluous or of another shape is an error.
pub fn load(
    dir: &Path,
    head: Head,
    adapters: Option<Adapters>,
    (device, seed): (&Device, Seed),
) -> Result<Loaded, ModelError> {
    let checkpoint = Checkpoint::open(dir)?;
    let model = Model::new(checkpoint.config().clone(), head, adapters)?;
    let may_be_fresh = |id: ParamId| {
        id.site == Site::Head && id.role != fedra_plan::Role::FinalNorm
            || matches!(id.part, Part::LoraA | Part::LoraB)
    };
    let found = checkpoint.find(model.layout(), may_be_fresh)?;
    let mut params = Params::default();
    for tensor in checkpoint.tensors(&found) {
        let (id, values) = tensor?;
        let shape = model.layout().get(id).expect("only wanted parameters are found");
        let (rows, cols) = matrix_shape(shape);
        params.insert(id, Tensor::from_slice(device, rows, cols, &values)?);
    }
    for &id in &found.fresh {
        let shape = model.layout().get(id).expect("only wanted parameters are made");
        params.insert(id, fresh(device, seed, id, shape)?);
    }
    let ignored = found.ignored.iter().map(|i| format!("{}: {}", i.tensor, i.reason)).collect();
    let companions = checkpoint.companions().clone();
    Ok(Loaded { model, params, companions, fresh: found.fresh, ignored })
}

/// How to save a model.
#[derive(Clone, Debug)]
pub struct Saving<'a> {
    /// How numbers are stored.
    pub precision: Precision,
    /// Names of the classes, for a head that has some; numbered when absent.
    pub labels: Option<Vec<String>>,
    /// Whether a sequence head answers with several labels at once.
    pub problem: Option<Problem>,
    /// Tokenizer and other files to put beside it.
    pub companions: &'a Companions,
}

/// Writes a folder that other libraries load unchanged; adapters are merged into their weights.
pub fn save(
    dir: &Path,
    model: &Model,
    params: &Params,
    saving: &Saving<'_>,
) -> Result<(), ModelError> {
    let mut config = model.config();
    if let Head::Sequence { classes, .. } | Head::Tokens { classes } = model.head() {
        let numbered = || (0..classes).map(|class| format!("LABEL_{class}")).collect();
        let names: Vec<String> = saving.labels.clone().unwrap_or_else(numbered);
        if names.len() != classes {
            let (found, expected) = (names.len().to_string(), classes.to_string());
            return Err(ModelError::Structure { what: "number of label names", found, expected });
        }
        config.set_labels(Labels { names, problem: saving.problem });
    }
    let folder = Folder {
        config: &config,
        architecture: architecture(&config, model.head())?,
        precision: saving.precision,
        companions: saving.companions,
    };
    let merged = layout::of(&config, model.head(), None)?;
    folder.save(dir, &merged, |id| merged_values(model, params, id))
}

/// The class that reads a backbone with this head.
fn architecture(config: &Config, head: Head) -> Result<Architecture, ModelError> {
    Ok(match (config, head) {
        (Config::Bert(_), Head::Bare) => Architecture::BertModel,
        (Config::Bert(_), Head::Sequence { pooler: true, .. }) => {
            Architecture::BertForSequenceClassification
        }
        (Config::Bert(_), Head::Sequence { pooler: false, .. }) => {
            return Err(ModelError::Structure {
                what: "head to save",
                found: "an encoder's sequence head without a pooler".into(),
                expected: "one with a pooler, which other libraries always have".into(),
            });
        }
        (Config::Bert(_), Head::Tokens { .. }) => Architecture::BertForTokenClassification,
        (Config::Bert(_), Head::Language) => Architecture::BertForMaskedLM,
        (Config::Llama(_), Head::Bare) => Architecture::LlamaModel,
        (Config::Llama(_), Head::Sequence { .. }) => Architecture::LlamaForSequenceClassification,
        (Config::Llama(_), Head::Tokens { .. }) => Architecture::LlamaForTokenClassification,
        (Config::Llama(_), Head::Language) => Architecture::LlamaForCausalLM,
    })
}

/// A parameter's values with its adapter, if it has one, added in.
fn merged_values<'v>(
    model: &Model,
    params: &'v Params,
    id: ParamId,
) -> Result<Cow<'v, [f32]>, ModelError> {
    let weight = params.get(id)?;
    let part = |part| ParamId::new(id.site, id.role, part);
    let adapters = model.adapters().filter(|_| id.part == Part::Weight);
    let (Some(adapters), Ok(a), Ok(b)) =
        (adapters, params.get(part(Part::LoraA)), params.get(part(Part::LoraB)))
    else {
        return Ok(weight.to_host());
    };
    let mut values = weight.to_host().into_owned();
    let (a, b) = (a.to_host(), b.to_host());
    let (inputs, rank) = (weight.cols(), adapters.rank());
    for (row, b) in values.chunks_exact_mut(inputs).zip(b.chunks_exact(rank)) {
        for (b, a) in b.iter().zip(a.chunks_exact(inputs)) {
            for (value, a) in row.iter_mut().zip(a) {
                *value += adapters.scale() * b * a;
            }
        }
    }
    Ok(values.into())
}
