//! How a model reads conversations: by its own template, by one that the experiment names, or by a usual one.
//!
//! A template is a part of what a model was trained with, so the saved model has the one that was used.

use std::path::Path;

use fedra_data::{ChatTemplate, DeclaredTemplate, Task, TemplateOrigin, Tokenizer};
use fedra_model::hf::Companions;

use crate::config::{ConfigError, Experiment};
use crate::error::{Context, Result};

/// The template of a model whose files these are. `end` is the token that ends its texts.
pub fn template(
    chosen: Option<&Path>,
    (companions, tokenizer): (&Companions, &Tokenizer),
    end: Option<u32>,
) -> Result<ChatTemplate> {
    let declared = DeclaredTemplate::of(|name| companions.get(name))?;
    let Some(chosen) = chosen else {
        return Ok(match declared.source {
            Some(source) => {
                let template = (source, TemplateOrigin::Model);
                ChatTemplate::new(template, declared.names, tokenizer)?
            }
            None => ChatTemplate::usual(end, tokenizer)?,
        });
    };
    match chosen.to_str() {
        Some("plain") => Ok(ChatTemplate::plain(end, tokenizer)?),
        Some("chatml") => Ok(ChatTemplate::chatml(tokenizer)?),
        Some(_) | None => {
            let shown = chosen.display();
            let source = std::fs::read_to_string(chosen)
                .with_context(|| format!("data.chat_template: cannot read {shown}"))?;
            let template = (source, TemplateOrigin::File(chosen.to_owned()));
            Ok(ChatTemplate::new(template, declared.names, tokenizer)?)
        }
    }
}

/// The template of an experiment on conversations or answers to them; none for another task.
pub(crate) fn of_experiment(
    experiment: &Experiment,
    files: (&Companions, &Tokenizer),
    end: Option<u32>,
) -> Result<Option<ChatTemplate>> {
    if !matches!(experiment.task, Task::Chat | Task::Preference) {
        return Ok(None);
    }
    let chosen = experiment.raw.data.chat_template.as_deref();
    let template = template(chosen, files, end);
    let template =
        template.map_err(|error| ConfigError::sentence("data.chat_template", error.in_words()))?;
    Ok(Some(template))
}

/// What a person should know of a template.
pub fn notes(template: &ChatTemplate) -> Vec<String> {
    let mut notes = Vec::new();
    if let TemplateOrigin::BuiltIn(name) = template.origin() {
        notes.push(format!(
            "conversations are written by the chat template {name:?}, because the model has none or the experiment \
             asks for it; data.chat_template names another one, and a saved model has it in chat_template.jinja"
        ));
    }
    if template.writes_date() {
        notes.push(format!(
            "the chat template writes today's date; here it always writes {}, because what is computed must repeat",
            ChatTemplate::DAY
        ));
    }
    if template.ends_with().is_none() {
        notes.push(
            "the chat template ends no turn of the assistant with a special token, so the model does not learn to \
             stop"
                .to_owned(),
        );
    }
    notes
}

/// The tokens that end texts, as a tokenizer's files say.
pub(crate) fn ends(companions: &Companions, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let declared = DeclaredTemplate::of(|name| companions.get(name))?;
    let end = declared.names.get("eos_token").and_then(|end| tokenizer.token_id(end));
    Ok(end.into_iter().collect())
}
