//! Families of tiny models, and those of them that `--family` names.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde_json::Value;

/// Configurations of tiny models: every family, and every property that a family may have.
pub(super) const FAMILIES: &str = include_str!("check/families.json");

/// The family of a configuration.
pub(super) fn family(configuration: &Value) -> &str {
    configuration["model_type"].as_str().unwrap_or("?")
}

/// Refuses a `--family` that is not among those that are known.
pub(super) fn check_families(chosen: &[String], known: BTreeSet<&str>) -> Result<()> {
    if let Some(name) = chosen.iter().find(|name| !known.contains(name.as_str())) {
        let known: Vec<&str> = known.into_iter().collect();
        bail!("--family: found {name:?}, expected one of {}", known.join(", "));
    }
    Ok(())
}
