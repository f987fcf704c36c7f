//! `[data]` keys of tasks that are answered in text: prompt, answers, target and their bounds.

use fedra_data::{AnswerTemplates, ChoiceTemplates, LengthNorm, Prompt, Task};

use super::values::{Result, at_least_one};
use crate::config::complaint::Complaint;
use crate::config::draft::{Data, Source as Written};

/// Tokens that are written, unless the file says otherwise; at most half of all.
const USUAL_NEW_TOKENS: usize = 64;

/// Refuses keys that the task does not look at, and asks for those it needs.
pub(super) fn check(data: &mut Data, task: Task, tokens: usize) -> Result<()> {
    rows_inside(data)?;
    match task {
        Task::Choice => {
            refuse(data, &["target", "max_new_tokens"], "data.task = \"generation\"")?;
            from_columns(data, task, "answers", data.answers.is_some())?;
            answers(data)?;
            data.length_norm.get_or_insert(LengthNorm::default());
        }
        Task::Generation => {
            refuse(data, &["answers", "length_norm"], "data.task = \"choice\"")?;
            from_columns(data, task, "target", data.target.is_some())?;
            let usual = USUAL_NEW_TOKENS.min(tokens / 2);
            let most = *data.max_new_tokens.get_or_insert(usual);
            at_least_one("data.max_new_tokens", Some(most))?;
            if most >= tokens {
                let expected = format!("less than the {tokens} of data.max_tokens");
                return Err(Complaint::new("data.max_new_tokens", most, expected));
            }
        }
        Task::Concepts | Task::Diagnosis | Task::Classes | Task::Tokens | Task::Language => {
            let all = ["prompt", "answers", "target", "length_norm", "max_new_tokens"];
            refuse(data, &all, "a task that is answered in text: \"choice\" or \"generation\"")?;
        }
    }
    Ok(())
}

/// How prompts and answers are written from columns, where they are.
pub fn prompt(data: &Data) -> Option<Prompt> {
    let answers = match (&data.answers, &data.target) {
        (Some(answers), _) => AnswerTemplates::Choices(answers.clone()),
        (None, Some(target)) => AnswerTemplates::Target(target.clone()),
        (None, None) => return None,
    };
    Some(Prompt { prompt: data.prompt.clone()?, answers })
}

fn refuse(data: &Data, keys: &[&str], where_it_works: &str) -> Result<()> {
    for (key, given) in [
        ("prompt", data.prompt.is_some()),
        ("answers", data.answers.is_some()),
        ("target", data.target.is_some()),
        ("length_norm", data.length_norm.is_some()),
        ("max_new_tokens", data.max_new_tokens.is_some()),
    ] {
        if given && keys.contains(&key) {
            let expected = format!("it only beside {where_it_works}");
            return Err(Complaint::new(&format!("data.{key}"), "a value", expected));
        }
    }
    Ok(())
}

/// Files have columns and templates over them; a program makes its prompts itself.
fn from_columns(data: &Data, task: Task, other: &str, has_other: bool) -> Result<()> {
    match data.source {
        Written::Jsonl | Written::Csv | Written::Tsv | Written::Parquet => {}
        Written::Rows => {
            return refuse(
                data,
                &["prompt", "answers", "target"],
                "files: a program writes its prompts itself",
            );
        }
        Written::SyntheticClinic | Written::Conll | Written::I2b2 | Written::Mimic => {
            let expected =
                format!("jsonl, csv, tsv or parquet, whose columns the task {} needs", task.name());
            return Err(Complaint::new("data.source", "a source without columns", expected));
        }
    }
    let Some(prompt) = &data.prompt else {
        let expected = "a template over columns, as in \"{question}\\nAnswer:\"";
        return Err(Complaint::new("data.prompt", "nothing", expected));
    };
    if prompt.columns().next().is_none() {
        let expected = "at least one column in braces, as in \"{question}\"";
        return Err(Complaint::new("data.prompt", "the same text for every row", expected));
    }
    if !has_other {
        let expected = match task {
            Task::Generation => "a template over columns, as in \"{note}\"",
            Task::Choice
            | Task::Concepts
            | Task::Diagnosis
            | Task::Classes
            | Task::Tokens
            | Task::Language => {
                "a text for each label, as in { yes = \"Yes\", no = \"No\" }, or a list of texts"
            }
        };
        return Err(Complaint::new(&format!("data.{other}"), "nothing", expected));
    }
    if data.columns.text.is_some() {
        let expected = "no such key: data.prompt names the columns that are read";
        return Err(Complaint::new("data.columns.text", "a column", expected));
    }
    Ok(())
}

fn answers(data: &Data) -> Result<()> {
    let count = match &data.answers {
        Some(ChoiceTemplates::ByLabel(texts)) => texts.len(),
        Some(ChoiceTemplates::InOrder(texts)) => texts.len(),
        Some(ChoiceTemplates::Column(_)) | None => return Ok(()),
    };
    if count < 2 {
        let found = if count == 0 { "none" } else { "one" };
        return Err(Complaint::new("data.answers", found, "at least two"));
    }
    if data.labels.is_some() {
        let expected = "it only where answers are in a column: here data.answers names the labels";
        return Err(Complaint::new("data.labels", "a list", expected));
    }
    Ok(())
}

/// Only JSON has lists of rows inside a record.
fn rows_inside(data: &Data) -> Result<()> {
    match (&data.columns.rows, data.source) {
        (None, _) | (Some(_), Written::Jsonl) => Ok(()),
        (
            Some(path),
            Written::SyntheticClinic
            | Written::Csv
            | Written::Tsv
            | Written::Parquet
            | Written::Conll
            | Written::I2b2
            | Written::Mimic
            | Written::Rows,
        ) => {
            let expected = "it only beside data.source = \"jsonl\"";
            Err(Complaint::new("data.columns.rows", format!("{path:?}"), expected))
        }
    }
}
