//! The modules that an adapter is for, by the names that the library knows them by.

use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::{Layer, ParamId, Part, Role};

use crate::error::ModelError;
use crate::family::ClassKind;
use crate::head::Head;
use crate::hf::{Architecture, Config};
use crate::layout;
use crate::lora::Adapters;

/// What PEFT's `target_modules` can mean: the projections inside a model's blocks and the output vocabulary of a decoder,
/// by the paths of their modules.
#[derive(Clone, Debug)]
pub struct Targets {
    /// Every block's module of a projection, or the one of the head, under all names that it has had.
    modules: BTreeMap<Role, Vec<Vec<String>>>,
}

impl Targets {
    /// Those of a model of this shape with this head.
    pub fn of(config: &Config, head: Head) -> Result<Self, ModelError> {
        let family = config.family;
        let families = [Some(family), family.as_modules].into_iter().flatten();
        let names: Vec<Architecture> =
            families.map(|family| Architecture { family, kind: ClassKind::Sequences }).collect();
        let layout = layout::of(config, Head::Bare, None)?;
        let is_projection = |id: &ParamId| {
            id.layer.block().is_some()
                && id.part == Part::Weight
                && Adapters::ROLES.contains(&id.role)
        };
        let mut modules: BTreeMap<Role, Vec<Vec<String>>> = BTreeMap::new();
        for id in layout.ids().filter(is_projection) {
            let module = |class: &Architecture| {
                class.tensor_name(id).map(|name| name.trim_end_matches(".weight").to_owned())
            };
            modules.entry(id.role).or_default().push(names.iter().filter_map(module).collect());
        }
        let class = Architecture { family, kind: ClassKind::Language };
        let vocabulary = ParamId::new(Layer::Head, Adapters::HEAD, Part::Weight);
        if head == Head::Language
            && config.causal
            && let Some(name) = class.tensor_name(vocabulary)
        {
            let module = name.trim_end_matches(".weight").to_owned();
            modules.insert(Adapters::HEAD, vec![vec![module]]);
        }
        Ok(Self { modules })
    }

    /// All inside the blocks: the library's `all-linear`, which leaves out the output layer.
    pub fn all(&self) -> BTreeSet<Role> {
        self.modules.keys().copied().filter(|role| *role != Adapters::HEAD).collect()
    }

    /// Those whose modules a condition holds for in every block. The error is a module of another block for which it
    /// does not.
    pub fn matching(&self, is_meant: impl Fn(&str) -> bool) -> Result<BTreeSet<Role>, String> {
        let mut roles = BTreeSet::new();
        for (role, blocks) in &self.modules {
            let holds = |names: &&Vec<String>| names.iter().any(|name| is_meant(name));
            let left_out = blocks.iter().find(|names| !holds(names));
            match (blocks.iter().any(|names| holds(&names)), left_out) {
                (true, Some(names)) => return Err(names.first().cloned().unwrap_or_default()),
                (true, None) => _ = roles.insert(*role),
                (false, _) => {}
            }
        }
        Ok(roles)
    }

    /// The same for the end of a module's path, as the library reads a name in a list.
    pub fn ending(&self, end: &str) -> Result<BTreeSet<Role>, String> {
        let inside =
            |module: &str| module.strip_suffix(end).is_some_and(|rest| rest.ends_with('.'));
        self.matching(|module| module == end || inside(module))
    }

    /// The paths of the modules of some projections, in every block, as the library has them today.
    pub fn modules(&self, roles: &BTreeSet<Role>) -> Vec<&str> {
        let of_roles = self.modules.iter().filter(|(role, _)| roles.contains(role));
        let names = of_roles.flat_map(|(_, blocks)| blocks);
        names.filter_map(|names| names.last().map(String::as_str)).collect()
    }

    /// The paths in the first block, in the order of the forward pass, for people.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let inside = self.modules.iter().filter(|(role, _)| **role != Adapters::HEAD);
        for name in inside.filter_map(|(_, blocks)| blocks.first()?.first()) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// The path of the output vocabulary, where it may be one.
    pub fn head(&self) -> Option<&str> {
        self.modules.get(&Adapters::HEAD)?.first()?.first().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Preset;

    fn roles(found: Result<BTreeSet<Role>, String>) -> Vec<Role> {
        found.unwrap().into_iter().collect()
    }

    #[test]
    fn a_name_means_every_module_whose_path_ends_with_it() {
        let config = Preset::Llama2.config();
        let llama = Targets::of(&config, Head::Bare).unwrap();
        assert_eq!(roles(llama.ending("q_proj")), [Role::Query]);
        assert_eq!(roles(llama.ending("self_attn.o_proj")), [Role::Output]);
        assert_eq!(roles(llama.ending("proj")), []);
        assert_eq!(llama.all().len(), 7);
        assert_eq!(llama.names().len(), 7);
        let one = llama.ending("model.layers.3.self_attn.q_proj").unwrap_err();
        assert_eq!(one, "model.layers.0.self_attn.q_proj");
        assert_eq!(roles(llama.ending("lm_head")), []);
        let writing = Targets::of(&config, Head::Language).unwrap();
        assert_eq!(roles(writing.ending("lm_head")), [Role::Vocabulary]);
        assert_eq!(writing.all(), llama.all());
        assert_eq!((llama.head(), writing.head()), (None, Some("lm_head")));
        let bert = Targets::of(&Preset::Tiny.config(), Head::Language).unwrap();
        assert_eq!(roles(bert.ending("decoder")), []);
        assert_eq!(roles(bert.ending("dense")), [Role::Output, Role::Up, Role::Down]);
        assert_eq!(roles(bert.ending("attention.output.dense")), [Role::Output]);
        assert_eq!(roles(bert.ending("output.dense")), [Role::Output, Role::Down]);
    }
}
