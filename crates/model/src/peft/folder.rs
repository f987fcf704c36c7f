//! An adapter folder opened for loading. Its tensors are matched against the model before a value
//! is read, but for those that hold several adapters, whose values say which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fedra_compute::{Device, Params, Tensor};
use fedra_plan::{Layer, ParamId, Part, Role};
use serde_json::Value;

use super::config::AdapterConfig;
use super::files::{CONFIG, HEAD, LABELS, WEIGHTS};
use super::joined::{JoinedModules, Source};
use crate::classifier::Classifier;
use crate::error::{ModelError, shortened};
use crate::head::Head;
use crate::hf::config::Problem;
use crate::hf::names::Meaning;
use crate::hf::safetensors::Reader;
use crate::hf::{Config, Tensors as _, TrainedHead, file};
use crate::init::matrix_shape;
use crate::layout;
use crate::lora::Adapters;
use crate::model::Model;
use crate::store::in_order;

/// How far the norm of a row may be from the one that another library wrote, or found in another format of the weight.
const SAME_NORM: f32 = 0.05;

/// How far a value of the base may be from the one that another library wrote, or found in another format of the weight,
/// as a share of the weight's largest value.
const SAME_VALUE: f32 = 0.01;

/// The end of the name of a weight that has an adapter.
const BASE_WEIGHT: &str = ".base_layer.weight";

/// Largest list of labels, in bytes.
const MAX_LABELS: u64 = 16 << 20;

/// An adapter and the head that learnt with it; no values yet.
#[derive(Debug)]
pub struct AdapterFolder {
    path: PathBuf,
    adapters: Adapters,
    labels: Option<Vec<String>>,
    problem: Option<Problem>,
    weights: Reader,
    tensors: BTreeMap<ParamId, Source>,
    /// A copy of the output vocabulary that is adapted, which the library writes beside its adapter.
    vocabulary: Option<String>,
}

impl AdapterFolder {
    /// Opens a folder with an adapter of a model of this shape.
    pub fn open(dir: &Path, config: &Config) -> Result<Self, ModelError> {
        let settings = AdapterConfig::open(&dir.join(CONFIG))?;
        let path = dir.join(WEIGHTS);
        if !path.exists() && dir.join("adapter_model.bin").exists() {
            return Err(ModelError::file(dir, "only pickled PyTorch weights", WEIGHTS));
        }
        let weights = Reader::open(&path)?;
        let refuse = |tensor: &str, found: &str, expected: &str| {
            Err(ModelError::tensor(&path, tensor, found, expected))
        };
        let mut tensors = BTreeMap::new();
        let mut joined = JoinedModules::default();
        let mut joined_names = Vec::new();
        let mut vocabulary = None;
        for name in weights.names() {
            if let Some(module) = name.strip_suffix(BASE_WEIGHT)
                && is_vocabulary(&config.family.meaning(&format!("{module}.weight")))
            {
                vocabulary = Some(name.to_owned());
                continue;
            }
            // Files of before version 5 of the library have the names of folders.
            let newer = config.family.as_modules.map(|family| family.meaning(name));
            let known = newer.filter(|meaning| matches!(meaning, Meaning::Parameters(_)));
            let ids = match known.unwrap_or_else(|| config.family.meaning(name)) {
                Meaning::Parameters(ids) => ids,
                Meaning::Copy(_)
                | Meaning::Buffer
                | Meaning::OtherHead
                | Meaning::Unread
                | Meaning::Unknown => {
                    let expected = "an adapter inside a block or of lm_head, or a whole head";
                    return refuse(name, "an unknown name", expected);
                }
            };
            let id = ids[0];
            // An adapter of anything else has an unknown name.
            if !id.part.is_adapter() && id.layer != Layer::Head {
                let expected = "an adapter inside a block or of lm_head, or a whole head";
                return refuse(name, &format!("{id}"), expected);
            }
            let other = if ids.len() > 1 {
                joined_names.push(name);
                joined.insert(&ids, name)
            } else {
                tensors.insert(id, Source::whole(name)).map(|other: Source| other.tensor)
            };
            if let Some(other) = other {
                return refuse(name, &format!("{id}, which {other:?} is too"), "one tensor each");
            }
        }
        if let Some(module) = settings.unmatched(&joined_names) {
            let found = format!("a rank of its own for {module:?}");
            let expected = "ranks for modules that hold several projections, and for no others";
            return Err(ModelError::config(&dir.join(CONFIG), "rank_pattern", found, expected));
        }
        let layout = layout::of(config, Head::Bare, None)?;
        tensors.extend(joined.split(&weights, &settings, &layout)?);
        let factors = tensors.keys().filter(|id| id.part == Part::LoraA);
        let roles: BTreeSet<Role> = factors.map(|id| id.role).collect();
        let adapters = Adapters::new(settings.rank, settings.alpha, roles)?;
        let adapters = if settings.magnitudes { adapters.with_magnitudes() } else { adapters };
        if settings.tied && adapters.adapts_head() && config.tie_word_embeddings {
            let expected = "false: the adapter of lm_head is that of the token embedding too";
            let (file, key) = (dir.join(CONFIG), "ensure_weight_tying");
            return Err(ModelError::config(&file, key, "true", expected));
        }
        let magnitude = tensors.iter().find(|(id, _)| id.part == Part::Magnitude);
        if let Some((_, Source { tensor, .. })) = magnitude.filter(|_| !settings.magnitudes) {
            return refuse(
                tensor,
                "magnitudes",
                "none: use_dora is not true in adapter_config.json",
            );
        }
        let labels = match dir.join(LABELS) {
            listed if listed.exists() => Some(names(&listed)?),
            _ => None,
        };
        let problem = match dir.join(HEAD) {
            said if said.exists() => Some(problem(&said)?),
            _ => None,
        };
        Ok(Self { path, adapters, labels, problem, weights, tensors, vocabulary })
    }

