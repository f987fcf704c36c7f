//! From a draft to an experiment: do the values make sense, alone and together?

mod data;
mod model;
mod prompts;
mod recipe;
mod values;

pub use prompts::prompt;
pub use recipe::{check as check_recipe, of_engine};

use std::sync::Arc;

use fedra_compute::{Seed, ThreadPool};
use fedra_data::{AnswerForm, Table, Task};

use self::values::{Result, at_least_one, required};
use super::checked::Experiment;
use super::draft::Draft;
use super::origin::Origin;
use super::split_table::SplitTable;
use crate::config::complaint::Complaint;

/// Tokens of an example, unless the file says otherwise.
const USUAL_TOKENS: usize = 128;

/// Checks a draft, and fills in what depends on more than one key. The rows are those of a program,
/// where it brings its own.
pub fn check(mut draft: Draft, rows: Option<Arc<Table>>) -> Result<Experiment> {
    let name = name(&draft)?;
    let device = draft.device.as_str();
    Complaint::new("device", format_args!("{device:?}"), "auto or cpu")
        .when(!matches!(device, "auto" | "cpu"))?;
    for (key, count) in [
        ("threads", draft.threads),
        ("data.max_examples", draft.data.max_examples),
        ("data.max_test", draft.data.max_test),
        ("evaluate.every", Some(draft.evaluate.every as usize)),
        ("evaluate.patience", draft.evaluate.patience.map(|count| count as usize)),
        ("federation.rounds", draft.federation.rounds.map(|count| count as usize)),
        ("federation.clients", draft.federation.clients),
    ] {
        at_least_one(key, count)?;
    }
    let (threads, most) = (draft.threads.unwrap_or(1), ThreadPool::MOST);
    Complaint::new("threads", threads, format_args!("at most {most}")).when(threads > most)?;
    let max_tokens = *draft.data.max_tokens.get_or_insert(USUAL_TOKENS);
    Complaint::new("data.max_tokens", max_tokens, "at least 3").when(max_tokens < 3)?;
    let task = required("data.task", draft.data.task, TASKS)?;
    let hint = "learn the texts with the task language, or leave [split] out";
    Complaint::sentence("data.task", "generation cannot be combined with [split]")
        .with_hint(hint)
        .when(task == Task::Generation && draft.split.is_some())?;
    Complaint::only("evaluate.predictions", "to tasks that are answered with labels")
        .when(draft.evaluate.predictions && task.answer_form() == AnswerForm::Text)?;
    let rounds = required("federation.rounds", draft.federation.rounds, "at least 1")?;
    prompts::check(&mut draft.data, task, max_tokens)?;
    let source = data::source(&mut draft, task, rows)?;
    let partition = data::partition(&draft)?;
    data::names(&draft)?;
    data::private_rows(&draft)?;
    let model = model::model(&mut draft, max_tokens)?;
    let cut = draft.split.as_ref().map(SplitTable::cut).transpose()?;
    let recipe = recipe::recipe(&draft, rounds, (&model, task))?;
    Ok(Experiment {
        name,
        seed: Seed(draft.seed),
        source,
        task,
        max_tokens,
        partition,
        model,
        rounds,
        recipe,
        evaluate: draft.evaluate,
        cut,
        compare: draft.compare.take(),
        draft,
        origin: Origin::default(),
    })
}

/// The tasks there are.
const TASKS: &str = "concepts, diagnosis, classes, tokens, language, choice or generation";

/// The name becomes a folder, so it must be one.
fn name(draft: &Draft) -> Result<String> {
    let name = draft.name.clone().unwrap_or_default();
    let legal = |c: char| c.is_alphanumeric() || ['-', '_', '.', ' '].contains(&c);
    let is_name = !name.is_empty() && !name.starts_with('.') && name.chars().all(legal);
    let expected = "letters, digits, blanks, dots, - and _ (it names a folder)";
    Complaint::new("name", format_args!("{name:?}"), expected).when(!is_name)?;
    Ok(name)
}
