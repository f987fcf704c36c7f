//! What a program brings itself: rows that no file holds, and a method that has no name in a file.
//!
//! `experiment.toml` of such a run says so, and cannot be run again by a file alone: the source or
//! the method that it names is refused, and never taken for another one.

use std::sync::Arc;

use fedra_data::Table;
use fedra_engine::Recipe;
use fedra_engine::methods::Method;

use super::check;
use super::checked::Experiment;
use super::raw_config::{self, RawConfig};
use crate::config::ConfigError;
use crate::error::Result;

impl Experiment {
    /// Checks a raw configuration over rows of the program's own. The task is that of the rows; whose they are
    /// and which split they belong to is what each row says, unless `data.partition` deals them anew.
    pub fn of_rows(mut raw: RawConfig, rows: Table) -> Result<Self> {
        raw.data.source = raw_config::Source::Rows;
        raw.data.task = Some(rows.task);
        raw.name.get_or_insert_with(|| RawConfig::UNNAMED.to_owned());
        Ok(check::check(raw, Some(Arc::new(rows)))?)
    }

    /// The same experiment by another recipe, which is a method of the program's own and must have
    /// a name of its own.
    pub fn with_recipe(mut self, recipe: Recipe) -> Result<Self> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let is_name = !recipe.method.is_empty() && recipe.method.chars().all(plain);
        let expected = "a name of letters, digits, - and _ that no other method has";
        ConfigError::new("method.name", format_args!("{:?}", recipe.method), expected)
            .when(!is_name || Method::NAMES.contains(&recipe.method.as_str()))?;
        check::check_recipe(&recipe, &self.raw)?;
        let name = recipe.method.clone();
        self.raw.method = raw_config::Method { name, settings: toml::Table::new() };
        self.recipe = recipe;
        Ok(self)
    }
}
