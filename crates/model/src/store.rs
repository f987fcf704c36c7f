//! Models from folders and into folders. A [`LoadReport`] says what was not loaded as it is stored:
//! the caller decides whom to tell, and nothing happens silently.

use crate::classifier::Classifier;
use crate::error::ModelError;
use crate::gguf;
use crate::head::Head;
use crate::hf::config::{Labels, Problem};
use crate::hf::{Checkpoint, Companions, Config, Folder, Precision};
use crate::init::{drawn, matrix_shape, start_magnitudes};
use crate::layout;
use crate::load_report::LoadReport;
use crate::lora::Adapters;
use crate::model::Model;
use crate::weight_storage::WeightStorage;
use fedra_compute::{Device, Params, Seed, Tensor, WeightFormat};
use fedra_plan::{Layer, Layout, ParamId, Part, Role};
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
    /// What was reinitialised and what was ignored.
    pub report: LoadReport,
}

/// What to put on a folder's backbone.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The head.
    pub head: Head,
    /// Where the rows of a classification head come from.
    pub classifier: Classifier,
    /// Adapters, which are always fresh.
    pub adapters: Option<Adapters>,
}

/// Reads a model folder and puts the given head and adapters on it, with the rows of a
/// classification head as they are stored.
///
/// A head that the folder does not have, or has for another number of classes, is made fresh from
/// `seed`; a backbone tensor that is missing, superfluous or of another shape is an error, and so
/// is a decoder's output vocabulary that is neither stored nor tied.
pub fn load(
    dir: &Path,
    head: Head,
    adapters: Option<Adapters>,
    how: (&Device, Seed),
) -> Result<Loaded, ModelError> {
    let wanted = Wanted { head, classifier: Classifier::Stored, adapters };
    load_checkpoint(&open_checkpoint(dir)?, wanted, how)
}

/// Opens the checkpoint of a model folder, or of one GGUF file.
pub fn open_checkpoint(path: &Path) -> Result<Checkpoint, ModelError> {
    if path.is_file() { gguf::open(path) } else { Checkpoint::open(path) }
}

/// What a model folder, or one GGUF file, says the model is.
pub fn open_config(path: &Path) -> Result<Config, ModelError> {
    if path.is_file() { gguf::config(path) } else { Config::open(path) }
}

/// Loads an open folder; no memory is taken for values before all shapes were compared.
pub fn load_checkpoint(
    checkpoint: &Checkpoint,
    wanted: Wanted,
    how: (&Device, Seed),
) -> Result<Loaded, ModelError> {
    load_part(checkpoint, wanted, how, |_| true)
}

/// Loads only the parameters that `keep` accepts: one side of a cut model. The folder is compared
/// with the whole structure all the same, and values of the rest are never read.
pub fn load_part(
    checkpoint: &Checkpoint,
    wanted: Wanted,
    how: (&Device, Seed),
    keep: impl Fn(ParamId) -> bool,
) -> Result<Loaded, ModelError> {
    load_part_as(checkpoint, wanted, how, keep, |_| WeightStorage::default())
}

/// The same, each parameter in a format that follows from the layout. What a file has quantised already, in as many
/// bits as are asked for or in fewer, stays as it is; one tensor is in memory as f32 at a time.
pub fn load_part_as(
    checkpoint: &Checkpoint,
    wanted: Wanted,
    (device, seed): (&Device, Seed),
    keep: impl Fn(ParamId) -> bool,
    storage: impl FnOnce(&Layout) -> WeightStorage,
) -> Result<Loaded, ModelError> {
    let Wanted { head, classifier, adapters } = wanted;
    match (&classifier, head.answers()) {
        // A head that is not used need not be readable.
        (Classifier::Fresh(_), _) | (_, None) => {}
        (Classifier::Stored | Classifier::Rows(_), Some(answers)) => {
            checkpoint.trained_head(answers)?;
        }
    }
    let model = Model::new(checkpoint.config().clone(), head, adapters)?;
    let storage = storage(model.layout());
    let model = model.stored_as(storage);
    let format = |id| model.storage().of(id);
    let is_classifier = |id: ParamId| id.layer == Layer::Head && id.role == Role::Classifier;
    // Rows that are wanted from the folder have to be there, and readable.
    let kept = matches!(classifier, Classifier::Rows(_));
    let may_be_fresh = |id| may_be_fresh(id) && !(kept && is_classifier(id));
    let mut found = checkpoint.find(model.layout(), may_be_fresh)?;
    if let Classifier::Fresh(_) = classifier {
        for id in model.layout().ids().filter(|id| is_classifier(*id)) {
            found.redraw(id);
        }
    }
    found.tensors.retain(|id, _| keep(*id));
    found.fresh.retain(|id| keep(*id));
    let mut params = Params::default();
    for (&id, stored) in &found.tensors {
        let shape = model.layout().get(id).expect("only wanted parameters are found");
        let (rows, cols) = matrix_shape(shape);
        if let Some(matrix) = checkpoint.quantised(stored, (rows, cols), format(id))? {
            params.insert(id, Tensor::quantised(device, &matrix));
            continue;
        }
        if format(id) == WeightFormat::Bf16
            && let Some(halves) = checkpoint.halves(id, stored)?
        {
            params.insert(id, Tensor::from_bf16(device, rows, cols, &halves)?);
            continue;
        }
        let mut values = checkpoint.values(id, stored)?;
        if let Classifier::Rows(order) = &classifier
            && is_classifier(id)
        {
            values = in_order(&values, order, head.classes().unwrap_or(0))?;
        }
        params.insert(id, Tensor::stored_as(device, format(id), (rows, cols), &values)?);
    }
    let deviation = checkpoint.config().initializer_range;
    for &id in &found.fresh {
        let shape = model.layout().get(id).expect("only wanted parameters are made");
        params.insert(id, drawn((id, shape), (deviation, format(id)), device, seed)?);
    }
    start_magnitudes(&mut params, &found.fresh, device)?;
    let report = LoadReport::new(&model, found, classifier);
    let companions = checkpoint.companions().clone();
    Ok(Loaded { model, params, companions, report })
}

