//! From a draft to an experiment: do the values make sense, alone and together?

mod data;
mod model;
mod prompts;
mod recipe;
mod values;

pub use prompts::prompt;
pub use recipe::complaint;

use std::sync::Arc;

use fedra_compute::ThreadPool;
use fedra_data::{AnswerForm, Table, Task};

use self::values::{Result, at_least_one};
use super::checked::Experiment;
use super::draft::Draft;
use super::origin::Origin;
use crate::config::complaint::Complaint;

/// Tokens of an example, unless the file says otherwise.
const USUAL_TOKENS: usize = 128;

/// Checks a draft, and fills in what depends on more than one key. The rows are those of a program,
/// where it brings its own.
pub fn check(mut draft: Draft, rows: Option<Arc<Table>>) -> Result<Experiment> {
    let name = name(&draft)?;
    if !["auto", "cpu"].contains(&draft.device.as_str()) {
        return Err(Complaint::new("device", format!("{:?}", draft.device), "auto or cpu"));
    }
    at_least_one("threads", draft.threads)?;
    if let Some(threads) = draft.threads.filter(|threads| *threads > ThreadPool::MOST) {
        return Err(Complaint::new("threads", threads, format!("at most {}", ThreadPool::MOST)));
    }
    at_least_one("data.max_examples", draft.data.max_examples)?;
    at_least_one("data.max_test", draft.data.max_test)?;
    at_least_one("evaluate.every", Some(draft.evaluate.every as usize))?;
    at_least_one("evaluate.patience", draft.evaluate.patience.map(|count| count as usize))?;
    let tokens = *draft.data.max_tokens.get_or_insert(USUAL_TOKENS);
    if tokens < 3 {
        return Err(Complaint::new("data.max_tokens", tokens, "at least 3"));
    }
    let expected = "concepts, diagnosis, classes, tokens, language, choice or generation";
    let task = draft.data.task.ok_or_else(|| Complaint::new("data.task", "nothing", expected))?;
    if task == Task::Generation && draft.split.is_some() {
        let expected = "\"language\" or \"choice\" beside [split]: a cut model is not scored by the text \
                        that it writes; learn the texts as \"language\", or leave [split] out";
        return Err(Complaint::new("data.task", "\"generation\"", expected));
    }
    if draft.evaluate.predictions && task.answer_form() == AnswerForm::Text {
        let expected = format!("false for the task {}, whose answers are texts", task.name());
        return Err(Complaint::new("evaluate.predictions", true, expected));
    }
    let rounds = draft.federation.rounds;
    let rounds =
        rounds.ok_or_else(|| Complaint::new("federation.rounds", "nothing", "at least 1"))?;
    at_least_one("federation.rounds", Some(rounds as usize))?;
    at_least_one("federation.clients", draft.federation.clients)?;
    prompts::check(&mut draft.data, task, tokens)?;
    let source = data::source(&mut draft, task, rows)?;
    let partition = data::partition(&draft)?;
    data::names(&draft)?;
    data::private_rows(&draft)?;
    let model = model::model(&mut draft, tokens)?;
    let recipe = recipe::recipe(&draft, rounds, (&model, task))?;
    let compare = draft.compare.take();
    let origin = Origin::default();
    Ok(Experiment { name, source, task, partition, model, rounds, recipe, draft, compare, origin })
}

/// The name becomes a folder, so it must be one.
fn name(draft: &Draft) -> Result<String> {
    let name = draft.name.clone().unwrap_or_default();
    let legal = |c: char| c.is_alphanumeric() || ['-', '_', '.', ' '].contains(&c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(legal) {
        let expected = "letters, digits, blanks, dots, - and _ (it names a folder)";
        return Err(Complaint::new("name", format!("{name:?}"), expected));
    }
    Ok(name)
}
