//! A model folder opened for loading. It is matched against the wanted layout before a value is
//! read, and the values then come one tensor at a time, so a folder that does not fit costs no
//! memory and one that fits is never held twice.
//!
//! ```text
//! Checkpoint::open(dir) -> find(layout, fresh) -> Found -> tensors(&found) -> (ParamId, values) ...
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::path::Path;

use fedra_compute::{QuantisedMatrix, WeightFormat};
use fedra_plan::{Layer, Layout, ParamId, Part, Role, Shape};

use super::companions::Companions;
use super::names::{Architecture, Meaning};
use super::weights::Weights;
use crate::config::Config;
use crate::config_json::fields::UNQUANTISED;
use crate::error::ModelError;
use crate::family::ClassKind;
use crate::image_input::ImageInput;
use crate::interpolation::interpolate;

/// A model folder: checked configuration, checked headers, companion files; no values yet.
#[derive(Debug)]
pub struct Checkpoint {
    config: Config,
    weights: Weights,
    companions: Companions,
    /// The images that the stored positions are of, where the configuration is for others.
    stored_image: Option<ImageInput>,
}

/// How a folder answers to a wanted layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Where each parameter is stored. Remove entries to load less.
    pub tensors: BTreeMap<ParamId, Stored>,
    /// Parameters the folder does not have, and which the caller allowed to begin anew.
    pub fresh: Vec<ParamId>,
    /// Tensors that stay in the folder, each with the reason.
    pub ignored: Vec<Ignored>,
}

/// Where a parameter is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The tensor.
    pub tensor: String,
    /// Its elements in a tensor that holds others too.
    pub elements: Option<Range<usize>>,
    /// The columns of a tensor that is stored with inputs as rows.
    pub transposed: Option<usize>,
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
    /// What no head here reads, as the mask token of an image model's pre-training.
    Unread,
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

impl Checkpoint {
    /// Opens a folder: reads its configuration and companions, checks the headers of its weights.
    pub fn open(dir: &Path) -> Result<Self, ModelError> {
        let (config, weights) = (Config::open(dir)?, Weights::open(dir)?);
        refuse_quantised(&weights)?;
        Ok(Self::new(config, weights, Companions::open(dir)?))
    }

    /// The parts of a checkpoint of another format.
    pub(crate) fn new(config: Config, weights: Weights, companions: Companions) -> Self {
        Self { config, weights, companions, stored_image: None }
    }