/// Heads and adapters may begin anew. A final norm and a decoder's output vocabulary were trained
/// with the backbone, and a random one would ruin it silently.
fn may_be_fresh(id: ParamId) -> bool {
    let trained =
        id.role == Role::FinalNorm || id.role == Role::Vocabulary && id.part == Part::Weight;
    id.layer == Layer::Head && !trained || id.part.is_adapter()
}

/// The rows of a classifier's weight or bias in another order.
pub(crate) fn in_order(
    values: &[f32],
    order: &[usize],
    classes: usize,
) -> Result<Vec<f32>, ModelError> {
    let mut seen = vec![false; classes];
    for &row in order {
        if let Some(seen) = seen.get_mut(row) {
            *seen = true;
        }
    }
    if order.len() != classes || seen.contains(&false) {
        let (found, expected) = (format!("{order:?}"), format!("each of 0..{classes} once"));
        return Err(ModelError::structure("rows of the head", &found, &expected));
    }
    let width = values.len() / classes;
    Ok(order.iter().flat_map(|row| &values[row * width..(row + 1) * width]).copied().collect())
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
    let mut config = model.config().clone();
    if model.adapters().is_some_and(Adapters::adapts_head) {
        // With its adapter merged in, the output vocabulary is the token embedding no longer.
        config.tie_word_embeddings = false;
    }
    if let Head::Sequence { classes, .. } | Head::Tokens { classes } = model.head() {
        let numbered = || (0..classes).map(Labels::numbered).collect();
        let names: Vec<String> = saving.labels.clone().unwrap_or_else(numbered);
        if names.len() != classes {
            return Err(ModelError::structure("number of label names", &names.len(), &classes));
        }
        config.labels = Some(Labels { names, problem: saving.problem });
    }
    let folder = Folder {
        config: &config,
        architecture: model.head().architecture(&config)?,
        precision: saving.precision,
        companions: saving.companions,
    };
    let merged = layout::of(&config, model.head(), None)?;
    folder.save(dir, &merged, |id| merged_values(model, params, id))
}

/// A parameter's values with its adapter, if it has one, added in.
fn merged_values<'v>(
    model: &Model,
    params: &'v Params,
    id: ParamId,
) -> Result<Cow<'v, [f32]>, ModelError> {
    let vocabulary = ParamId::new(Layer::Head, Role::Vocabulary, Part::Weight);
    let weight = if id == vocabulary && !model.layout().contains(id) {
        params.get(ParamId::new(Layer::Embedding, Role::Token, Part::Weight))?
    } else {
        params.get(id)?
    };
    let part = |part| ParamId::new(id.layer, id.role, part);
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
    let Some(magnitude) = params.find(part(Part::Magnitude)) else { return Ok(values.into()) };
    let magnitude = magnitude.to_host();
    let norms = Tensor::from_slice(&Device::cpu(), weight.rows(), inputs, &values)?.row_norms();
    for ((row, magnitude), norm) in values.chunks_exact_mut(inputs).zip(&magnitude[..]).zip(norms) {
        let factor = if norm > 0.0 { magnitude / norm } else { 0.0 };
        for value in row {
            *value *= factor;
        }
    }
    Ok(values.into())
}
