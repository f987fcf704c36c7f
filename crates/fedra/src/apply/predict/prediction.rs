//! What a model says about one text.

use fedra_client::{Logits, sigmoid, softmax};
use fedra_data::{Body, WordPlace, spans};
use serde::{Deserialize, Serialize};

use crate::apply::trained_model::{Reading, TrainedModel};

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Prediction {
    /// Exactly one label.
    One {
        /// All labels, the likeliest first; of equals the earlier output.
        labels: Vec<LabelProbability>,
        /// Pieces of the text that were cut away and not seen.
        truncated: usize,
    },
    /// Any number of labels.
    Several {
        /// All labels, the likeliest first.
        labels: Vec<LabelProbability>,
        /// How many of them are answered.
        answered: usize,
        /// Pieces of the text that were cut away and not seen.
        truncated: usize,
    },
    /// Spans of a text, or the label of each of its words where labels mark no spans.
    Spans {
        /// In the order of the text.
        spans: Vec<FoundSpan>,
        /// The tag of each word, where words were given one by one.
        tags: Option<Vec<String>>,
    },
}

/// A label and how likely it is.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelProbability {
    /// Its name.
    pub label: String,
    /// From 0 to 1.
    pub probability: f64,
}

/// A typed part of a text: `start..end` in characters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundSpan {
    /// The first character, from 0.
    pub start: usize,
    /// The character behind the last.
    pub end: usize,
    /// Its type.
    pub label: String,
    /// The text itself.
    pub text: String,
    /// The mean over its words of the probability of their tags.
    pub probability: f32,
}

impl Prediction {
    /// Reads what a head says.
    pub(super) fn of(model: &TrainedModel, logits: &Logits, body: &Body, threshold: f64) -> Self {
        match (logits, model.reading) {
            (Logits::OfText { logits, dropped }, Reading::SeveralLabels) => {
                let labels = ranked(&model.labels, sigmoid(logits));
                let answered = labels.iter().filter(|one| one.probability > threshold).count();
                Self::Several { labels, answered, truncated: *dropped }
            }
            (Logits::OfText { logits, dropped }, Reading::OneLabel | Reading::Words) => {
                Self::One { labels: ranked(&model.labels, softmax(logits)), truncated: *dropped }
            }
            (Logits::OfWords { words, logits }, _) => of_words(model, (words, logits), body),
        }
    }

    /// Pieces of the text that were cut away and not seen.
    pub fn truncated(&self) -> usize {
        match self {
            Self::One { truncated, .. } | Self::Several { truncated, .. } => *truncated,
            Self::Spans { .. } => 0,
        }
    }
}

/// Labels by falling probability; equals stay in the order of outputs.
fn ranked(names: &[String], probabilities: Vec<f64>) -> Vec<LabelProbability> {
    let named = names.iter().zip(probabilities);
    let mut labels: Vec<LabelProbability> = named
        .map(|(label, probability)| LabelProbability { label: label.clone(), probability })
        .collect();
    labels.sort_by(|left, right| right.probability.total_cmp(&left.probability));
    labels
}

fn of_words(
    model: &TrainedModel,
    (words, logits): (&[WordPlace], &[f32]),
    body: &Body,
) -> Prediction {
    let letters: Vec<char> = body.to_text().chars().collect();
    let answers: Vec<(&str, f64)> = logits
        .chunks_exact(model.labels.len())
        .map(|row| {
            let higher = |best, class| if row[class] > row[best] { class } else { best };
            let best = (0..row.len()).fold(0, higher);
            (model.labels[best].as_str(), softmax(row)[best])
        })
        .collect();
    let part = |first: usize, last: usize, label: &str| {
        let (start, end) = (words[first].start, words[last].end.max(words[first].start));
        let sum: f64 = answers[first..=last].iter().map(|(_, probability)| probability).sum();
        FoundSpan {
            start,
            end,
            label: label.to_owned(),
            text: letters[start..end].iter().collect(),
            probability: (sum / (last - first + 1) as f64) as f32,
        }
    };
    let tags = answers.iter().map(|(tag, _)| *tag);
    let found = if model.marks_spans() {
        spans(tags.clone()).iter().map(|span| part(span.start, span.end, span.kind)).collect()
    } else {
        tags.clone().enumerate().map(|(word, tag)| part(word, word, tag)).collect()
    };
    let given = match body {
        Body::Words(_) => Some(tags.map(str::to_owned).collect()),
        Body::Text(_) | Body::Pair(..) | Body::Image(_) | Body::Conversation(_) => None,
    };
    Prediction::Spans { spans: found, tags: given }
}
