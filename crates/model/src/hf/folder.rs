//! Saving a model as a folder that other libraries load. The configuration is written last: a new
//! folder without one was interrupted, and no library takes it for a model.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fedra_plan::{Layer, Layout, ParamId, Part, Role, Shape};
use serde_json::json;

use super::checkpoint::transpose;
use super::companions::{self, Companions};
use super::config;
use super::dtype::Precision;
use super::file;
use super::names::Architecture;
use super::weights;
use super::writer::{self, Outline};
use crate::config::Config;
use crate::error::ModelError;
use crate::family::ClassKind;

/// Everything of a model folder but the values.
#[derive(Clone, Copy, Debug)]
pub struct Folder<'a> {
    /// What the model is, with its labels.
    pub config: &'a Config,
    /// The class that is to load it.
    pub architecture: Architecture,
    /// How values are stored.
    pub precision: Precision,
    /// Files carried along.
    pub companions: &'a Companions,
}

impl Folder<'_> {
    /// Every file that [`Folder::save`] may write.
    pub fn files() -> impl Iterator<Item = &'static str> {
        companions::NAMES.into_iter().chain([weights::SINGLE, config::FILE])
    }

    /// Writes the folder, made if it does not exist. `values` is asked for one parameter at a time.
    pub fn save<'v>(
        &self,
        dir: &Path,
        layout: &Layout,
        mut values: impl FnMut(ParamId) -> Result<Cow<'v, [f32]>, ModelError>,
    ) -> Result<(), ModelError> {
        self.config.check()?;
        let mut outlines = Vec::new();
        let mut ids = BTreeMap::new();
        for (id, shape) in layout.iter() {
            let name = self.tensor_name(id)?;
            let together = self.architecture.stored_with(id);
            if ids.contains_key(&name) {
                continue;
            }
            let mut shape = self.architecture.stored_dims(id, shape, self.config);
            if together.len() > 1 {
                let rows = |id: &ParamId| layout.get(*id).map_or(0, |it| it.dims()[0]);
                shape[0] = together.iter().map(rows).sum();
            }
            if self.architecture.is_transposed(id) {
                shape.reverse();
            }
            outlines.push(Outline { name: name.clone(), shape });
            ids.insert(name, together);
        }
        self.check_vocabulary(layout)?;
        let segments = self.stand_in_segments(layout);
        outlines.extend(segments.clone());
        outlines.extend(self.unread());

        fs::create_dir_all(dir).map_err(ModelError::io("create", dir))?;
        self.companions.completed(self.config).save(dir)?;
        writer::stream(&dir.join(weights::SINGLE), outlines, self.precision, |name| {
            match (ids.get(name), &segments) {
                (Some(ids), _) => self.together(ids, layout, &mut values),
                (None, Some(zeros)) => Ok(vec![0.0; zeros.shape.iter().product()].into()),
                (None, None) => Ok(vec![0.0; self.config.hidden_size].into()),
            }
        })?;

        let mut object = self.config.to_json(self.architecture, self.precision);
        if let Some(zeros) = segments {
            object["type_vocab_size"] = json!(zeros.shape[0]);
        }
        let path = dir.join(config::FILE);
        file::write(&path, |out| {
            writeln!(out, "{object:#}").map_err(ModelError::io("write", &path))
        })
    }

    /// The values of a tensor, which may hold several parameters.
    fn together<'v>(
        &self,
        ids: &[ParamId],
        layout: &Layout,
        values: &mut impl FnMut(ParamId) -> Result<Cow<'v, [f32]>, ModelError>,
    ) -> Result<Cow<'v, [f32]>, ModelError> {
        let is_transposed = self.architecture.is_transposed(ids[0]);
        if ids.len() == 1 && !is_transposed {
            return values(ids[0]);
        }
        let mut together = Vec::new();
        for id in ids {
            together.extend_from_slice(&values(*id)?);
        }
        match layout.get(ids[0]).map(Shape::dims) {
            Some(&[_, inputs]) if is_transposed => Ok(transpose(&together, inputs).into()),
            Some(_) | None => Ok(together.into()),
        }
    }

    fn tensor_name(&self, id: ParamId) -> Result<String, ModelError> {
        let adapter = id.part.is_adapter();
        let name = self.architecture.tensor_name(id).filter(|_| !adapter);
        name.ok_or(ModelError::Unnamed { id, class: self.architecture.class_name() })
    }

    /// The library would fill an output vocabulary that is neither tied nor saved with noise.
    fn check_vocabulary(&self, layout: &Layout) -> Result<(), ModelError> {
        let id = ParamId::new(Layer::Head, Role::Vocabulary, Part::Weight);
        let own = layout.contains(id);
        let writes = self.config.causal && self.architecture.kind == ClassKind::Language;
        if !writes || own != self.config.tie_word_embeddings {
            return Ok(());
        }
        let expected = format!("{} for a model with{} {id}", !own, if own { "" } else { "out" });
        let file = Path::new(config::FILE);
        Err(ModelError::config(file, "tie_word_embeddings", own.to_string(), expected))
    }

    /// Zeros for rows that the library's classes have and nothing here reads.
    fn unread(&self) -> Vec<Outline> {
        let Architecture { family, kind } = self.architecture;
        let prefix = if kind == ClassKind::Base { "" } else { family.prefix };
        let shape = vec![1, self.config.hidden_size];
        let outline =
            |name: &&str| Outline { name: format!("{prefix}{name}"), shape: shape.clone() };
        family.unread.iter().map(outline).collect()
    }

    /// Other libraries always add a segment embedding; a row of zeros stands in where the model has
    /// none.
    fn stand_in_segments(&self, layout: &Layout) -> Option<Outline> {
        let id = ParamId::new(Layer::Embedding, Role::Segment, Part::Weight);
        if self.config.type_vocab_size > 0 || layout.contains(id) {
            return None;
        }
        let name = self.architecture.tensor_name(id)?;
        Some(Outline { name, shape: vec![1, self.config.embedding_width()] })
    }
}
