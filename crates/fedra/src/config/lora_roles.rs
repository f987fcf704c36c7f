//! `model.lora.roles`: the projections that may get an adapter, and no other part of a model.

use fedra_model::Adapters;
use fedra_plan::Role;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::text::grid::joined;

/// Names of other libraries, by the role that they stand for here.
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
        let role = name.parse::<Role>().ok().filter(|role| Adapters::ROLES.contains(role));
        role.map(Self).ok_or_else(|| {
            let known = Adapters::ROLES.map(|role| role.to_string());
            let known = joined(&known, "or");
            let other = OTHER_NAMES.iter().find(|(other, _)| *other == name);
            let hint =
                other.map_or(String::new(), |(other, role)| format!(": {other} is {role} here"));
            D::Error::custom(format_args!("expected {known}{hint}"))
        })
    }
}
