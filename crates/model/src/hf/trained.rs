//! The classification head that a folder brings, and whether a task's labels are its outputs.
//!
//! Outputs are known by their names in `id2label` and never by their order: a head trained on
//! `positive, negative` and a table whose labels sort the other way belong together row by row.
//!
//! ```text
//! every label of the task is an output     -> Kept: all outputs of the head, in its order
//! the head has other or too few outputs    -> Fresh, with both lists
//! as many outputs, but they have no names  -> Unnamed: nobody can know which is which
//! ```

use std::fmt;

use fedra_plan::{Layer, ParamId, Part, Role};

use super::checkpoint::Checkpoint;
use super::config::{self, Labels, Problem};
use super::names::{Answers, Architecture, Meaning};
use crate::error::ModelError;

/// The classification head of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrainedHead {
    /// There is none.
    Absent,
    /// There is one, and the folder says that it answers another question.
    OtherTask(&'static str),
    /// Its outputs have names, here in their order.
    Named(Vec<String>),
    /// It has this many outputs, and the folder has only numbers for them.
    Numbered(usize),
}

/// How the labels of a task relate to a trained head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadFit {
    /// The head answers with these, in the order of its rows; all labels of the task are among
    /// them.
    Kept(Vec<String>),
    /// The head has to be reinitialised.
    Fresh(WhyFresh),
    /// There are as many outputs as labels, and nothing says which output is which label.
    Unnamed(usize),
}

/// Why a head is reinitialised though the folder may have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyFresh {
    /// The folder has none.
    Absent,
    /// The folder's answers another question: what it was made for.
    OtherTask(&'static str),
    /// Its outputs are not the task's labels.
    OtherLabels {
        /// What the task asks for.
        wanted: Vec<String>,
        /// What the head answers with.
        stored: Vec<String>,
    },
    /// Whoever loads it wants a new one.
    Asked,
}

impl fmt::Display for WhyFresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("the folder has none"),
            Self::OtherTask(made_for) => write!(f, "the folder's head is for {made_for}"),
            Self::OtherLabels { wanted, stored } => write!(
                f,
                "the labels are {}; the folder's head answers with {}",
                listed(wanted),
                listed(stored)
            ),
            Self::Asked => f.write_str("as requested"),
        }
    }
}

impl TrainedHead {
    /// Whether the head answers with these labels. `LABEL_3`, or no name at all, is the number 3,
    /// and no other label.
    pub fn fit(&self, labels: &[String]) -> HeadFit {
        let other = |stored: Vec<String>| {
            let wanted = labels.to_vec();
            HeadFit::Fresh(WhyFresh::OtherLabels { wanted, stored })
        };
        let all_among = |names: &[String]| labels.iter().all(|label| names.contains(label));
        match self {
            Self::Absent => HeadFit::Fresh(WhyFresh::Absent),
            Self::OtherTask(made_for) => HeadFit::Fresh(WhyFresh::OtherTask(made_for)),
            Self::Named(names) if all_among(names) => HeadFit::Kept(names.clone()),
            Self::Named(names) => other(names.clone()),
            Self::Numbered(count) => {
                let spelt: Vec<String> = (0..*count).map(Labels::numbered).collect();
                let bare: Vec<String> = (0..*count).map(|class| class.to_string()).collect();
                if all_among(&spelt) {
                    HeadFit::Kept(spelt)
                } else if all_among(&bare) {
                    HeadFit::Kept(bare)
                } else if labels.len() == *count {
                    HeadFit::Unnamed(*count)
                } else {
                    other(spelt)
                }
            }
        }
    }
}

