//! A row on its way into a table, as readers and programs make it.

use crate::example::{Body, Split};
use crate::{Message, Preference, RowPlace};

/// A row on its way in, its labels still names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What is read.
    pub body: Body,
    /// One name, any number of names, or one a word, as the task asks.
    pub labels: Vec<String>,
    /// The texts that answer it, where the task is answered in text.
    pub answers: Answers,
    /// Which party owns it.
    pub client: Option<String>,
    /// Which part of the data it belongs to.
    pub split: Option<Split>,
    /// What it must not be separated from.
    pub document: Option<String>,
    /// Where it stands.
    pub place: RowPlace,
}

impl Row {
    /// A row of running text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::of(Body::Text(text.into()))
    }

    /// A row of words.
    pub fn words<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::of(Body::Words(words.into_iter().map(Into::into).collect()))
    }

    /// A row of a conversation.
    pub fn conversation(messages: impl IntoIterator<Item = Message>) -> Self {
        Self::of(Body::Conversation(messages.into_iter().collect()))
    }

    /// A row of a conversation and two answers to it.
    pub fn preference(prompt: impl IntoIterator<Item = Message>, answers: Preference) -> Self {
        Self { answers: Answers::Preference(answers), ..Self::conversation(prompt) }
    }

    /// A row of an image.
    pub fn image(image: crate::Image) -> Self {
        Self::of(Body::Image(image))
    }

    /// The row with these labels.
    pub fn with_labels<L: Into<String>>(self, labels: impl IntoIterator<Item = L>) -> Self {
        Self { labels: labels.into_iter().map(Into::into).collect(), ..self }
    }

    /// The row as the property of a client.
    pub fn with_client(self, client: impl Into<String>) -> Self {
        Self { client: Some(client.into()), ..self }
    }

    /// The row as part of a document.
    pub fn with_document(self, document: impl Into<String>) -> Self {
        Self { document: Some(document.into()), ..self }
    }

    /// Bytes of its texts, or of its image.
    pub(crate) fn bytes(&self) -> u64 {
        let said = |messages: &[Message]| messages.iter().map(|it| it.content.len()).sum::<usize>();
        let body = match &self.body {
            Body::Text(text) => text.len(),
            Body::Pair(first, second) => first.len() + second.len(),
            Body::Words(words) => words.iter().map(String::len).sum(),
            Body::Image(image) => image.bytes() as usize,
            Body::Conversation(messages) => said(messages),
        };
        let answers = match &self.answers {
            Answers::Absent => 0,
            Answers::Choice(all) => all.iter().map(|(label, text)| label.len() + text.len()).sum(),
            Answers::Text(text) => text.len(),
            Answers::Preference(Preference { chosen, rejected }) => said(chosen) + said(rejected),
        };
        (body + answers) as u64
    }

    pub(crate) fn of(body: Body) -> Self {
        let (labels, answers) = (Vec::new(), Answers::Absent);
        let place = RowPlace::default();
        Self { body, labels, answers, client: None, split: None, document: None, place }
    }
}

/// The answers of a row on its way in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// None beside its labels.
    #[default]
    Absent,
    /// Several texts by their labels, one of which is the row's.
    Choice(Vec<(String, String)>),
    /// The one text that should be written.
    Text(String),
    /// Two answers of the assistant, of which one is preferred.
    Preference(Preference),
}
