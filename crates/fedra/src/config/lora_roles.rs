//! `model.lora.roles`: the projections that may get an adapter, and no other part of a model; also by the names that
//! PEFT's `target_modules` has for them.

use fedra_model::Adapters;
use fedra_plan::Role;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::text::grid::joined;

/// Names of modules in other libraries, PEFT's `target_modules`, by the role that they stand for.
const OTHER_NAMES: [(&str, Role); 13] = [
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
        let role = role.filter(|role| Adapters::ROLES.contains(role));
        role.map(Self).ok_or_else(|| {
            let known = joined(&Adapters::ROLES.map(|role| role.to_string()), "or");
            D::Error::custom(format_args!(
                "expected {known}, or their names in PEFT, such as q_proj"
            ))
        })
    }
}
