//! The classes a classification head tells apart, as `id2label`, `label2id` and `problem_type`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::fields::Fields;
use crate::error::ModelError;

/// Most classes a head may have.
const MAX_LABELS: usize = 1 << 20;

/// Names of the classes, in the order of the head's outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// One name per output.
    pub names: Vec<String>,
    /// How outputs become an answer, when the file says.
    pub problem: Option<Problem>,
}

/// How the outputs of a classification head are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Exactly one class is right.
    SingleLabel,
    /// Any number of classes is right.
    MultiLabel,
    /// The outputs are numbers.
    Regression,
}

impl Problem {
    pub(crate) const ALL: [Self; 3] = [Self::SingleLabel, Self::MultiLabel, Self::Regression];

    /// The value of `problem_type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SingleLabel => "single_label_classification",
            Self::MultiLabel => "multi_label_classification",
            Self::Regression => "regression",
        }
    }
}

impl Labels {
    /// The name that stands for no name: the class's number.
    pub fn numbered(class: usize) -> String {
        format!("LABEL_{class}")
    }

    /// Whether the classes have names, and not only their numbers.
    pub fn are_named(&self) -> bool {
        self.names.iter().enumerate().any(|(class, name)| *name != Self::numbered(class))
    }

    /// Reads the labels; absent when the file names none.
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Option<Self>, ModelError> {
        let problem = match fields.text("problem_type")? {
            None => None,
            Some(name) => {
                let known = Problem::ALL.into_iter().find(|problem| problem.name() == name);
                let names = Problem::ALL.map(Problem::name).join(", ");
                Some(known.ok_or_else(|| fields.refuse("problem_type", names))?)
            }
        };
        let names = match fields.object("id2label")? {
            Some(map) => named(map).ok_or_else(|| {
                fields.refuse("id2label", "names for the classes 0, 1, 2, ... without a gap")
            })?,
            None if fields.get("num_labels").is_some() => {
                let count = fields.size("num_labels", 1..=MAX_LABELS)?;
                (0..count).map(Self::numbered).collect()
            }
            None => return Ok(None),
        };
        let distinct: BTreeSet<&String> = names.iter().collect();
        if distinct.len() < names.len() {
            return Err(fields.refuse("id2label", "a different name for each class"));
        }
        if let Some(map) = fields.object("label2id")? {
            let agrees = |(name, class): (&String, &Value)| {
                let class = class.as_u64().and_then(|class| names.get(class as usize));
                class == Some(name)
            };
            if !map.iter().all(agrees) {
                return Err(fields.refuse("label2id", "the inverse of id2label"));
            }
        }
        Ok(Some(Self { names, problem }))
    }

    pub(crate) fn write(&self, object: &mut Map<String, Value>) {
        let classes = || self.names.iter().enumerate();
        let forward: Map<_, _> = classes().map(|(i, name)| (i.to_string(), json!(name))).collect();
        let backward: Map<_, _> = classes().map(|(i, name)| (name.clone(), json!(i))).collect();
        object.insert("id2label".into(), Value::Object(forward));
        object.insert("label2id".into(), Value::Object(backward));
        object.remove("num_labels");
        match self.problem {
            Some(problem) => object.insert("problem_type".into(), json!(problem.name())),
            None => object.remove("problem_type"),
        };
    }
}

/// The names of classes `0..n`, if the map has exactly those. Python writes the numbers as strings.
fn named(map: &Map<String, Value>) -> Option<Vec<String>> {
    if map.is_empty() || map.len() > MAX_LABELS {
        return None;
    }
    (0..map.len()).map(|class| Some(map.get(&class.to_string())?.as_str()?.to_owned())).collect()
}
