//! One row of a table: what is read and what is to be said of it.

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{DataError, Image, Message, Preference, RowPlace};

/// One row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// What is read.
    pub body: Body,
    /// What is to be said about it.
    pub labels: Labels,
    /// Which party owns it, where the source says so.
    pub client: Option<String>,
    /// Which part of the data it belongs to, where the source says so.
    pub split: Option<Split>,
    /// What it must not be separated from: rows of one document or patient share this name.
    pub document: Option<String>,
    /// Where it stood.
    pub place: RowPlace,
}

/// The input of an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// Running text.
    Text(String),
    /// Two texts that belong together, such as a question and where to look for its answer.
    Pair(String, String),
    /// Text already cut into words, where labels are given word by word.
    Words(Vec<String>),
    /// An image.
    Image(Image),
    /// A conversation.
    Conversation(Vec<Message>),
}

/// The labels of an example, as indices into the table's [`LabelSet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// The one class.
    One(u32),
    /// The set of codes, ascending.
    Many(Vec<u32>),
    /// One tag a word.
    PerWord(Vec<u32>),
    /// Nothing.
    Absent,
    /// The right one of several answers.
    Choice(Choice),
    /// What should be written.
    Text(String),
    /// Two answers, of which one is preferred.
    Preference(Preference),
}

impl Labels {
    /// The labels of the whole and of its words; none where the answer is a text.
    pub fn numbers(&self) -> &[u32] {
        match self {
            Self::One(label) | Self::Choice(Choice { label, .. }) => std::slice::from_ref(label),
            Self::Many(labels) | Self::PerWord(labels) => labels,
            Self::Absent | Self::Text(_) | Self::Preference(_) => &[],
        }
    }
}

/// The answers that a prompt may have, and which is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The label of the right one.
    pub label: u32,
    /// All of them, each with its label, in the order of labels.
    pub candidates: Vec<(u32, String)>,
}

/// A part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// What is learnt from.
    Train,
    /// What decisions are made on.
    Validation,
    /// What is reported.
    Test,
}

impl Split {
    /// The name that a file of ours gives it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }

    /// The split of a name as files write it (`dev`, `devel`, `val`, `valid` mean validation).
    pub fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "train" | "training" => Some(Self::Train),
            "validation" | "valid" | "val" | "dev" | "devel" => Some(Self::Validation),
            "test" | "testing" => Some(Self::Test),
            _ => None,
        }
    }
}

impl Body {
    /// An error about it with its place; an image in a file of its own is named by that file.
    pub fn blamed(&self, error: DataError, (file, line): (&Path, u64)) -> DataError {
        let own = if let Self::Image(image) = self { image.path() } else { None };
        let (file, line) = own.map_or((file, line), |own| (own, 0));
        error.at(&RowPlace::new(file.into(), line))
    }

    /// Whether there is nothing in it to read.
    pub fn is_blank(&self) -> bool {
        let is_blank = |text: &String| text.trim().is_empty();
        match self {
            Self::Text(text) => is_blank(text),
            Self::Pair(first, second) => is_blank(first) && is_blank(second),
            Self::Words(words) => words.iter().all(is_blank),
            Self::Image(_) => false,
            Self::Conversation(messages) => {
                messages.iter().all(|message| is_blank(&message.content))
            }
        }
    }

    /// The image, where it is one.
    pub fn into_image(self) -> Option<Image> {
        match self {
            Self::Image(image) => Some(image),
            Self::Text(_) | Self::Pair(..) | Self::Words(_) | Self::Conversation(_) => None,
        }
    }

    /// The body as running text; words are joined by single spaces, two texts and messages by a line end. An image has none.
    pub fn to_text(&self) -> String {
        self.as_text().into_owned()
    }

    /// The same without a copy where it is running text already.
    pub fn as_text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Pair(first, second) => Cow::Owned(format!("{first}\n{second}")),
            Self::Words(words) => Cow::Owned(words.join(" ")),
            Self::Image(_) => Cow::Borrowed(""),
            Self::Conversation(messages) => {
                let texts: Vec<&str> =
                    messages.iter().map(|message| message.content.as_str()).collect();
                Cow::Owned(texts.join("\n"))
            }
        }
    }
}