    /// Rank, scale and roles.
    pub fn adapters(&self) -> &Adapters {
        &self.adapters
    }

    /// How its head's outputs are read, where the folder says so.
    pub fn problem(&self) -> Option<Problem> {
        self.problem
    }

    /// The classification head that learnt with it.
    pub fn trained_head(&self) -> TrainedHead {
        let id = ParamId::new(Layer::Head, Role::Classifier, Part::Weight);
        let rows = self.tensors.get(&id).and_then(|source| self.weights.info(&source.tensor));
        match (rows.and_then(|info| info.shape.first().copied()), &self.labels) {
            (None, _) => TrainedHead::Absent,
            (Some(rows), Some(labels)) if labels.len() == rows => {
                TrainedHead::Named(labels.clone())
            }
            (Some(rows), _) => TrainedHead::Numbered(rows),
        }
    }

    /// Puts the adapter's numbers into a model with its adapters, and its head's with the rows of a
    /// classifier in the given order. Says which parameters were loaded; a head that the model does
    /// not have, or that is to begin anew, stays in the folder.
    pub fn load(
        &self,
        (model, params): (&Model, &mut Params),
        classifier: &Classifier,
        device: &Device,
    ) -> Result<BTreeSet<ParamId>, ModelError> {
        let wanted = model.layout();
        for id in wanted.ids().filter(|id| id.part.is_adapter()) {
            if !self.tensors.contains_key(&id) {
                let expected = "every adapted projection in every block";
                return Err(self.misfit(id, "", "no such tensor".into(), expected.into()));
            }
        }
        self.check_vocabulary(params)?;
        let mut loaded = BTreeSet::new();
        for (&id, source) in &self.tensors {
            let name = &source.tensor;
            let is_classifier = id.role == Role::Classifier;
            let begins_anew = matches!(classifier, Classifier::Fresh(_)) && is_classifier;
            let Some(shape) = wanted.get(id) else {
                if id.layer == Layer::Head || self.is_idle((id, source), params)? {
                    continue;
                }
                let expected = format!("a part of one of the {} blocks", model.blocks());
                return Err(self.misfit(id, name, "a tensor without a place".into(), expected));
            };
            if begins_anew {
                continue;
            }
            let info = self.weights.info(name);
            if source.cut.is_none() && !info.is_some_and(|info| info.fits(shape)) {
                let found = info.map(|info| format!("{} of shape {:?}", info.dtype, info.shape));
                let expected = format!("F32, F16 or BF16 of {shape}");
                return Err(self.misfit(id, name, found.unwrap_or_default(), expected));
            }
            let mut values = source.read(&self.weights)?;
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let found = format!("{} at element {at}", values[at]);
                return Err(self.misfit(id, name, found, "finite numbers".into()));
            }
            if let Classifier::Rows(order) = classifier
                && is_classifier
            {
                values = in_order(&values, order, model.head().classes().unwrap_or(0))?;
            }
            let (rows, cols) = matrix_shape(shape);
            params.insert(id, Tensor::from_slice(device, rows, cols, &values)?);
            loaded.insert(id);
        }
        Ok(loaded)
    }

    /// Refuses an adapter of another output vocabulary than the model's, where the folder has a copy of it.
    fn check_vocabulary(&self, params: &Params) -> Result<(), ModelError> {
        let own = ParamId::new(Layer::Head, Adapters::HEAD, Part::Weight);
        let tied = ParamId::new(Layer::Embedding, Role::Token, Part::Weight);
        let weight = params.find(own).or_else(|| params.find(tied));
        let (Some(tensor), Some(weight)) = (&self.vocabulary, weight) else { return Ok(()) };
        let (found, ours) = (self.weights.read_f32(tensor)?, weight.to_host());
        let largest = ours.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
        let is_near = |(one, other): (&f32, &f32)| (one - other).abs() <= SAME_VALUE * largest;
        if found.len() == ours.len() && found.iter().zip(&ours[..]).all(is_near) {
            return Ok(());
        }
        let expected = "the values of the base's, which the adapter is for".to_owned();
        Err(self.misfit(own, tensor, "another output vocabulary".into(), expected))
    }

    /// Whether these are the norms that the rows of a projection without an adapter have anyway.
    fn is_idle(
        &self,
        (id, source): (ParamId, &Source),
        params: &Params,
    ) -> Result<bool, ModelError> {
        let adapted = self.tensors.contains_key(&ParamId { part: Part::LoraA, ..id });
        let weight = params.find(ParamId { part: Part::Weight, ..id });
        let Some(weight) = weight.filter(|_| id.part == Part::Magnitude && !adapted) else {
            return Ok(false);
        };
        let (found, norms) = (source.read(&self.weights)?, weight.row_norms());
        let is_near = |(found, norm): (&f32, &f32)| (found - norm).abs() <= SAME_NORM * norm.abs();
        if found.len() == norms.len() && found.iter().zip(&norms).all(is_near) {
            return Ok(true);
        }
        let expected = "the norms of the weight's rows, because B has zeros for them".to_owned();
        Err(self.misfit(id, &source.tensor, "magnitudes without an adapter".into(), expected))
    }

    fn misfit(&self, id: ParamId, tensor: &str, found: String, expected: String) -> ModelError {
        ModelError::parameter(&self.path, (id, tensor), found, expected)
    }
}

