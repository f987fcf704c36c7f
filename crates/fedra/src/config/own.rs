//! What a program brings itself: rows that no file holds, a method that has no name in a file, and code in the place of
//! some of its choices.
//!
//! `experiment.toml` of such a run says so, and cannot be run again by a file alone: the source or
//! the method that it names is refused, and never taken for another one.

use std::path::PathBuf;
use std::sync::Arc;

use fedra_data::{AnswerForm, ChoiceTemplates, Reader, Table, TableBuilder, Task};
use fedra_engine::methods::Method;
use fedra_engine::{OwnParts, Recipe};

use super::check;
use super::checked::Experiment;
use super::opening::ParsedExperiment;
use super::raw_config::{self, Data, RawConfig};
use crate::config::ConfigError;
use crate::error::Result;

impl ParsedExperiment {
    /// Checks it over records that a program has in memory. `[data]` says what their columns mean, as for a file; where
    /// it names files or another source, these records take their place. Whoever reads may give each part of them
    /// a split and a client by a reader of its own.
    pub fn over_records(
        mut self,
        read: impl FnOnce(&Reader, &mut TableBuilder) -> Result<()>,
    ) -> Result<Experiment> {
        let data = &mut self.raw.data;
        data.source = raw_config::Source::Rows;
        (data.path, data.train, data.validation, data.test) = (None, None, None, None);
        data.clients.clear();
        (data.delimiter, data.encoding, data.clinic, data.mimic) = (None, None, None, None);
        // These are about reading, which is over once there is a table.
        let said = Data {
            columns: data.columns.clone(),
            prompt: data.prompt.take(),
            answers: data.answers.take(),
            target: data.target.take(),
            labels: data.labels.clone(),
            missing: data.missing.take(),
            ..Data::default()
        };
        self.checked(|raw| {
            // Keys are judged before a row is read.
            let of_answers = said.answers.as_ref().and_then(ChoiceTemplates::labels);
            let labels = said.labels.clone().or(of_answers);
            let empty = |task| match &labels {
                Some(labels) => TableBuilder::new(task).with_labels(labels.iter().cloned()),
                None => TableBuilder::new(task),
            };
            let none = empty(raw.data.task.unwrap_or(Task::Classes)).finish();
            let task = check::check(raw.clone(), Some(Arc::new(none)))?.task;
            check::over_columns(&said, task)?;
            let mut builder = empty(task);
            let reader = Reader {
                prompt: check::prompt(&said),
                missing: said.missing.unwrap_or_default(),
                // Paths of images start where the program runs.
                images: said.columns.image.is_some().then(|| PathBuf::from(".")),
                columns: said.columns.clone(),
                ..Reader::default()
            };
            read(&reader, &mut builder)?;
            Ok(check::check(raw, Some(Arc::new(builder.finish())))?)
        })
    }
}

impl Experiment {
    /// Checks a raw configuration over rows of the program's own. The task is that of the rows; whose they are
    /// and which split they belong to is what each row says, unless `data.partition` deals them anew.
    pub fn of_rows(mut raw: RawConfig, rows: Table) -> Result<Self> {
        raw.data.source = raw_config::Source::Rows;
        raw.data.task = Some(rows.task);
        raw.name.get_or_insert_with(|| RawConfig::UNNAMED.to_owned());
        Ok(check::check(raw, Some(Arc::new(rows)))?)
    }

    /// Checks another raw configuration over the rows of this one: those of a program, if it has such.
    pub(crate) fn over_its_rows(&self, raw: RawConfig) -> Result<Self> {
        Ok(check::check(raw, self.own_rows())?)
    }

    /// The same experiment with code of the program in the place of some choices. In the folder of its run the method
    /// has another name, by which no file can be run.
    pub fn with_parts(mut self, parts: Arc<dyn OwnParts>) -> Result<Self> {
        let makes = parts.makes();
        makes.check(&self.recipe).map_err(check::of_engine)?;
        let expected = "classes, concepts, diagnosis or tokens: a score of a program needs probabilities of labels";
        ConfigError::new("data.task", self.task.name(), expected)
            .when(makes.score && self.task.answer_form() == AnswerForm::Text)?;
        self.recipe.method.push_str(makes.suffix());
        self.raw.method.name.clone_from(&self.recipe.method);
        self.parts = Some(parts);
        Ok(self)
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