impl Checkpoint {
    /// The head that a task with such answers could go on with. A head that contradicts its own
    /// labels is refused.
    pub fn trained_head(&self, answers: Answers) -> Result<TrainedHead, ModelError> {
        let tensor = |part| {
            let id = ParamId::new(Layer::Head, Role::Classifier, part);
            let family = self.config().family;
            let mut names = self.weights().names();
            names.find(|name| family.meaning(name) == Meaning::Parameters(vec![id]))
        };
        let Some(weight) = tensor(Part::Weight) else { return Ok(TrainedHead::Absent) };
        let made_for = self.config().architecture().map(Architecture::answers);
        match made_for {
            Some(Some(made_for)) if made_for != answers => {
                return Ok(TrainedHead::OtherTask(made_for.name()));
            }
            Some(_) | None => {}
        }
        let labels = self.config().labels.as_ref();
        if labels.is_some_and(|labels| labels.problem == Some(Problem::Regression)) {
            return Ok(TrainedHead::OtherTask("regression"));
        }
        let dims = |name| self.weights().info(name).map_or(&[][..], |info| info.shape);
        let &[rows, _] = dims(weight) else {
            let found = format!("shape {:?}", dims(weight));
            return Err(self.head_error(weight, found, "a row for each class".into()));
        };
        if let Some(bias) = tensor(Part::Bias)
            && dims(bias) != [rows]
        {
            let found = format!("shape {:?}", dims(bias));
            return Err(self.head_error(bias, found, format!("[{rows}], as {weight:?} has rows")));
        }
        match labels {
            Some(labels) if labels.names.len() != rows => {
                let found = format!("{rows} rows");
                let names = labels.names.len();
                let expected = format!("the {names} classes of id2label in {}", config::FILE);
                Err(self.head_error(weight, found, expected))
            }
            Some(labels) if labels.are_named() => Ok(TrainedHead::Named(labels.names.clone())),
            Some(_) | None => Ok(TrainedHead::Numbered(rows)),
        }
    }

    fn head_error(&self, tensor: &str, found: String, expected: String) -> ModelError {
        ModelError::tensor(self.weights().path_of(tensor), tensor, found, expected)
    }
}

/// The first few of many names, with what could steer a terminal spelt out.
pub fn listed(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let shown: Vec<String> =
        names.iter().take(SHOWN).map(|name| name.escape_debug().to_string()).collect();
    let more =
        if names.len() > SHOWN { format!(", ... ({} in all)", names.len()) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(head: &TrainedHead, labels: &str, expected: &HeadFit) {
        assert_eq!(head.fit(&names(labels)), *expected);
    }

    #[test]
    fn a_head_is_known_by_the_names_of_its_outputs() {
        let head = TrainedHead::Named(names("positive negative neutral"));
        let kept = HeadFit::Kept(names("positive negative neutral"));
        check(&head, "negative neutral positive", &kept);
        check(&head, "negative positive", &kept);
        for other in ["negative positive mixed", "Negative Positive Neutral", "a b c d"] {
            let (wanted, stored) = (names(other), names("positive negative neutral"));
            let why = WhyFresh::OtherLabels { wanted, stored };
            check(&head, other, &HeadFit::Fresh(why));
        }
    }

    #[test]
    fn a_number_is_a_name_only_for_the_same_number() {
        let head = TrainedHead::Numbered(11);
        check(&head, "0 1 10 2", &HeadFit::Kept((0..11).map(|n| n.to_string()).collect()));
        check(&head, "LABEL_10", &HeadFit::Kept((0..11).map(Labels::numbered).collect()));
        check(&TrainedHead::Numbered(2), "no yes", &HeadFit::Unnamed(2));
        let why =
            WhyFresh::OtherLabels { wanted: names("a b c"), stored: names("LABEL_0 LABEL_1") };
        check(&TrainedHead::Numbered(2), "a b c", &HeadFit::Fresh(why));
        check(&TrainedHead::Numbered(2), "1 2", &HeadFit::Unnamed(2));
    }

    #[test]
    fn the_reason_names_both_lists_shortened_and_printable() {
        let wanted = vec!["a\u{1b}[31m".to_owned()];
        let stored = (0..28).map(|n| format!("e{n}")).collect();
        assert_eq!(
            WhyFresh::OtherLabels { wanted, stored }.to_string(),
            "the labels are a\\u{1b}[31m; the folder's head answers with e0, e1, e2, e3, e4, e5, \
             ... (28 in all)"
        );
    }
}
