//! A model folder opened for loading. It is matched against the wanted layout before a value is
//! read, and the values then come one tensor at a time, so a folder that does not fit costs no
//! memory and one that fits is never held twice.
//!
//! ```text
//! Checkpoint::open(dir) -> find(layout, fresh) -> Found -> tensors(&found) -> (ParamId, values) ...
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::path::Path;

use fedra_plan::{Layout, ParamId, Part, Role, Shape, Site};

use super::companions::Companions;
use super::config::{Config, UNQUANTISED};
use super::dtype::Precision;
use super::names::{Architecture, Family, Meaning};
use super::weights::Weights;
use crate::error::ModelError;
use crate::gguf;

/// A model folder: checked configuration, checked headers, companion files; no values yet.
#[derive(Debug)]
pub struct Checkpoint {
    config: Config,
    weights: Weights,
    companions: Companions,
}

/// How a folder answers to a wanted layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The tensor that holds each parameter. Remove entries to load less.
    pub tensors: BTreeMap<ParamId, String>,
    /// Parameters the folder does not have, and which the caller allowed to begin anew.
    pub fresh: Vec<ParamId>,
    /// Tensors that stay in the folder, each with the reason.
    pub ignored: Vec<Ignored>,
}

/// A tensor that is not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its name.
    pub tensor: String,
    /// Why it is not needed.
    pub reason: Reason,
}

/// Why a tensor is not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A constant that is computed, not learnt.
    Buffer,
    /// Part of a head that this crate does not have.
    OtherHead,
    /// Part of a head that the wanted layout does not have.
    UnwantedHead(ParamId),
    /// A second copy of a shared parameter, equal to the bit.
    Copy(ParamId),
    /// A head of another shape, where a fresh one was allowed: another number of classes, say.
    OtherShape {
        /// The parameter in its place.
        id: ParamId,
        /// The folder's shape.
        stored: Vec<usize>,
    },
    /// A head whose outputs mean something else than the new head's.
    OtherMeaning(ParamId),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer => f.write_str("a computed constant"),
            Self::OtherHead => f.write_str("a head of another task"),
            Self::UnwantedHead(id) => write!(f, "{id}, which the model to be loaded does not have"),
            Self::Copy(id) => write!(f, "a second copy of {id}"),
            Self::OtherShape { id, .. } => write!(f, "{id} in another shape than the new head"),
            Self::OtherMeaning(id) => write!(f, "{id} of a head that answers with other classes"),
        }
    }
}

impl Checkpoint {
    /// Opens a folder, or one GGUF file: reads its configuration and companions, checks the headers
    /// of its weights.
    pub fn open(dir: &Path) -> Result<Self, ModelError> {
        if dir.is_file() {
            let (config, tensors, companions) = gguf::open(dir)?;
            return Ok(Self { config, weights: Weights::of_gguf(tensors), companions });
        }
        let (config, weights) = (Config::open(dir)?, Weights::open(dir)?);
        refuse_quantised(&weights)?;
        Ok(Self { config, weights, companions: Companions::open(dir)? })
    }

    /// What the folder says the model is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The weights by tensor name.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Tokenizer and other files to carry along.
    pub fn companions(&self) -> &Companions {
        &self.companions
    }

    /// Finds the tensor for every parameter of `wanted`. Those for which `may_be_fresh` holds may
    /// be absent or have another shape; any other difference is an error.
    pub fn find(
        &self,
        wanted: &Layout,
        may_be_fresh: impl Fn(ParamId) -> bool,
    ) -> Result<Found, ModelError> {
        let mut found = Found::default();
        let mut present = self.identify(&mut found.ignored)?;
        let mut missing = Vec::new();
        for (id, shape) in wanted.iter() {
            let fresh = may_be_fresh(id);
            match present.remove(&id) {
                Some(tensor) if self.fits(tensor, shape) => {
                    found.tensors.insert(id, tensor.to_owned());
                }
                Some(tensor) if fresh => {
                    let stored = self.weights.info(tensor).map(|info| info.shape.to_vec());
                    let stored = stored.unwrap_or_default();
                    found.fresh.push(id);
                    found.ignore(tensor, Reason::OtherShape { id, stored });
                }
                Some(tensor) => return Err(self.misfit(id, tensor, shape)),
                None if fresh => found.fresh.push(id),
                None => missing.push(id),
            }
        }
        for (id, tensor) in present {
            if id.site != Site::Head || matches!(id.part, Part::LoraA | Part::LoraB) {
                return Err(self.unplaced(id, tensor));
            }
            found.ignore(tensor, Reason::UnwantedHead(id));
        }
        match missing.first() {
            Some(&first) => Err(self.missing(wanted, first, missing.len() - 1)),
            None => Ok(found),
        }
    }

