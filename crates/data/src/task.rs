//! The task to learn from a table, and the names of its labels.
//!
//! Nine task names exist because experiment files use them; they come down to four shapes of label
//! and two forms of answer (logits of labels, or text), and everything below this file only asks for
//! those.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The task of an experiment, by the name it has in a file.
    #[derive(PartialOrd, Ord)]
    pub enum Task {
        /// Problem, test and treatment spans, one BIO tag a word (i2b2 2010).
        Concepts = "concepts",
        /// Several diagnosis codes for a note (MIMIC-III).
        Diagnosis = "diagnosis",
        /// One class for a text.
        Classes = "classes",
        /// One tag a word, any tag set.
        Tokens = "tokens",
        /// The next token; no labels.
        Language = "language",
        /// One of several answers, each a text whose likelihood after a prompt is compared.
        Choice = "choice",
        /// A text that is written after a prompt.
        Generation = "generation",
        /// What the assistant says in conversations.
        Chat = "chat",
        /// Which of two answers of the assistant is preferred.
        Preference = "preference",
    }
}

/// What a model answers a task with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// Logits of labels, from a head of their own.
    Labels,
    /// Tokens of the vocabulary, from the language head.
    Text,
}

/// The shape of a task's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelShape {
    /// Exactly one for an example.
    One,
    /// Any number for an example, without order.
    Many,
    /// One for every word of an example.
    PerWord,
    /// None at all.
    Absent,
}

impl Task {
    /// The shape of its labels.
    pub fn shape(self) -> LabelShape {
        match self {
            Self::Concepts | Self::Tokens => LabelShape::PerWord,
            Self::Diagnosis => LabelShape::Many,
            Self::Classes | Self::Choice => LabelShape::One,
            Self::Language | Self::Generation | Self::Chat | Self::Preference => LabelShape::Absent,
        }
    }

    /// What it is answered with.
    pub fn answer_form(self) -> AnswerForm {
        match self {
            Self::Concepts | Self::Diagnosis | Self::Classes | Self::Tokens => AnswerForm::Labels,
            Self::Language | Self::Choice | Self::Generation | Self::Chat | Self::Preference => {
                AnswerForm::Text
            }
        }
    }
}

/// The labels of a table, each with its index.
///
/// The order depends on the set alone, never on the order of rows: two sites that see the same
/// labels number them alike. `O` comes first and a type's `B-` directly before its `I-`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelSet {
    names: Vec<String>,
}

impl LabelSet {
    /// The set of these names, sorted; repeats are dropped.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort_by(|a, b| order(a).cmp(&order(b)));
        names.dedup();
        Self { names }
    }

    /// The set of these tags, with `O` and the missing half of every `B-`/`I-` pair added.
    pub fn of_tags(tags: impl IntoIterator<Item = String>) -> Self {
        let mut names = vec!["O".to_owned()];
        for tag in tags {
            if let Some(kind) = tag.strip_prefix("B-").or_else(|| tag.strip_prefix("I-")) {
                names.push(format!("B-{kind}"));
                names.push(format!("I-{kind}"));
            }
            names.push(tag);
        }
        Self::new(names)
    }

    /// The index of a name.
    pub fn index(&self, name: &str) -> Option<u32> {
        let found = self.names.binary_search_by(|probe| order(probe.as_str()).cmp(&order(name)));
        found.ok().map(|index| index as u32)
    }

    /// The name at an index.
    ///
    /// # Panics
    /// When the index is not of this set.
    pub fn name(&self, index: u32) -> &str {
        &self.names[index as usize]
    }

    /// All names in order of their index.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// `O` first, then by type, `B-` before `I-`; names without a prefix sort as themselves.
fn order(name: &str) -> (bool, &str, &str) {
    match name.split_once('-') {
        Some((prefix @ ("B" | "I" | "E" | "S"), kind)) => (true, kind, prefix),
        Some(_) | None => (name != "O", name, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_set_is_closed_and_does_not_depend_on_order() {
        let set = LabelSet::of_tags(["I-test", "B-problem", "O"].map(String::from));
        assert_eq!(set.names(), ["O", "B-problem", "I-problem", "B-test", "I-test"]);
        assert_eq!(set.index("B-test"), Some(3));
        assert_eq!(set.index("B-drug"), None);
        assert_eq!(set, LabelSet::of_tags(["O", "B-test", "I-problem"].map(String::from)));
    }

    #[test]
    fn every_name_is_found_at_its_index() {
        let set = LabelSet::new(["4019", "V-3", "Sci/Tech", "O", "B-x", "x"].map(String::from));
        for (index, name) in set.names().iter().enumerate() {
            assert_eq!(set.index(name), Some(index as u32), "{name}");
        }
    }
}
