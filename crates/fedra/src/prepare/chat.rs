//! How a model reads conversations: by its own template, by one that the experiment names, or by a usual one.
//!
//! A template is a part of what a model was trained with, so the saved model has the one that was used.

use std::path::Path;

use fedra_client::LastTurnCounts;
use fedra_data::{ChatTemplate, DeclaredTemplate, Task, TemplateOrigin, Tokenizer};
use fedra_model::hf::Companions;

use crate::config::{ConfigError, Experiment};
use crate::error::{Context, Result};
use crate::prepare::generation_config::GenerationConfig;
use crate::text::grid::{counted, grouped};

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

/// The tokens at which a model stops that writes in a conversation: the end of a turn by its template, and those of
/// `generation_config.json`, or else these of `config.json`.
pub(super) fn stop_tokens(
    template: &ChatTemplate,
    (companions, tokenizer): (&Companions, &Tokenizer),
    declared: &[u32],
) -> Result<Vec<u32>> {
    let written = GenerationConfig::of_files(companions, declared.to_vec());
    let mut stop = written.context("generation_config.json")?.stop_tokens;
    stop.extend(template.ends_with().and_then(|end| tokenizer.token_id(&end)));
    Ok(stop)
}

/// What a person should know of last answers that are not written, and so have no ROUGE.
pub(super) fn omitted(counts: &LastTurnCounts, room: usize) -> Option<String> {
    let LastTurnCounts { conversations, unanswered, too_long } = *counts;
    let mut reasons = Vec::new();
    if unanswered > 0 {
        reasons.push(format!("{} end with no answer to a message", grouped(unanswered)));
    }
    if too_long > 0 {
        reasons.push(format!(
            "the last question of {} has more than the {room} tokens that data.max_new_tokens leaves of \
             data.max_tokens",
            grouped(too_long)
        ));
    }
    (!reasons.is_empty()).then(|| {
        format!(
            "{} of the {} that are scored have no ROUGE: {}",
            grouped(unanswered + too_long),
            counted(conversations, "conversation"),
            reasons.join(", ")
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_stops_at_the_end_of_a_turn_and_where_the_models_files_say() {
        let tokenizer = Tokenizer::grow(["user assistant hi there"], 60).unwrap();
        let template = ChatTemplate::plain(Some(3), &tokenizer).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let stop = || {
            let companions = Companions::open(folder.path()).unwrap();
            stop_tokens(&template, (&companions, &tokenizer), &[7])
        };
        assert_eq!(stop().unwrap(), [7, 3]);
        let file = folder.path().join("generation_config.json");
        std::fs::write(&file, r#"{"eos_token_id": [5, 6]}"#).unwrap();
        assert_eq!(stop().unwrap(), [5, 6, 3]);
        std::fs::write(&file, r#"{"eos_token_id": "end"}"#).unwrap();
        let refused = stop().unwrap_err().in_words();
        assert!(refused.contains("generation_config.json: eos_token_id"), "{refused}");
    }

    #[test]
    fn conversations_without_rouge_are_counted_by_their_reason() {
        let counts = LastTurnCounts { conversations: 40, unanswered: 2, too_long: 1 };
        let note = omitted(&counts, 32).unwrap();
        for part in ["3 of the 40 conversations that are scored", "2 end with", "of 1 has more"] {
            assert!(note.contains(part), "{part:?} in {note}");
        }
        let all_written = LastTurnCounts { conversations: 40, ..LastTurnCounts::default() };
        assert_eq!(omitted(&all_written, 32), None);
    }
}