    /// Reads what was found, one tensor at a time, in the order of the forward pass.
    pub fn tensors(
        &self,
        found: &Found,
    ) -> impl Iterator<Item = Result<(ParamId, Vec<f32>), ModelError>> {
        found.tensors.iter().map(|(&id, tensor)| Ok((id, self.values(id, tensor)?)))
    }

    /// Reads one of the tensors that were found; every value is a number.
    pub(crate) fn values(&self, id: ParamId, tensor: &str) -> Result<Vec<f32>, ModelError> {
        let values = self.weights.read_f32(tensor)?;
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(at) => Err(ModelError::Parameter {
                path: self.weights.path_of(tensor).to_path_buf(),
                id,
                tensor: tensor.to_owned(),
                found: format!("{} at element {at}", values[at]),
                expected: "finite numbers".into(),
            }),
        }
    }

    /// Gives every tensor of the folder its meaning.
    fn identify(&self, ignored: &mut Vec<Ignored>) -> Result<BTreeMap<ParamId, &str>, ModelError> {
        let mut present = BTreeMap::new();
        let mut copies = Vec::new();
        for tensor in self.weights.names() {
            let mut ignore = |reason| ignored.push(Ignored { tensor: tensor.to_owned(), reason });
            match self.meaning(tensor) {
                Meaning::Parameter(id) => {
                    if let Some(other) = present.insert(id, tensor) {
                        let found = format!("{id}, which {other:?} is too");
                        return Err(self.tensor_error(tensor, found, "one tensor per parameter"));
                    }
                }
                Meaning::Copy(id) => copies.push((id, tensor)),
                Meaning::Buffer => ignore(Reason::Buffer),
                Meaning::OtherHead => ignore(Reason::OtherHead),
                Meaning::Unknown => {
                    let family = match self.config.family() {
                        Family::Bert => "a tensor of a BERT model",
                        Family::Llama => "a tensor of a LLaMA model without biases",
                    };
                    return Err(self.tensor_error(tensor, "an unknown name".into(), family));
                }
            }
        }
        for (id, tensor) in copies {
            match present.entry(id) {
                Entry::Vacant(place) => {
                    place.insert(tensor);
                }
                Entry::Occupied(place) => {
                    self.check_copy(place.get(), tensor)?;
                    ignored.push(Ignored { tensor: tensor.to_owned(), reason: Reason::Copy(id) });
                }
            }
        }
        Ok(present)
    }

    /// What a name means in this model, where an output vocabulary may be a copy of the embedding.
    fn meaning(&self, tensor: &str) -> Meaning {
        let vocabulary = ParamId::new(Site::Head, Role::Vocabulary, Part::Weight);
        let token = ParamId::new(Site::Embedding, Role::Token, Part::Weight);
        let meaning = self.config.family().meaning(tensor);
        if self.config.tied() && meaning == Meaning::Parameter(vocabulary) {
            return Meaning::Copy(token);
        }
        meaning
    }

    /// Two tensors for one parameter contradict each other unless they are equal.
    fn check_copy(&self, original: &str, copy: &str) -> Result<(), ModelError> {
        let info = |name| self.weights.info(name).map(|info| info.shape.to_vec());
        let expected = format!("an equal copy of {original:?}: config.json says that they are one");
        let (first, second) = (info(original).unwrap_or_default(), info(copy).unwrap_or_default());
        if first != second {
            let found = format!("shape {second:?}, not {first:?}");
            return Err(self.tensor_error(copy, found, &expected));
        }
        match self.weights.first_difference(original, copy)? {
            None => Ok(()),
            Some(at) => {
                let found = format!("other values, first at element {at}");
                Err(self.tensor_error(copy, found, &expected))
            }
        }
    }

    fn fits(&self, tensor: &str, shape: &Shape) -> bool {
        self.weights
            .info(tensor)
            .is_some_and(|info| info.shape == shape.dims() && Precision::of(info.dtype).is_some())
    }

    fn misfit(&self, id: ParamId, tensor: &str, shape: &Shape) -> ModelError {
        let found = self
            .weights
            .info(tensor)
            .map_or_else(String::new, |info| format!("{} of shape {:?}", info.dtype, info.shape));
        ModelError::Parameter {
            path: self.weights.path_of(tensor).to_path_buf(),
            id,
            tensor: tensor.to_owned(),
            found,
            expected: format!("F32, F16 or BF16 of shape {shape}"),
        }
    }

    fn missing(&self, wanted: &Layout, id: ParamId, others: usize) -> ModelError {
        let architecture = self.config.architecture().unwrap_or(match self.config.family() {
            Family::Bert => Architecture::BertModel,
            Family::Llama => Architecture::LlamaForCausalLM,
        });
        let also = if others == 0 { String::new() } else { format!(", nor {others} others") };
        let shape = wanted.get(id).map_or_else(String::new, ToString::to_string);
        ModelError::Parameter {
            path: self.weights.path().to_path_buf(),
            id,
            tensor: architecture.tensor_name(id).unwrap_or_default(),
            found: format!("no such tensor{also}"),
            expected: if id.role == Role::Vocabulary && id.part == Part::Weight {
                format!(
                    "one of shape {shape}, or \"tie_word_embeddings\": true in config.json where \
                     the token embedding is the output vocabulary too"
                )
            } else {
                format!("one of shape {shape}")
            },
        }
    }

    fn unplaced(&self, id: ParamId, tensor: &str) -> ModelError {
        ModelError::Parameter {
            path: self.weights.path_of(tensor).to_path_buf(),
            id,
            tensor: tensor.to_owned(),
            found: "a tensor for which the model has no place".into(),
            expected: format!(
                "{} blocks, as in config.json, and no other part",
                self.config.blocks()
            ),
        }
    }

    fn tensor_error(&self, tensor: &str, found: String, expected: &str) -> ModelError {
        ModelError::tensor(self.weights.path_of(tensor), tensor, found, expected)
    }
}

