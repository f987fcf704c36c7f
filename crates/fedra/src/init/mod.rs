//! From a file with rows to an experiment file, for somebody who starts from nothing.
//!
//! ```text
//! files --look--> Sight --and Wishes--> Proposal --to_toml--> an experiment with comments
//! ```
//!
//! The file itself is asked first: its columns, how many different values they have, how long texts
//! are. Wishes (flags, or answers to questions) are stronger than what is proposed, and a proposal is made
//! anew for every wish, so that the next question starts from it. Each decision has its reason, which
//! becomes a comment. What is written has been read back and its data have been dealt, so that
//! `fedra data` and `fedra run` take it at once.

mod models;
mod notes;
mod roles;
mod sight;
mod training;
mod writing;

use std::path::PathBuf;

use fedra_data::{AnswerForm, Missing, Task};

use crate::error::{Context, Result, refuse};
use crate::experiment::{Experiment, ModelSource, Overrides};
use crate::holdings::Holdings;
use crate::listener::Listener;
use crate::token_lengths::TokenLengths;

pub use self::models::{FoundModel, ModelPlaces, ModelShape};
pub use self::roles::Roles;
pub use self::sight::{ClientFile, Sight, look, without_ending};
pub use self::training::{ModelChoice, Training};

/// What somebody decided; the rest is proposed.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// What is to be learnt.
    pub task: Option<Task>,
    /// The column that is read; two are a pair.
    pub text: Vec<String>,
    /// The column with the label, or with the text to write.
    pub label: Option<String>,
    /// The column that says who holds a row.
    pub client: Option<String>,
    /// How many clients rows are dealt to, in place of a column.
    pub clients: Option<usize>,
    /// A file with rows to report on.
    pub test: Option<PathBuf>,
    /// A folder in Hugging Face layout, or a GGUF file.
    pub model: Option<PathBuf>,
    /// A shape with fresh weights.
    pub preset: Option<String>,
    /// A tokenizer for a preset.
    pub tokenizer: Option<PathBuf>,
    /// The method.
    pub method: Option<String>,
    /// How many rounds.
    pub rounds: Option<u32>,
    /// The most that a private run may spend.
    pub epsilon: Option<f64>,
    /// What becomes of rows without a text or a label.
    pub missing: Option<Missing>,
}

/// An experiment with the reason of each decision.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// What each column means, and the task.
    pub roles: Roles,
    /// The model, and how it is trained.
    pub training: Training,
    sight: Sight,
    wishes: Wishes,
}

/// A value and why it was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen<T> {
    /// The value.
    pub value: T,
    /// The reason, as a comment says it.
    pub why: String,
}

impl<T> Chosen<T> {
    fn new(value: T, why: impl Into<String>) -> Self {
        Self { value, why: why.into() }
    }

    fn wished(value: T) -> Self {
        Self::new(value, "as asked")
    }
}

/// Proposes what is not wished for.
pub fn propose(sight: &Sight, wishes: &Wishes) -> Result<Proposal> {
    let roles = Roles::of(sight, wishes)?;
    let training = Training::of(sight, &roles, wishes)?;
    Ok(Proposal { roles, training, sight: sight.clone(), wishes: wishes.clone() })
}

impl Proposal {
    /// The text of the experiment file that will have this name.
    pub fn to_toml(&self, file: &str) -> String {
        writing::to_toml(self, file)
    }

    /// The same proposal with as many tokens for an example as its rows have, counted with the model's own
    /// tokenizer, as far as the model reads them. The rows are read and dealt for it: nothing that a command
    /// would refuse is handed out.
    pub fn measured(mut self, listener: &dyn Listener) -> Result<Self> {
        let most = self.training.most_tokens(&self.roles);
        self.training.max_tokens.value = most;
        let experiment = experiment_of(&self.to_toml(""), "experiment")?;
        check_preset(&experiment)?;
        let holdings = Holdings::heard(&experiment, listener)
            .context("its rows cannot be used as proposed")?;
        let lengths = TokenLengths::of_experiment(&experiment, &holdings)
            .context("its rows cannot be cut into tokens")?;
        self.training.fit(&lengths, &self.roles);
        Ok(self)
    }

    /// Whether rows are divided among clients that nobody named.
    pub fn makes_up_clients(&self) -> bool {
        self.roles.client.is_none() && !self.sight.is_by_client()
    }

    /// The text, once it has been read back.
    pub fn checked(&self, file: &str, name: &str) -> Result<String> {
        let text = self.to_toml(file);
        experiment_of(&text, name)?;
        Ok(text)
    }
}

/// Refuses an encoder with fresh weights for a task that is answered in text.
fn check_preset(experiment: &Experiment) -> Result<()> {
    let ModelSource::Fresh(config, _) = &experiment.model else { return Ok(()) };
    if config.is_decoder() || experiment.task.answer_form() == AnswerForm::Labels {
        return Ok(());
    }
    let preset = experiment.draft.model.preset.as_deref().unwrap_or_default();
    refuse!(
        "--preset: found {preset:?}, which is an encoder, expected a decoder for the task {}\n\
         hint: --preset smollm2 is one, --model DIR takes a pretrained one, and --label COLUMN names a column \
         with labels, which an encoder can learn",
        experiment.task.name()
    )
}

/// The experiment that a proposal's text says. No file holds the text yet, so no error shall point into one.
fn experiment_of(text: &str, name: &str) -> Result<Experiment> {
    Experiment::from_text(text, "", name, &Overrides::default())
        .context("the experiment that follows from it is refused")
}
