//! The names of a family: which module of the library holds which role, and what its keys are called.
//!
//! Plain data. How a family's `config.json` becomes properties is in its file under `families/`.

use std::fmt;

use fedra_plan::Role;

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
    /// The class with a vocabulary, where its name has another beginning.
    pub(crate) language_class: Option<&'static str>,
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
    /// Names in the backbone of rows that every class of the library has and no head here reads; zeros are
    /// written in their place.
    pub(crate) unread: &'static [&'static str],
    /// The same family under the names of the library's modules, where its files have older ones: those that
    /// adapters are for.
    pub(crate) as_modules: Option<&'static Family>,
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
    /// The dimensions of a parameter that stands alone: its name has no end, and ones stand in front of its
    /// shape.
    pub alone: Option<usize>,
}

impl Module {
    /// The same with its weight stored the other way round.
    pub(crate) const fn transposed(self) -> Self {
        Self { transposed: true, ..self }
    }

    /// A parameter that stands alone, with this many dimensions.
    pub(crate) const fn alone(self, dimensions: usize) -> Self {
        Self { alone: Some(dimensions), ..self }
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
    /// The family's name of a key of `config.json`.
    pub(crate) fn key<'k>(&self, key: &'k str) -> &'k str {
        self.keys.iter().find(|(ours, _)| *ours == key).map_or(key, |(_, theirs)| theirs)
    }

    /// Whether it reads images.
    pub(crate) fn reads_images(&self) -> bool {
        let mut modules = self.modules.iter().copied().flatten();
        modules.any(|module| module.roles.contains(&Role::Patch))
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

/// A module with one role, or several.
pub(crate) const fn module(place: Place, roles: &'static [Role], name: &'static str) -> Module {
    Module { place, name, roles, only: None, transposed: false, alone: None }
}

/// A module of one class only.
pub(crate) const fn of_class(
    kind: ClassKind,
    roles: &'static [Role],
    name: &'static str,
) -> Module {
    Module { place: Place::Head, name, roles, only: Some(kind), transposed: false, alone: None }
}

/// Whether the role is that of a norm or of a layer scale: its weight begins as ones.
pub(crate) const fn is_norm(role: Role) -> bool {
    matches!(
        role,
        Role::EmbeddingNorm
            | Role::AttentionNorm
            | Role::MlpNorm
            | Role::FinalNorm
            | Role::TransformNorm
            | Role::AttentionOutputNorm
            | Role::MlpOutputNorm
            | Role::AttentionScale
            | Role::MlpScale
            | Role::QueryNorm
            | Role::KeyNorm
    )
}
