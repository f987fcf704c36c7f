//! Questions to whoever sits at the terminal, each with a proposal that Enter takes.
//!
//! An answer is a wish like a flag. After every answer the library proposes anew, so that a question
//! starts from the answers before it, and an answer that it refuses is asked for again.

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use fedra::hub::ModelName;
use fedra::init::{ModelChoice, Proposal, Sight, Wishes, propose};
use fedra::text::shell;
use fedra_data::{Format, Task};

use crate::console;
use crate::flags::Verbosity;
use crate::hub;

/// How unanswered questions are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// By whoever sits there.
    Terminal,
    /// By the proposals.
    Proposals,
    /// Not at all: a flag is missing.
    Nobody,
}

impl Asking {
    pub fn new(takes_proposals: bool) -> Self {
        let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        match (takes_proposals, terminal) {
            (true, _) => Self::Proposals,
            (false, true) => Self::Terminal,
            (false, false) => Self::Nobody,
        }
    }

    /// The file.
    pub fn data(self) -> Result<PathBuf> {
        match self {
            Self::Proposals | Self::Nobody => bail!(
                "DATA is missing: give a file with rows, a folder with a file for each client, or --client \
                 NAME=FILE"
            ),
            Self::Terminal => loop {
                let answer =
                    ask("Which file holds the rows (or folder, a file for each client)?", "")?;
                let path = PathBuf::from(answer);
                if path.exists() {
                    return Ok(path);
                }
                console::say(format_args!("found no {}, expected a path", path.display()));
            },
        }
    }

    /// The name of the experiment file.
    pub fn out(self, usual: &Path) -> Result<PathBuf> {
        match self {
            Self::Proposals | Self::Nobody => Ok(usual.to_owned()),
            Self::Terminal => {
                let answer = ask("Which file should be written?", &usual.display().to_string())?;
                Ok(PathBuf::from(answer))
            }
        }
    }

    /// Everything that no flag said.
    pub fn all(self, sight: &Sight, wishes: &mut Wishes) -> Result<()> {
        match self {
            Self::Proposals => Ok(()),
            Self::Nobody => check_flags(sight, wishes),
            Self::Terminal => {
                for question in QUESTIONS {
                    question.ask(sight, wishes)?;
                }
                Ok(())
            }
        }
    }
}

/// Says which flags are missing where nobody can be asked, with what they could be.
fn check_flags(sight: &Sight, wishes: &Wishes) -> Result<()> {
    let proposal = propose(sight, wishes)?;
    let missing: Vec<String> = QUESTIONS
        .iter()
        .filter(|question| question.is_open(sight, wishes, &proposal))
        .filter_map(|question| question.as_flag(&proposal))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "there is no terminal for questions, and these flags are missing: {}\n\
         hint: --yes takes the proposals",
        missing.join(" ")
    )
}

/// What is asked, in order.
const QUESTIONS: [Question; 5] =
    [Question::Task, Question::Text, Question::Label, Question::Client, Question::Model];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Task,
    Text,
    Label,
    Client,
    Model,
}

impl Question {
    /// Whether it has no answer and needs one.
    fn is_open(self, sight: &Sight, wishes: &Wishes, proposal: &Proposal) -> bool {
        let has_columns =
            !matches!(sight.found.format, Format::Conll | Format::Images | Format::Idx);
        let is_chat = matches!(proposal.roles.task.value, Task::Chat | Task::Preference);
        match self {
            Self::Task => wishes.task.is_none(),
            Self::Text => {
                wishes.text.is_empty() && has_columns && sight.images.is_none() && !is_chat
            }
            Self::Label => {
                let needs = proposal.roles.task.value != Task::Language && !is_chat;
                wishes.label.is_none() && has_columns && needs
            }
            Self::Client => {
                let answered = wishes.client.is_some() || wishes.clients.is_some();
                !answered && !sight.is_by_client()
            }
            Self::Model => wishes.model.is_none() && wishes.preset.is_none(),
        }
    }

    /// The proposal as a flag; none where nobody has to decide.
    fn as_flag(self, proposal: &Proposal) -> Option<String> {
        let roles = &proposal.roles;
        match self {
            Self::Task => Some(format!("--task {}", roles.task.value.name())),
            Self::Text => {
                let quoted = roles.text.value.iter().map(|name| shell::quoted(name));
                let flags: Vec<String> = quoted.map(|name| format!("--text {name}")).collect();
                Some(flags.join(" "))
            }
            Self::Label => {
                let label = roles.label.as_ref();
                label.map(|label| format!("--label {}", shell::quoted(&label.value)))
            }
            Self::Client => Some(match &roles.client {
                Some(client) => format!("--client-column {}", shell::quoted(&client.value)),
                None => format!("--clients {}", proposal.training.clients),
            }),
            // Without a model a preset learns, which harms nobody.
            Self::Model => None,
        }
    }

