//! Families of models: how `config.json` becomes the properties of a [`Config`], and a table of names.
//!
//! A family is one file. Nothing outside this folder asks which one a model belongs to.

mod bert;
mod decoder;
mod distilbert;
mod electra;
mod gemma;
mod gpt2;
mod llama;
mod mistral;
mod modernbert;
mod olmo2;
mod phi3;
mod qwen;
mod roberta;
mod rope;
mod smollm3;
mod windows;

use std::fmt;

use fedra_plan::Role;
use serde_json::{Map, Value};

use crate::config::Config;
use crate::error::ModelError;
use crate::hf::config::Fields;

/// Every family, in the order in which an error lists them.
pub(crate) static ALL: [&Family; 18] = [
    &bert::FAMILY,
    &roberta::ROBERTA,
    &roberta::XLM_ROBERTA,
    &roberta::CAMEMBERT,
    &distilbert::FAMILY,
    &electra::FAMILY,
    &modernbert::FAMILY,
    &llama::FAMILY,
    &mistral::FAMILY,
    &qwen::QWEN2,
    &qwen::QWEN3,
    &gemma::GEMMA,
    &gemma::GEMMA2,
    &gemma::GEMMA3,
    &phi3::FAMILY,
    &olmo2::FAMILY,
    &smollm3::FAMILY,
    &gpt2::FAMILY,
];

/// A family of models that share their names.
pub struct Family {
    /// What `model_type` says.
    pub model_type: &'static str,
    /// How it is called in a message.
    pub name: &'static str,
    /// What the classes of the library begin with.
    pub(crate) class: &'static str,
    /// What the class with a vocabulary ends with.
    pub(crate) language: &'static str,
    /// What stands before the names of the backbone in a class with a head.
    pub(crate) prefix: &'static str,
    /// What stands before the number of a block.
    pub(crate) blocks: &'static str,
    /// The keys of `config.json` that have other names: ours, then the family's.
    pub(crate) keys: &'static [(&'static str, &'static str)],
    /// Which module holds which roles.
    pub(crate) modules: &'static [&'static [Module]],
    /// Names of tensors that are a second copy of a parameter.
    pub(crate) copies: &'static [(&'static str, Copied)],
    /// Ends of names of constants that are computed, not learnt.
    pub(crate) buffers: &'static [&'static str],
    /// Beginnings of names that belong to heads which no model has here.
    pub(crate) other_heads: &'static [&'static str],
    /// The properties that a file describes.
    pub(crate) read: fn(&Fields<'_>) -> Result<Config, ModelError>,
    /// Writes the properties that the family's file has beside the common sizes.
    pub(crate) write: fn(&Config, &mut Map<String, Value>),
}

/// Which parameter a tensor is a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// The token embedding.
    Token,
    /// The bias of the output vocabulary.
    VocabularyBias,
}

/// A module of the library, and the roles of what it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    pub place: Place,
    /// Its path, after the prefixes of the backbone and of the block.
    pub name: &'static str,
    /// One role, or several whose weights lie one after the other in its rows.
    pub roles: &'static [Role],
    /// The class that has it, where others have another module for the role.
    pub only: Option<ClassKind>,
    /// Whether its weight is stored with inputs as rows.
    pub transposed: bool,
}

impl Module {
    /// The same with its weight stored the other way round.
    const fn transposed(self) -> Self {
        Self { transposed: true, ..self }
    }
}

/// Where a module sits, which decides its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Embedding,
    Block,
    /// Behind the blocks, yet inside what the library calls the base model.
    BackboneHead,
    Head,
}

/// What a class of the library has on its backbone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassKind {
    /// Nothing.
    Base,
    /// A classifier of sequences.
    Sequences,
    /// A classifier of tokens.
    Tokens,
    /// A vocabulary.
    Language,
}

impl ClassKind {
    pub(crate) const ALL: [Self; 4] = [Self::Sequences, Self::Tokens, Self::Language, Self::Base];
}

impl Family {
    /// The family that `model_type` names.
    pub(crate) fn by_type(model_type: &str) -> Option<&'static Self> {
        ALL.into_iter().find(|family| family.model_type == model_type)
    }

    /// Their names in `config.json`, for an error.
    pub(crate) fn known_types() -> String {
        let quoted: Vec<String> =
            ALL.iter().map(|family| format!("{:?}", family.model_type)).collect();
        quoted.join(", ")
    }

    /// The family's name of a key of `config.json`.
    pub(crate) fn key<'k>(&self, key: &'k str) -> &'k str {
        self.keys.iter().find(|(ours, _)| *ours == key).map_or(key, |(_, theirs)| theirs)
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.model_type == other.model_type
    }
}

impl Eq for Family {}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A module with one role.
const fn module(place: Place, roles: &'static [Role], name: &'static str) -> Module {
    Module { place, name, roles, only: None, transposed: false }
}

/// A module of one class only.
const fn of_class(kind: ClassKind, roles: &'static [Role], name: &'static str) -> Module {
    Module { place: Place::Head, name, roles, only: Some(kind), transposed: false }
}
