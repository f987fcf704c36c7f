//! What is guaranteed: to which unit, against which neighbour, at which delta.
//!
//! Two runs with the same noise and the same epsilon can guarantee very different things. These words
//! therefore travel with every number, and a ledger holds one guarantee only.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::numbers::{Budget, Delta};

/// What a ledger keeps count of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarantee {
    /// Whose presence is hidden.
    pub unit: Unit,
    /// How two datasets that must look alike differ.
    pub relation: Relation,
    /// The chance with which the guarantee may fail.
    pub delta: Delta,
    /// The largest epsilon that may be spent; without one everything is counted and nothing refused.
    pub budget: Option<Budget>,
}

/// Whose presence is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// One row of a client's data.
    Example,
    /// Everything that one client has.
    Client,
}

/// How two neighbouring datasets differ.
///
/// At equal noise, replacing costs up to about twice the epsilon of adding or removing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// One unit is there or is not.
    #[serde(alias = "add-remove")]
    AddRemove,
    /// One unit is exchanged for any other; their number is public.
    Replace,
}

impl fmt::Display for Unit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Example => "example",
            Self::Client => "client",
        })
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::AddRemove => "add-remove",
            Self::Replace => "replace",
        })
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unit, relation, delta, budget } = self;
        write!(formatter, "{unit}-level privacy under {relation} at delta {delta}")?;
        match budget {
            Some(budget) => write!(formatter, " with epsilon at most {budget}"),
            None => formatter.write_str(" without a budget"),
        }
    }
}