    fn ask(self, sight: &Sight, wishes: &mut Wishes) -> Result<()> {
        loop {
            let proposal = propose(sight, wishes)?;
            if !self.is_open(sight, wishes, &proposal) {
                return Ok(());
            }
            let (question, proposed) = self.in_words(sight, &proposal);
            let answer = ask(&question, &proposed)?;
            if self == Self::Model && answer == proposed {
                return Ok(());
            }
            let mut tried = wishes.clone();
            if let Err(error) = self.answer(&answer, sight, &mut tried) {
                console::say(error);
                continue;
            }
            match hub::opened(Verbosity::Lively, || propose(sight, &tried)) {
                Ok(_) => {
                    *wishes = tried;
                    return Ok(());
                }
                Err(error) => console::say(error.in_words()),
            }
        }
    }

    fn in_words(self, sight: &Sight, proposal: &Proposal) -> (String, String) {
        let roles = &proposal.roles;
        match self {
            Self::Task => {
                let question = format!("Which task ({})?\n  {}", task_names(), roles.task.why);
                (question, roles.task.value.name().to_owned())
            }
            Self::Text => {
                let question =
                    "Which column has the text (two for a pair, separated by a comma)?".to_owned();
                (question, roles.text.value.join(","))
            }
            Self::Label => {
                let label = roles.label.as_ref();
                let why = label.map_or(String::new(), |label| format!("\n  {}", label.why));
                let value = label.map_or(String::new(), |label| label.value.clone());
                (format!("Which column has the label?{why}"), value)
            }
            Self::Client => {
                let question = "Which column names the client? Or: the number of simulated clients";
                let value = match &roles.client {
                    Some(client) => client.value.clone(),
                    None => proposal.training.clients.to_string(),
                };
                let why = match &roles.client {
                    Some(client) => format!("\n  {}", client.why),
                    None => format!("\n  no column of {} names it", sight.survey.columns.len()),
                };
                (format!("{question}{why}"), value)
            }
            Self::Model => {
                let question = "Which model? A folder in Hugging Face layout, hf:ORG/NAME, or a preset for fresh weights";
                let proposed = match &proposal.training.model {
                    ModelChoice::Folder(path) => path.display().to_string(),
                    ModelChoice::Preset(name, _) => name.clone(),
                };
                (format!("{question}\n  {}", proposal.training.model_why), proposed)
            }
        }
    }

    fn answer(self, answer: &str, sight: &Sight, wishes: &mut Wishes) -> Result<(), String> {
        match self {
            Self::Task => {
                let task = Task::ALL.into_iter().find(|task| task.name() == answer);
                wishes.task =
                    Some(task.ok_or_else(|| format!("expected one of {}", task_names()))?);
            }
            Self::Text => {
                // A name may itself have a comma.
                wishes.text = if sight.survey.column(answer).is_some() {
                    vec![answer.to_owned()]
                } else {
                    answer.split(',').map(|name| name.trim().to_owned()).collect()
                };
            }
            Self::Label => wishes.label = Some(answer.to_owned()),
            Self::Client => match answer.parse() {
                Ok(0) => return Err("found 0, expected at least 1 client".to_owned()),
                Ok(count) if sight.survey.column(answer).is_none() => wishes.clients = Some(count),
                Ok(_) | Err(_) => wishes.client = Some(answer.to_owned()),
            },
            Self::Model => {
                let path = PathBuf::from(answer);
                if path.exists() || ModelName::is_meant(answer) {
                    wishes.model = Some(path);
                } else if answer.contains(['/', '\\']) {
                    return Err(format!("found no {answer}, expected a folder or a preset"));
                } else {
                    wishes.preset = Some(answer.to_owned());
                }
            }
        }
        Ok(())
    }
}

fn task_names() -> String {
    Task::ALL.map(Task::name).join(", ")
}

/// Asks one question; Enter takes the proposal.
fn ask(question: &str, proposed: &str) -> Result<String> {
    console::say(question);
    let shown = fedra_data::printable(proposed);
    let prompt = if proposed.is_empty() { "> ".to_owned() } else { format!("[{shown}] > ") };
    console::prompt(&prompt);
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line)? == 0 {
        bail!("stopped: nothing was written");
    }
    let answer = line.trim();
    Ok(if answer.is_empty() { proposed.to_owned() } else { answer.to_owned() })
}