/// Whether a name means the weight of the output vocabulary.
fn is_vocabulary(meaning: &Meaning) -> bool {
    let id = ParamId::new(Layer::Head, Adapters::HEAD, Part::Weight);
    matches!(meaning, Meaning::Parameters(ids) if ids[..] == [id])
}

fn problem(path: &Path) -> Result<Problem, ModelError> {
    let said: Value = serde_json::from_slice(&file::read(path, MAX_LABELS)?)
        .map_err(|e| ModelError::file(path, e.to_string(), "a JSON object"))?;
    let known = Problem::ALL.into_iter().find(|known| said["problem_type"] == known.name());
    known.ok_or_else(|| {
        let found = format!("the problem_type {}", shortened(said["problem_type"].to_string()));
        let names = Problem::ALL.map(Problem::name).join(", ");
        ModelError::file(path, found, format!("one of {names}"))
    })
}

fn names(path: &Path) -> Result<Vec<String>, ModelError> {
    let names: Vec<String> = serde_json::from_slice(&file::read(path, MAX_LABELS)?)
        .map_err(|e| ModelError::file(path, e.to_string(), "a list of label names"))?;
    let distinct: BTreeSet<&String> = names.iter().collect();
    if distinct.len() != names.len() {
        return Err(ModelError::file(path, "a name twice", "the name of each class"));
    }
    Ok(names)
}
