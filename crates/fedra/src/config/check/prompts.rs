//! `[data]` keys of tasks that are answered in text: prompt, answers, target and their bounds.

use fedra_data::{AnswerTemplates, ChoiceTemplates, LengthNorm, Prompt, Task};

use super::values::{Result, at_least_one, existing, required};
use crate::config::ConfigError;
use crate::config::raw_config::{BUILT_IN_TEMPLATES as BUILT_IN, Data, Source as Written};

/// Tokens that are written, unless the file says otherwise; at most half of all.
const USUAL_NEW_TOKENS: usize = 64;

/// Refuses keys that the task does not look at, and asks for those it needs.
pub(super) fn check(data: &mut Data, task: Task, tokens: usize) -> Result<()> {
    let (is_choice, is_generation) = (task == Task::Choice, task == Task::Generation);
    let (choice, generation) = ("the task choice", "the task generation");
    let (either, written) = ("the tasks choice and generation", "the tasks generation and chat");
    let is_written = is_generation || task == Task::Chat;
    for (key, given, applies, tasks) in [
        ("data.prompt", data.prompt.is_some(), is_choice || is_generation, either),
        ("data.answers", data.answers.is_some(), is_choice, choice),
        ("data.length_norm", data.length_norm.is_some(), is_choice, choice),
        ("data.target", data.target.is_some(), is_generation, generation),
        ("data.max_new_tokens", data.max_new_tokens.is_some(), is_written, written),
    ] {
        ConfigError::only(key, format_args!("to {tasks}")).when(given && !applies)?;
    }
    if is_choice || is_generation {
        templates(data, task)?;
    }
    conversations(data, task)?;
    if is_choice {
        answers(data)?;
        data.length_norm.get_or_insert(LengthNorm::default());
    }
    if is_generation {
        data.max_new_tokens.get_or_insert(USUAL_NEW_TOKENS.min(tokens / 2));
    }
    if let Some(most) = data.max_new_tokens {
        at_least_one("data.max_new_tokens", Some(most))?;
        let expected = format_args!("less than the {tokens} of data.max_tokens");
        ConfigError::new("data.max_new_tokens", most, expected).when(most >= tokens)?;
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

/// Files have columns and templates over them; a program makes its prompts itself.
fn templates(data: &Data, task: Task) -> Result<()> {
    if data.source == Written::Rows {
        for (key, given) in [
            ("data.prompt", data.prompt.is_some()),
            ("data.answers", data.answers.is_some()),
            ("data.target", data.target.is_some()),
        ] {
            ConfigError::only(key, "to files: a program writes its prompts itself").when(given)?;
        }
        return Ok(());
    }
    let expected =
        format_args!("jsonl, csv, tsv or parquet: the task {} needs columns", task.name());
    ConfigError::new("data.source", "a source without columns", expected).when(!matches!(
        data.source,
        Written::Jsonl | Written::Csv | Written::Tsv | Written::Parquet
    ))?;
    over_columns(data, task)
}

/// Asks for the templates that a task needs over columns, wherever these come from.
pub fn over_columns(data: &Data, task: Task) -> Result<()> {
    if !matches!(task, Task::Choice | Task::Generation) {
        return Ok(());
    }
    answers(data)?;
    let expected = "a template over columns, as in \"{question}\\nAnswer:\"";
    let prompt = required("data.prompt", data.prompt.as_ref(), expected)?;
    let expected = "at least one column in braces, as in \"{question}\"";
    ConfigError::new("data.prompt", "the same text for every row", expected)
        .when(prompt.columns().next().is_none())?;
    let expected =
        "a text for each label, as in { yes = \"Yes\", no = \"No\" }, or a list of texts";
    ConfigError::missing("data.answers", expected)
        .when(task == Task::Choice && data.answers.is_none())?;
    ConfigError::missing("data.target", "a template over columns, as in \"{note}\"")
        .when(task == Task::Generation && data.target.is_none())?;
    ConfigError::excludes("data.columns.text", "data.prompt, which names the columns that are read")
        .when(data.columns.text.is_some())
}

/// Keys of conversations, and those that conversations do not have.
fn conversations(data: &mut Data, task: Task) -> Result<()> {
    let (is_chat, is_preference) = (task == Task::Chat, task == Task::Preference);
    let columns = &data.columns;
    let both = "to the tasks chat and preference";
    for (key, given, fits, tasks) in [
        ("data.chat_template", data.chat_template.is_some(), is_chat || is_preference, both),
        ("data.columns.prompt", columns.prompt.is_some(), is_chat || is_preference, both),
        ("data.columns.system", columns.system.is_some(), is_chat || is_preference, both),
        ("data.columns.messages", columns.messages.is_some(), is_chat, "to the task chat"),
        ("data.columns.answer", columns.answer.is_some(), is_chat, "to the task chat"),
        ("data.columns.chosen", columns.chosen.is_some(), is_preference, "to the task preference"),
        (
            "data.columns.rejected",
            columns.rejected.is_some(),
            is_preference,
            "to the task preference",
        ),
    ] {
        ConfigError::only(key, tasks).when(given && !fits)?;
    }
    if !(is_chat || is_preference) {
        return Ok(());
    }
    let instead = if is_chat {
        "the task chat: data.columns.messages, or prompt and answer, name its columns"
    } else {
        "the task preference: data.columns.prompt, chosen and rejected name its columns"
    };
    for (key, given) in [
        ("data.columns.text", columns.text.is_some()),
        ("data.columns.label", columns.label.is_some()),
    ] {
        ConfigError::excludes(key, instead).when(given)?;
    }
    let hint = "prompt is what a user asks, answer what the assistant says";
    ConfigError::sentence("data.columns.prompt", "prompt and answer are named together")
        .with_hint(hint)
        .when(is_chat && columns.prompt.is_some() != columns.answer.is_some())?;
    ConfigError::excludes("data.columns.messages", "data.columns.prompt")
        .when(columns.messages.is_some() && columns.prompt.is_some())?;
    if data.source != Written::Rows {
        let expected =
            format!("jsonl, csv, tsv or parquet: the task {} needs columns", task.name());
        ConfigError::new("data.source", "a source without columns", expected).when(!matches!(
            data.source,
            Written::Jsonl | Written::Csv | Written::Tsv | Written::Parquet
        ))?;
    }
    if let Some(path) = &mut data.chat_template
        && !BUILT_IN.iter().any(|name| path.as_os_str() == *name)
    {
        *path = existing("data.chat_template", path)?;
    }
    Ok(())
}

fn answers(data: &Data) -> Result<()> {
    let count = match &data.answers {
        Some(ChoiceTemplates::ByLabel(texts)) => texts.len(),
        Some(ChoiceTemplates::InOrder(texts)) => texts.len(),
        Some(ChoiceTemplates::Options(options)) => match options.labels() {
            Some(letters) => letters.len(),
            None => return Ok(()),
        },
        Some(ChoiceTemplates::Column(_)) | None => return Ok(()),
    };
    ConfigError::new("data.answers", count, "at least 2").when(count < 2)?;
    let named = "data.answers, which names the labels unless it is a column";
    ConfigError::excludes("data.labels", named).when(data.labels.is_some())
}
