//! A proposal held against its rows: nothing that a command would refuse is handed out.

use fedra_data::AnswerForm;

use super::proposal::Proposal;
use crate::config::{ConfigError, Experiment, ModelSource, Overrides};
use crate::error::{Context, Result};
use crate::listener::Listener;
use crate::prepare::partitioned_data::PartitionedData;
use crate::prepare::token_lengths::TokenLengths;

impl Proposal {
    /// The same proposal with as many tokens for an example as its rows have, counted with the model's own
    /// tokenizer, as far as the model reads them. The rows are read and partitioned for it: nothing that a command
    /// would refuse is handed out.
    pub fn measured(mut self, listener: &dyn Listener) -> Result<Self> {
        let most = self.training.most_tokens(&self.roles);
        self.training.max_tokens.value = most;
        let experiment = experiment_of(&self.to_toml(""), "experiment")?;
        check_preset(&experiment)?;
        let holdings = PartitionedData::heard(&experiment, listener)
            .context("the proposed experiment cannot read its rows")?;
        let lengths = TokenLengths::of_experiment(&experiment, &holdings)
            .context("its rows cannot be tokenised")?;
        if experiment.image.is_none() {
            self.training.fit(&lengths, &self.roles);
        }
        Ok(self)
    }

    /// The text, once it has been read back.
    pub fn checked(&self, file: &str, name: &str) -> Result<String> {
        let text = self.to_toml(file);
        experiment_of(&text, name)?;
        Ok(text)
    }
}

/// Refuses an encoder with fresh weights for a task that is answered in text.
fn check_preset(experiment: &Experiment) -> Result<(), ConfigError> {
    let ModelSource::Fresh(config, _) = &experiment.model else { return Ok(()) };
    let is_encoder = !config.causal;
    let preset = experiment.raw.model.preset.as_deref().unwrap_or_default();
    let found = format_args!("{preset:?}, which is an encoder");
    let expected = format_args!("a decoder for the task {}", experiment.task.name());
    let hint =
        "use the preset smollm2 or a pretrained decoder; an encoder needs a column with labels";
    ConfigError::new("preset", found, expected)
        .with_hint(hint)
        .when(is_encoder && experiment.task.answer_form() == AnswerForm::Text)
}

/// The experiment that a proposal's text says. No file holds the text yet, so no error shall point into one.
fn experiment_of(text: &str, name: &str) -> Result<Experiment> {
    Experiment::from_text(text, "", name, &Overrides::default())
        .context("the resulting experiment is refused")
}
