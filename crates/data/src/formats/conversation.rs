//! Conversations in the layouts that people keep them in.
//!
//! | layout | columns |
//! | --- | --- |
//! | messages | `messages` (or `conversations`): a list of objects with `role` and `content`, or `from` and `value`; in CSV as JSON |
//! | instructions | `instruction`, `output`, and `input` where there is one |
//! | pairs | `prompt` and `completion` |
//! | named | any two, by `columns.prompt` and `columns.answer` |
//!
//! The first of these that a record has is its layout. A prompt and what answers it may be lists of messages
//! too, as TRL has them.
//!
//! A preference has the columns `prompt`, `chosen` and `rejected`, or those that `columns` names. Answers that
//! are whole conversations need no prompt: what both begin with is it.

use serde_json::Value;

use super::columns::Columns;
use super::fields::{Cell, Fields, NoRow, missing, single};
use super::json::{self, DEEPEST, excerpt};
use crate::error::Mismatch;
use crate::{Body, Message, Preference, Role, Row};

/// Columns that hold whole conversations.
pub(super) const MESSAGES: [&str; 2] = ["messages", "conversations"];
/// Usual columns with what is asked and what is answered.
pub const PAIRS: [(&str, &str); 3] =
    [("instruction", "output"), ("instruction", "response"), ("prompt", "completion")];
/// Usual columns of two answers, the preferred one first.
pub const PREFERENCE: [&str; 2] = ["chosen", "rejected"];
/// What an instruction is about.
pub(super) const INPUT: &str = "input";
/// What the assistant is to be like.
pub(super) const SYSTEM: &str = "system";

impl Columns {
    /// The row that a record of a conversation means.
    pub(super) fn conversation_row(&self, fields: &mut dyn Fields) -> Result<Row, NoRow> {
        let mut messages = self.system(fields)?;
        messages.extend(self.turns(fields)?);
        self.placed(Row::of(Body::Conversation(messages)), fields)
    }

    /// The row that a record of a preference means.
    pub(super) fn preference_row(&self, fields: &mut dyn Fields) -> Result<Row, NoRow> {
        let mut messages = self.system(fields)?;
        let [chosen, rejected] = [&self.chosen, &self.rejected];
        let mut answer = |named: &Option<String>, usual| {
            side(named.as_deref().unwrap_or(usual), Role::Assistant, fields)
        };
        let (mut chosen, mut rejected) =
            (answer(chosen, PREFERENCE[0])?, answer(rejected, PREFERENCE[1])?);
        let is_whole =
            |answer: &[Message]| answer.first().is_some_and(|it| it.role != Role::Assistant);
        if is_whole(&chosen) && is_whole(&rejected) {
            let same = |(one, other): &(&Message, &Message)| one == other;
            let shared = chosen.iter().zip(&rejected).take_while(same).count();
            messages.extend(chosen.drain(..shared));
            rejected.drain(..shared);
        } else {
            let prompt = self.prompt.as_deref().unwrap_or(PAIRS[2].0);
            messages.extend(side(prompt, Role::User, fields)?);
        }
        self.placed(Row::preference(messages, Preference { chosen, rejected }), fields)
    }

    /// The message of the system in a column of its own.
    fn system(&self, fields: &mut dyn Fields) -> Result<Vec<Message>, NoRow> {
        let system = self.system.as_deref().or_else(|| has(fields, SYSTEM).then_some(SYSTEM));
        let cell = system.map(|name| fields.take(name)).transpose()?.flatten();
        let text = cell.map_or(String::new(), |cell| single(cell, "\n"));
        let is_blank = text.trim().is_empty();
        Ok(if is_blank { Vec::new() } else { vec![Message::new(Role::System, text)] })
    }

    fn turns(&self, fields: &mut dyn Fields) -> Result<Vec<Message>, NoRow> {
        if let Some((prompt, answer)) = self.prompt.as_deref().zip(self.answer.as_deref()) {
            return pair((prompt, answer), fields);
        }
        let named = self.messages.as_deref();
        let found = named.or_else(|| MESSAGES.into_iter().find(|name| has(fields, name)));
        if let Some(name) = found {
            let messages = fields.messages(name)?;
            return messages.ok_or_else(|| absent(fields, name));
        }
        let known =
            PAIRS.into_iter().find(|(prompt, answer)| has(fields, prompt) && has(fields, answer));
        match known {
            Some(columns) => pair(columns, fields),
            None => Err(unknown(fields)),
        }
    }
}

