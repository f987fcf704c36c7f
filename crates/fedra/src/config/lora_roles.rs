//! `model.lora.roles` and `target_modules`: the projections inside the blocks and a decoder's output vocabulary, which
//! may get an adapter, and no other part of a model; by their roles, or as PEFT's `target_modules` names them.

use std::collections::BTreeSet;

use fedra_model::hf::Config;
use fedra_model::peft::Targets;
use fedra_model::{Adapters, Head};
use fedra_plan::Role;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::ConfigError;
use crate::text::grid::joined;

/// What every linear layer inside the blocks is called.
const ALL_LINEAR: &str = "all-linear";

/// Heads under the names that they have in other libraries.
const HEADS: [&str; 6] = ["lm_head", "classifier", "score", "pooler", "embed_out", "cls"];

/// `model.lora.target_modules`, as PEFT reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TargetModules {
    /// `all-linear`, or a pattern that a module's whole path has to match.
    Pattern(String),
    /// Names that modules' paths end with.
    Names(Vec<String>),
}

impl TargetModules {
    /// The projections that it means in a model of this shape with this head.
    pub(super) fn roles(&self, config: &Config, head: Head) -> Result<BTreeSet<Role>, ConfigError> {
        const KEY: &str = "model.lora.target_modules";
        let targets =
            Targets::of(config, head).map_err(|error| ConfigError::sentence("model", error))?;
        let known = || {
            let head = targets.head().map(|head| format!(", or {head}")).unwrap_or_default();
            format!("modules inside the blocks, such as {}{head}", targets.names().join(", "))
        };
        let some_blocks = |other: String| {
            let found = format!("some of the blocks, but not {other}");
            ConfigError::new(
                KEY,
                found,
                "modules of every block: each block gets the same adapters",
            )
        };
        let roles = match self {
            Self::Pattern(text) if text.eq_ignore_ascii_case(ALL_LINEAR) => targets.all(),
            Self::Pattern(text) => {
                let pattern = fancy_regex::Regex::new(&format!("^(?:{text})$"));
                let pattern = pattern.map_err(|error| {
                    let expected =
                        format!("{ALL_LINEAR:?}, a list of names, or a pattern ({error})");
                    ConfigError::new(KEY, format!("{text:?}"), expected)
                })?;
                let is_meant = |module: &str| pattern.is_match(module).unwrap_or(false);
                targets.matching(is_meant).map_err(some_blocks)?
            }
            Self::Names(names) => {
                let mut roles = BTreeSet::new();
                for name in names {
                    let meant = targets.ending(name).map_err(some_blocks)?;
                    let is_head = HEADS.contains(&name.rsplit('.').next().unwrap_or(name));
                    let hint = "model.lora.head = \"learns\" trains a head whole, as PEFT's modules_to_save does";
                    let refusal = ConfigError::new(KEY, format!("{name:?}"), known());
                    let refusal = if is_head { refusal.with_hint(hint) } else { refusal };
                    refusal.when(meant.is_empty())?;
                    roles.extend(meant);
                }
                roles
            }
        };
        let found = match self {
            Self::Pattern(text) => format!("{text:?}, which matches no module"),
            Self::Names(_) => "no name".to_owned(),
        };
        ConfigError::new(KEY, found, known()).when(roles.is_empty())?;
        Ok(roles)
    }
}

/// Names of modules in other libraries, PEFT's `target_modules`, by the role that they stand for.
const OTHER_NAMES: [(&str, Role); 14] = [
    ("q_proj", Role::Query),
    ("q_lin", Role::Query),
    ("k_proj", Role::Key),
    ("k_lin", Role::Key),
    ("v_proj", Role::Value),
    ("v_lin", Role::Value),
    ("o_proj", Role::Output),
    ("out_lin", Role::Output),
    ("gate_proj", Role::Gate),
    ("up_proj", Role::Up),
    ("fc1", Role::Up),
    ("down_proj", Role::Down),
    ("fc2", Role::Down),
    ("lm_head", Role::Vocabulary),
];

/// Reads the list.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Role>, D::Error> {
    let roles = Vec::<LoraRole>::deserialize(deserializer)?;
    Ok(roles.into_iter().map(|LoraRole(role)| role).collect())
}

struct LoraRole(Role);

impl<'de> Deserialize<'de> for LoraRole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let other = OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|(_, role)| *role);
        let role = name.parse::<Role>().ok().or(other);
        let role = role.filter(|role| Adapters::may_adapt(*role));
        role.map(Self).ok_or_else(|| {
            let roles = Adapters::ROLES.into_iter().chain([Adapters::HEAD]);
            let known: Vec<String> = roles.map(|role| role.to_string()).collect();
            let known = joined(&known, "or");
            D::Error::custom(format_args!(
                "expected {known}, or their names in PEFT, such as q_proj"
            ))
        })
    }
}
