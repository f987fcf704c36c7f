//! The `[compare]` table of a file; a run has no use for it.

use serde::{Deserialize, Serialize};
use toml::Table;

/// `[compare]`: what `fedra compare` does with a file beyond running it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompareTable {
    /// How many seeds, from the experiment's own upwards.
    pub seeds: Option<u32>,
    /// With how many of them a tuned value is chosen.
    pub tune_seeds: Option<u32>,
    /// What the others are held against.
    pub baseline: Option<String>,
    /// Sets of overrides with a name, for methods with settings of their own.
    pub variants: Vec<NamedVariant>,
    /// Keys and the values they take, in all combinations.
    pub sweep: Table,
    /// Keys whose value each variant chooses for itself.
    pub tune: Table,
}

/// One entry of `compare.variants`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedVariant {
    /// What it is called.
    pub name: String,
    /// Keys with their values; a table replaces a table.
    #[serde(default)]
    pub set: Table,
    /// Keys that are tuned for it alone, or in another grid than the others'.
    #[serde(default)]
    pub tune: Table,
}
