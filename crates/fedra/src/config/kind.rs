//! What kind of TOML file somebody handed us, so that the wrong command can name the right one.
//!
//! Two kinds lie side by side in `experiments/`: experiments, and settings of the laboratory. A file
//! is told by keys that only one of them has; what has neither is left to the reader's error.

use serde::de::DeserializeOwned;
use std::fs;
use std::path::Path;
use toml::Table;

use super::origin::Origin;
use super::overrides::Overrides;
use super::{layers, reading};
use crate::error::{Context, Error, Result, refuse};

/// Keys that only an experiment has.
const EXPERIMENT: [&str; 8] =
    ["data", "model", "federation", "work", "method", "wire", "split", "privacy"];
/// Keys that only a setting of `fedra lab bridge` has.
const BRIDGE: [&str; 4] = ["heterogeneities", "warmups", "worlds", "teacher"];

/// Refuses a laboratory's file where an experiment is due.
pub fn check_experiment(table: &Table, file: &str) -> Result<()> {
    let has = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
    if has(&BRIDGE) && !has(&EXPERIMENT) {
        refuse!(
            "{file}: this file has settings of `fedra lab`; an experiment is needed\n\
             hint: fedra lab bridge {file}"
        );
    }
    Ok(())
}

/// Reads a laboratory's file, with complaints that name keys.
pub fn read_setting<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let shown = file.display().to_string();
    let text = text_of(file)?;
    let table = layers::parse(&text, &shown)?;
    if let Some(key) = EXPERIMENT.iter().find(|key| table.contains_key(**key)) {
        refuse!(
            "{shown}: this file is an experiment (it has {key}); settings of `fedra lab` are needed\n\
             hint: fedra run {shown}; experiments/frozen_bridge.toml is a file for this command"
        );
    }
    let origin = Origin::new(&shown, &text, &Overrides::default());
    Ok(reading::read(table).map_err(|refusal| origin.place(refusal))?)
}

/// The text of a file; what cannot be read as such is named for what it is.
pub fn text_of(file: &Path) -> Result<String> {
    let shown = file.display();
    if file.is_dir() {
        let inside = file.join(crate::run_files::EXPERIMENT);
        let hint = if inside.is_file() {
            format!("\nhint: {} is the experiment of the run there", inside.display())
        } else {
            String::new()
        };
        refuse!("{shown}: found a folder, expected an experiment file in TOML{hint}");
    }
    let bytes = fs::read(file).with_context(|| format!("cannot read {shown}"))?;
    String::from_utf8(bytes).map_err(|_| {
        Error::Refused(format!("{shown}: found bytes that are no text, expected TOML in UTF-8"))
    })
}
