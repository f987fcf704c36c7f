//! One message of a conversation.

use crate::chat::guard;
use crate::error::Mismatch;
use crate::words::words;

words! {
    /// Who speaks.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Role {
        /// Says what the assistant is to be like; at most once, in front.
        System = "system",
        /// Asks.
        User = "user",
        /// Answers; what a model learns to write.
        Assistant = "assistant",
    }
}

impl Role {
    /// The role of a name as files write it.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "system" | "developer" => Some(Self::System),
            "user" | "human" => Some(Self::User),
            "assistant" | "gpt" | "model" => Some(Self::Assistant),
            _ => None,
        }
    }
}

/// What somebody says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Who.
    pub role: Role,
    /// What.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into() }
    }

    /// A message as files write it.
    pub(crate) fn named(role: &str, content: String) -> Result<Self, Mismatch> {
        let Some(role) = Role::parse(role) else {
            let found = format!("a message of {role:?}");
            return Err((found, "system, user or assistant".to_owned()));
        };
        Ok(Self { role, content })
    }
}

/// Two answers of the assistant to the same conversation, each one message or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preference {
    /// The one that is preferred.
    pub chosen: Vec<Message>,
    /// The other one.
    pub rejected: Vec<Message>,
}

/// Whether nobody answers anything in a conversation.
pub(crate) fn fault(messages: &[Message]) -> Option<(&'static str, &'static str)> {
    let answers = |message: &&Message| message.role == Role::Assistant;
    let says = |message: &Message| !message.content.trim().is_empty();
    match messages.iter().rfind(answers) {
        None => Some(("no message of the assistant", "at least one: it is what is learned")),
        Some(_) if !messages.iter().filter(answers).any(says) => {
            Some(("no word of the assistant", "at least one: it is what is learned"))
        }
        Some(_) => None,
    }
}

/// What two answers to a conversation lack that a preference cannot do without.
pub(crate) fn pair_fault(
    prompt: &[Message],
    pair: &Preference,
) -> Option<(&'static str, &'static str)> {
    let says = |messages: &[Message], role: Role| {
        messages.iter().any(|it| it.role == role && !it.content.trim().is_empty())
    };
    let answers = |messages: &[Message]| {
        messages.first().is_some_and(|first| first.role == Role::Assistant)
            && says(messages, Role::Assistant)
    };
    if !says(prompt, Role::User) {
        return Some(("no question in front of the answers", "a message of the user"));
    }
    if !answers(&pair.chosen) {
        return Some(("no word of the assistant in the chosen answer", "at least one"));
    }
    if !answers(&pair.rejected) {
        return Some(("no word of the assistant in the rejected answer", "at least one"));
    }
    let expected = "two that differ: there is nothing to prefer";
    (pair.chosen == pair.rejected).then_some(("the same answer twice", expected))
}

/// What is wrong with messages that a template is to write.
pub(crate) fn check(messages: &[Message]) -> Result<(), (String, &'static str)> {
    if messages.iter().skip(1).any(|message| message.role == Role::System) {
        let found = "a message of the system behind other messages".to_owned();
        return Err((found, "at most one, in front of the others"));
    }
    messages.iter().try_for_each(|message| guard::check(&message.content))
}