impl Found {
    fn ignore(&mut self, tensor: &str, reason: Reason) {
        self.ignored.push(Ignored { tensor: tensor.to_owned(), reason });
    }

    /// Leaves a parameter of the folder aside, to begin anew because it means something else.
    pub fn redraw(&mut self, id: ParamId) {
        if let Some(tensor) = self.tensors.remove(&id) {
            self.ignore(&tensor, Reason::OtherMeaning(id));
            self.fresh.push(id);
            self.fresh.sort_unstable();
        }
    }
}

/// Quantised weights beside a configuration that does not say so. Their tensors have names and
/// types of their own, of which the first would otherwise be called unknown.
fn refuse_quantised(weights: &Weights) -> Result<(), ModelError> {
    const SUFFIXES: [(&str, &str); 10] = [
        (".g_idx", "gptq"),
        (".qweight", "gptq or awq"),
        (".qzeros", "gptq or awq"),
        (".absmax", "bitsandbytes"),
        (".quant_map", "bitsandbytes"),
        (".SCB", "bitsandbytes"),
        (".weight_format", "bitsandbytes"),
        (".weight_packed", "compressed-tensors"),
        (".weight_scale", "scaled integers or 8-bit floats"),
        (".weight_scale_inv", "scaled 8-bit floats"),
    ];
    for (suffix, method) in SUFFIXES {
        if let Some(tensor) = weights.names().find(|name| name.ends_with(suffix)) {
            let found = format!("a part of a quantised checkpoint ({method})");
            return Err(ModelError::tensor(weights.path_of(tensor), tensor, found, UNQUANTISED));
        }
    }
    Ok(())
}