    /// The same model for images of another height and width: positions are interpolated when they are
    /// read.
    pub fn resized(mut self, height: usize, width: usize) -> Result<Self, ModelError> {
        let stored = self.stored_image.or(self.config.image);
        self.config = self.config.resized(height, width)?;
        self.stored_image = stored.filter(|stored| Some(*stored) != self.config.image);
        Ok(self)
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
                Some((tensor, place)) if place.fits(self, tensor, (id, shape), wanted) => {
                    let elements = place.elements(id, wanted);
                    let whole = place.whole((id, shape), wanted);
                    let transposed = self.is_transposed(id).then(|| whole.dims()[0]);
                    let tensor = tensor.to_owned();
                    found.tensors.insert(id, Stored { tensor, elements, transposed });
                }
                Some((tensor, _)) if fresh => {
                    let stored = self.weights.info(tensor).map(|info| info.shape.to_vec());
                    let stored = stored.unwrap_or_default();
                    found.fresh.push(id);
                    found.ignore(tensor, Reason::OtherShape { id, stored });
                }
                Some((tensor, place)) => {
                    let whole = place.whole((id, shape), wanted);
                    return Err(self.other_shape((id, tensor), &self.stored_dims(id, &whole)));
                }
                None if fresh => found.fresh.push(id),
                None => missing.push(id),
            }
        }
        for (id, (tensor, _)) in present {
            if id.layer != Layer::Head || id.part.is_adapter() {
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
        found.tensors.iter().map(|(&id, stored)| Ok((id, self.values(id, stored)?)))
    }

    /// Reads one of the tensors that were found; every value is a number.
    pub(crate) fn values(&self, id: ParamId, stored: &Stored) -> Result<Vec<f32>, ModelError> {
        let Stored { tensor, elements, transposed } = stored;
        let mut values = self.weights.read_f32(tensor)?;
        if let (Role::Position, Some(from), Some(to)) =
            (id.role, self.stored_image, self.config.image)
        {
            values = interpolate(&values, (from, to));
        }
        if let Some(columns) = *transposed {
            values = transpose(&values, columns);
        }
        if let Some(elements) = elements {
            values = values[elements.clone()].to_vec();
        }
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(at) => {
                let found = format!("{} at element {at}", values[at]);
                Err(self.misfit((id, tensor), found, "finite numbers"))
            }
        }
    }

    /// One of the tensors that were found, in bf16 where the file has it so and as it is needed; every value is a
    /// number.
    pub(crate) fn halves(
        &self,
        id: ParamId,
        stored: &Stored,
    ) -> Result<Option<Vec<u16>>, ModelError> {
        const INFINITE: u16 = 0x7f80;
        let is_interpolated = id.role == Role::Position && self.stored_image.is_some();
        if stored.transposed.is_some() || is_interpolated {
            return Ok(None);
        }
        let Some(mut halves) = self.weights.read_bf16(&stored.tensor)? else { return Ok(None) };
        if let Some(elements) = &stored.elements {
            halves = halves[elements.clone()].to_vec();
        }
        // Whoever reads them as f32 says which one is none.
        let is_finite = |half: &u16| half & INFINITE != INFINITE;
        Ok(Some(halves).filter(|halves| halves.iter().all(is_finite)))
    }

    /// One of the matrices that were found as the file has it, where that is quantised in as many bits as the
    /// format has or in fewer, and by the rows of the parameter.
    pub(crate) fn quantised(
        &self,
        stored: &Stored,
        (rows, cols): (usize, usize),
        format: WeightFormat,
    ) -> Result<Option<QuantisedMatrix>, ModelError> {
        let Some(most) = format.quantisation().filter(|_| stored.transposed.is_none()) else {
            return Ok(None);
        };
        let Some(matrix) = self.weights.read_quantised(&stored.tensor, most)? else {
            return Ok(None);
        };
        let part = stored.elements.clone().unwrap_or(0..rows * cols);
        let is_rows = matrix.shape().1 == cols && part.start.is_multiple_of(cols.max(1));
        let first = part.start / cols.max(1);
        let is_there = part.len() == rows * cols && first + rows <= matrix.shape().0;
        Ok((is_rows && is_there).then(|| {
            if matrix.shape().0 == rows { matrix } else { matrix.rows(first..first + rows) }
        }))
    }

    /// Gives every tensor of the folder its meaning.
    fn identify(&self, ignored: &mut Vec<Ignored>) -> Result<Present<'_>, ModelError> {
        let mut present = BTreeMap::new();
        let mut copies = Vec::new();
        for tensor in self.weights.names() {
            let mut ignore = |reason| ignored.push(Ignored { tensor: tensor.to_owned(), reason });
            match self.meaning(tensor) {
                Meaning::Parameters(ids) => {
                    for &id in &ids {
                        let place = Together(if ids.len() > 1 { ids.clone() } else { Vec::new() });
                        if let Some((other, _)) = present.insert(id, (tensor, place)) {
                            let found = format!("{id}, which {other:?} is too");
                            let expected = "one tensor per parameter";
                            return Err(self.tensor_error(tensor, found, expected));
                        }
                    }
                }
                Meaning::Copy(id) => copies.push((id, tensor)),
                Meaning::Buffer => ignore(Reason::Buffer),
                Meaning::OtherHead => ignore(Reason::OtherHead),
                Meaning::Unread => ignore(Reason::Unread),
                Meaning::Unknown => {
                    let expected = format!("a tensor of a {} model", self.config.family.name);
                    return Err(self.tensor_error(tensor, "an unknown name".into(), &expected));
                }
            }
        }
        for (id, tensor) in copies {
            match present.entry(id) {
                Entry::Vacant(place) => {
                    place.insert((tensor, Together::default()));
                }
                Entry::Occupied(place) => {
                    self.check_copy(place.get().0, tensor)?;
                    ignored.push(Ignored { tensor: tensor.to_owned(), reason: Reason::Copy(id) });
                }
            }
        }
        Ok(present)
    }

    /// What a name means in this model, where an output vocabulary may be a copy of the embedding.
    fn meaning(&self, tensor: &str) -> Meaning {
        let vocabulary = ParamId::new(Layer::Head, Role::Vocabulary, Part::Weight);
        let token = ParamId::new(Layer::Embedding, Role::Token, Part::Weight);
        let meaning = self.config.family.meaning(tensor);
        let is_vocabulary = meaning == Meaning::Parameters(vec![vocabulary]);
        if self.config.tie_word_embeddings && is_vocabulary {
            return Meaning::Copy(token);
        }
        meaning
    }

    fn is_transposed(&self, id: ParamId) -> bool {
        let (family, kind) = (self.config.family, ClassKind::Language);
        Architecture { family, kind }.is_transposed(id)
    }

    /// The dimensions of a tensor that holds numbers of this shape.
    fn stored_dims(&self, id: ParamId, shape: &Shape) -> Vec<usize> {
        let mut shape = *shape;
        if let (Role::Position, Some(stored), &[_, width]) =
            (id.role, self.stored_image, shape.dims())
        {
            shape = Shape::matrix(stored.positions(), width);
        }
        let (family, kind) = (self.config.family, ClassKind::Base);
        Architecture { family, kind }.stored_dims(id, &shape, &self.config)
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

    fn misfit(
        &self,
        (id, tensor): (ParamId, &str),
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> ModelError {
        ModelError::parameter(self.weights.path_of(tensor), (id, tensor), found, expected)
    }

    fn other_shape(&self, (id, tensor): (ParamId, &str), dims: &[usize]) -> ModelError {
        let stored = self.weights.info(tensor);
        let found = stored.map(|info| format!("{} of shape {:?}", info.dtype, info.shape));
        let expected = format!("F32, F16 or BF16 of shape {dims:?}");
        self.misfit((id, tensor), found.unwrap_or_default(), expected)
    }

    fn missing(&self, wanted: &Layout, id: ParamId, others: usize) -> ModelError {
        let kind = if self.config.causal { ClassKind::Language } else { ClassKind::Base };
        let usual = Architecture { family: self.config.family, kind };
        let architecture = self.config.architecture().unwrap_or(usual);
        let also = if others == 0 { String::new() } else { format!(", nor {others} others") };
        let shape = wanted.get(id).map_or_else(String::new, ToString::to_string);
        let mut expected = format!("one of shape {shape}");
        if id.role == Role::Vocabulary && id.part == Part::Weight {
            expected += ", or \"tie_word_embeddings\": true in config.json where the token embedding \
                         is the output vocabulary too";
        }
        let tensor = architecture.tensor_name(id).unwrap_or_default();
        let found = format!("no such tensor{also}");
        ModelError::parameter(self.weights.path(), (id, &tensor), found, expected)
    }

    fn unplaced(&self, id: ParamId, tensor: &str) -> ModelError {
        let blocks = self.config.num_hidden_layers;
        let expected = format!("{blocks} blocks, as in config.json, and no other part");
        self.misfit((id, tensor), "a tensor for which the model has no place", expected)
    }

    fn tensor_error(&self, tensor: &str, found: String, expected: &str) -> ModelError {
        ModelError::tensor(self.weights.path_of(tensor), tensor, found, expected)
    }
}

/// A matrix with this many columns, the other way round.
pub(crate) fn transpose(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns.max(1);
    let column = |column: usize| (0..rows).map(move |row| values[row * columns + column]);
    (0..columns).flat_map(column).collect()
}

/// The tensor of each parameter that a folder has, and the parameters that lie in it together.
type Present<'a> = BTreeMap<ParamId, (&'a str, Together)>;

