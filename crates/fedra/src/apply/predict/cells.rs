//! What an answer has in its columns, whatever it is written as.
//!
//! | key or column | one label | several labels | spans |
//! | --- | --- | --- | --- |
//! | `predicted` | its name | a list of names | a list of spans, in JSON |
//! | `probability` | its probability | a list, in a table alone | inside each span |
//! | `probabilities` | of the likeliest labels, in JSON | the same | |
//! | `tags` | | | of words that were given one by one; not in a table |
//! | `truncated` | pieces that were not seen, if any; not in a table | the same | |

use serde_json::json;

use super::prediction::{LabelProbability, Prediction};
use crate::apply::trained_model::Reading;

/// Labels in `probabilities` unless another number is asked for.
const USUAL_TOP: usize = 5;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Absent,
    Text(String),
    Number(f32),
    Texts(Vec<String>),
    Numbers(Vec<f32>),
    Json(String),
}

/// What all values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Texts,
    Numbers,
}

impl Cell {
    /// The value in JSON; what is no number is null.
    pub(super) fn to_json(&self) -> String {
        match self {
            Self::Absent => "null".to_owned(),
            Self::Text(text) => as_json(text),
            Self::Number(number) => as_json(number),
            Self::Texts(texts) => as_json(texts),
            Self::Numbers(numbers) => as_json(numbers),
            Self::Json(text) => text.clone(),
        }
    }

    /// The value in a cell of CSV: lists are joined by `;` where that can be read back.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Absent => String::new(),
            Self::Text(text) => text.clone(),
            Self::Texts(texts) if texts.iter().all(|text| !text.contains(';')) => texts.join(";"),
            Self::Numbers(numbers) => {
                numbers.iter().map(as_json).collect::<Vec<String>>().join(";")
            }
            Self::Texts(_) | Self::Number(_) | Self::Json(_) => self.to_json(),
        }
    }
}

/// The columns of answers in a table.
pub(super) fn columns(answers: Reading, top: Option<usize>) -> Vec<(&'static str, Kind)> {
    let (predicted, probability) = match answers {
        Reading::OneLabel => (Kind::Text, Kind::Number),
        Reading::SeveralLabels => (Kind::Texts, Kind::Numbers),
        Reading::Words => return vec![("predicted", Kind::Text)],
    };
    let top = top.filter(|top| *top > 0).map(|_| ("probabilities", Kind::Text));
    [("predicted", predicted), ("probability", probability)].into_iter().chain(top).collect()
}

/// The cells of an answer in a table, one for each of [`columns`].
pub(super) fn in_table(prediction: &Prediction, top: Option<usize>) -> Vec<Cell> {
    let (mut cells, labels) = match prediction {
        Prediction::One { labels, .. } => {
            let best = labels.first().map(|one| [Cell::Text(one.label.clone()), number(one)]);
            (best.unwrap_or([Cell::Absent, Cell::Absent]).to_vec(), labels)
        }
        Prediction::Several { labels, answered, .. } => {
            let told = &labels[..*answered];
            let numbers = told.iter().map(|one| one.probability as f32).collect();
            (vec![names(told), Cell::Numbers(numbers)], labels)
        }
        Prediction::Spans { spans, .. } => return vec![Cell::Json(as_json(spans))],
    };
    cells.extend(top.filter(|top| *top > 0).map(|top| likeliest(labels, top)));
    cells
}

/// The keys of an answer in a JSON object, and their values.
pub(super) fn in_object(prediction: &Prediction, top: Option<usize>) -> Vec<(&'static str, Cell)> {
    let mut fields = Vec::new();
    let top = top.unwrap_or(USUAL_TOP);
    let shown = match prediction {
        Prediction::One { labels, .. } => {
            if let Some(best) = labels.first() {
                fields.push(("predicted", Cell::Text(best.label.clone())));
                fields.push(("probability", number(best)));
            }
            Some((labels, top))
        }
        Prediction::Several { labels, answered, .. } => {
            fields.push(("predicted", names(&labels[..*answered])));
            // What is answered always has its probability.
            Some((labels, top.max(*answered)))
        }
        Prediction::Spans { spans, tags } => {
            fields.push(("predicted", Cell::Json(as_json(spans))));
            fields.extend(tags.clone().map(|tags| ("tags", Cell::Texts(tags))));
            None
        }
    };
    let shown = shown.filter(|(_, top)| *top > 0);
    fields.extend(shown.map(|(labels, top)| ("probabilities", likeliest(labels, top))));
    if prediction.truncated() > 0 {
        fields.push(("truncated", Cell::Json(prediction.truncated().to_string())));
    }
    fields
}

fn number(one: &LabelProbability) -> Cell {
    Cell::Number(one.probability as f32)
}

fn names(labels: &[LabelProbability]) -> Cell {
    Cell::Texts(labels.iter().map(|one| one.label.clone()).collect())
}

fn likeliest(labels: &[LabelProbability], top: usize) -> Cell {
    let one = |one: &LabelProbability| format!("{}: {}", json!(one.label), number(one).to_json());
    let all: Vec<String> = labels.iter().take(top).map(one).collect();
    Cell::Json(format!("{{{}}}", all.join(", ")))
}

/// A value in JSON; f32 has fewer digits this way than as part of a [`serde_json::Value`].
fn as_json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}
