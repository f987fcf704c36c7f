//! From a raw configuration to an experiment: do the values make sense, alone and together?

mod data;
mod images;
mod model;
mod prompts;
mod recipe;
mod values;

pub use prompts::{over_columns, prompt};
pub use recipe::{check as check_recipe, of_engine};

use std::sync::Arc;

use fedra_compute::{Seed, ThreadPool};
use fedra_data::{AnswerForm, Body, Table, Task};

use self::values::{Result, at_least_one, required};
use super::checked::Experiment;
use super::compute_device::ComputeDevice;
use super::origin::Origin;
use super::raw_config::RawConfig;
use super::split_table::SplitTable;
use crate::config::ConfigError;

/// Tokens of an example, unless the file says otherwise.
const USUAL_TOKENS: usize = 128;

/// Checks a raw configuration, and fills in what depends on more than one key. The rows are those of a program,
/// where it brings its own.
pub fn check(mut raw: RawConfig, rows: Option<Arc<Table>>) -> Result<Experiment> {
    let name = name(&raw)?;
    let device = ComputeDevice::of(&raw)?;
    for (key, count) in [
        ("threads", raw.threads),
        ("data.max_examples", raw.data.max_examples),
        ("data.max_test", raw.data.max_test),
        ("evaluate.every", Some(raw.evaluate.every as usize)),
        ("evaluate.patience", raw.evaluate.patience.map(|count| count as usize)),
        ("federation.rounds", raw.federation.rounds.map(|count| count as usize)),
        ("federation.clients", raw.federation.clients),
    ] {
        at_least_one(key, count)?;
    }
    let (threads, most) = (raw.threads.unwrap_or(1), ThreadPool::MOST);
    ConfigError::new("threads", threads, format_args!("at most {most}")).when(threads > most)?;
    let is_image = |table: &Arc<Table>| {
        table.examples.first().is_some_and(|row| matches!(row.body, Body::Image(_)))
    };
    let is_images = raw.data.is_images() || rows.as_ref().is_some_and(is_image);
    let max_tokens =
        if is_images { USUAL_TOKENS } else { *raw.data.max_tokens.get_or_insert(USUAL_TOKENS) };
    ConfigError::new("data.max_tokens", max_tokens, "at least 3").when(max_tokens < 3)?;
    let task = required("data.task", raw.data.task, TASKS)?;
    let hint = "learn the texts with the task language, or leave [split] out";
    ConfigError::sentence("data.task", "generation cannot be combined with [split]")
        .with_hint(hint)
        .when(task == Task::Generation && raw.split.is_some())?;
    let hint = "leave data.max_new_tokens out, and score the trained model where it is whole";
    ConfigError::excludes("data.max_new_tokens", "[split]")
        .with_hint(hint)
        .when(raw.data.max_new_tokens.is_some() && raw.split.is_some())?;
    let hint = "learn the conversations with the task chat, or leave [split] out";
    ConfigError::sentence("data.task", "preference cannot be combined with [split]")
        .with_hint(hint)
        .when(task == Task::Preference && raw.split.is_some())?;
    ConfigError::only("evaluate.predictions", "to tasks that are answered with labels")
        .when(raw.evaluate.predictions && task.answer_form() == AnswerForm::Text)?;
    let rounds = required("federation.rounds", raw.federation.rounds, "at least 1")?;
    prompts::check(&mut raw.data, task, max_tokens)?;
    images::check(&raw, task, is_images)?;
    let source = data::source(&mut raw, task, rows)?;
    let partition = data::partition(&raw)?;
    data::names(&raw)?;
    data::private_rows(&raw)?;
    let (model, image) = model::model(&mut raw, task, max_tokens, is_images)?;
    let max_tokens = image.map_or(max_tokens, |image| image.tokens());
    let cut = raw.split.as_ref().map(SplitTable::cut).transpose()?;
    let recipe = recipe::recipe(&raw, rounds, (&model, task))?;
    Ok(Experiment {
        name,
        seed: Seed(raw.seed),
        device,
        source,
        task,
        max_tokens,
        image,
        partition,
        model,
        rounds,
        recipe,
        parts: None,
        cut,
        learns: true,
        compare: raw.compare.take(),
        raw,
        origin: Origin::default(),
    })
}

/// The tasks there are.
const TASKS: &str =
    "concepts, diagnosis, classes, tokens, language, choice, generation, chat or preference";

/// The name becomes a folder, so it must be one.
fn name(raw: &RawConfig) -> Result<String> {
    let name = raw.name.clone().unwrap_or_default();
    let legal = |c: char| c.is_alphanumeric() || ['-', '_', '.', ' '].contains(&c);
    let is_name = !name.is_empty() && !name.starts_with('.') && name.chars().all(legal);
    let expected = "letters, digits, blanks, dots, - and _ (it names a folder)";
    ConfigError::new("name", format_args!("{name:?}"), expected).when(!is_name)?;
    Ok(name)
}