/// Whether a record has a column of a name, with or without a value.
fn has(fields: &dyn Fields, name: &str) -> bool {
    fields.names().contains(&name)
}

/// A question and its answer, each a text or a list of messages.
fn pair((prompt, answer): (&str, &str), fields: &mut dyn Fields) -> Result<Vec<Message>, NoRow> {
    let mut messages = side(prompt, Role::User, fields)?;
    if prompt == PAIRS[0].0
        && has(fields, INPUT)
        && let (Some(cell), Some(asked)) = (fields.take(INPUT)?, messages.last_mut())
    {
        let input = single(cell, "\n");
        if !input.trim().is_empty() {
            asked.content = format!("{}\n\n{input}", asked.content);
        }
    }
    messages.extend(side(answer, Role::Assistant, fields)?);
    Ok(messages)
}

fn side(name: &str, role: Role, fields: &mut dyn Fields) -> Result<Vec<Message>, NoRow> {
    // A list is one of messages; what is no list of them is a text.
    match fields.messages(name) {
        Ok(Some(messages)) => Ok(messages),
        Ok(None) => Err(absent(fields, name)),
        Err(complaint) => match fields.take(name) {
            Ok(Some(Cell::One(text))) => Ok(vec![Message::new(role, text)]),
            Ok(Some(Cell::List(parts))) => Ok(vec![Message::new(role, parts.join("\n"))]),
            Ok(None) => Err(absent(fields, name)),
            Err(_) => Err(complaint.into()),
        },
    }
}

fn absent(fields: &dyn Fields, name: &str) -> NoRow {
    super::fields::absent(fields, &[name], None)
}

/// A record in no layout that is known.
fn unknown(fields: &dyn Fields) -> NoRow {
    let (found, _) = missing(fields, "");
    let expected = "messages; instruction and output; prompt and completion; or two columns that \
                    data.columns.prompt and data.columns.answer name";
    // A record of its own names may lack one of them; columns are the same for all rows.
    NoRow {
        mismatch: (found, expected.to_owned()),
        is_missing: !fields.are_columns(),
        advice: None,
    }
}

/// The messages in a text of JSON.
pub(super) fn of_json(text: &str) -> Result<Vec<Message>, Mismatch> {
    of_value(&json::value(text.trim(), DEEPEST)?)
}

/// The messages of a list of objects.
pub(super) fn of_value(value: &Value) -> Result<Vec<Message>, Mismatch> {
    let inner = MESSAGES.iter().find_map(|name| value.get(name));
    let value = inner.unwrap_or(value);
    let other = |value: &Value| {
        let found = excerpt(&value.to_string());
        (found, "a list of messages with role and content".to_owned())
    };
    let Some(list) = value.as_array() else { return Err(other(value)) };
    let message = |item: &Value| {
        let (role, content) = match (&item["role"], &item["content"]) {
            (Value::Null, Value::Null) => (&item["from"], &item["value"]),
            both => both,
        };
        match (role.as_str(), text(content)) {
            (Some(role), Some(content)) => Message::named(role, content),
            (_, _) => Err(other(item)),
        }
    };
    list.iter().map(message).collect()
}

/// What a message says: a text, or parts of which each is one.
fn text(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts
            .iter()
            .map(|part| (part["type"] == "text").then(|| part["text"].as_str()).flatten())
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// Messages of lists that stand side by side, as Parquet stores them.
pub(super) fn of_lists(
    roles: Vec<String>,
    contents: Vec<String>,
) -> Result<Vec<Message>, Mismatch> {
    if roles.len() != contents.len() {
        let found = format!("{} roles and {} contents", roles.len(), contents.len());
        return Err((found, "one content for each role".to_owned()));
    }
    let named = roles.into_iter().zip(contents);
    named.map(|(role, content)| Message::named(&role, content)).collect()
}

/// Messages as JSON, as a table without lists holds them.
pub(super) fn to_json(messages: &[Message]) -> String {
    let message = |message: &Message| serde_json::json!({ "role": message.role.name(), "content": message.content });
    messages.iter().map(message).collect::<Value>().to_string()
}