/// Parameters that lie in one tensor, in the order of their rows; none for a tensor of one parameter.
#[derive(Clone, Debug, Default)]
struct Together(Vec<ParamId>);

impl Together {
    /// The shape of the tensor, where this parameter has the given shape in the wanted layout.
    fn whole(&self, (id, shape): (ParamId, &Shape), wanted: &Layout) -> Shape {
        let rows = |other: &ParamId| wanted.get(*other).map_or(0, |shape| shape.dims()[0]);
        match (self.0.contains(&id), shape.dims()) {
            (true, [_, columns]) => Shape::matrix(self.0.iter().map(rows).sum(), *columns),
            (true, [_]) => Shape::vector(self.0.iter().map(rows).sum()),
            (_, _) => *shape,
        }
    }

    fn fits(
        &self,
        checkpoint: &Checkpoint,
        tensor: &str,
        parameter: (ParamId, &Shape),
        wanted: &Layout,
    ) -> bool {
        let mut whole = self.whole(parameter, wanted);
        if checkpoint.is_transposed(parameter.0)
            && let &[rows, columns] = whole.dims()
        {
            whole = Shape::matrix(columns, rows);
        }
        let dims = checkpoint.stored_dims(parameter.0, &whole);
        checkpoint.weights.info(tensor).is_some_and(|info| info.has(&dims))
    }

    /// Where the parameter's elements are in the tensor.
    fn elements(&self, id: ParamId, wanted: &Layout) -> Option<Range<usize>> {
        let count = |id: &ParamId| wanted.get(*id).map_or(0, Shape::elements);
        let place = self.0.iter().position(|other| *other == id)?;
        let begin: usize = self.0[..place].iter().map(count).sum();
        Some(begin..begin + count(&id))
    }
}

impl Found {
    fn ignore(&mut self, tensor: &str, reason: Reason) {
        self.ignored.push(Ignored { tensor: tensor.to_owned(), reason });
    }

    /// Leaves a parameter of the folder aside, to begin anew because it means something else.
    pub fn redraw(&mut self, id: ParamId) {
        if let Some(Stored { tensor, .. }) = self.tensors.remove(&id) {
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
