//! Sequences of tokens, and what is to be predicted of them.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::{Example, Pixels, Result};

/// What turns rows into sequences: a tokenizer's pieces, or an image's pixels.
pub trait EncodeRows: Sync {
    /// The sequences of an example.
    fn encode(&self, example: &Example) -> Result<Vec<Encoded>>;
}

/// One sequence, special tokens included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encoded {
    /// The tokens.
    pub ids: Vec<u32>,
    /// The type of each token (BERT's segment); empty where all are 0.
    pub types: Vec<u32>,
    /// What is to be predicted.
    pub target: Target,
    /// How many words, or pieces where there are no word labels, the cut has cost.
    pub dropped: usize,
    /// The image, where the row is one; the tokens then hold its place. No cache keeps it.
    #[serde(skip)]
    pub pixels: Option<Pixels>,
}

impl Encoded {
    /// The lengths of the sequences that a model runs through to be scored on it.
    pub fn scored_lengths(&self) -> Vec<usize> {
        match &self.target {
            Target::Choice(choice) => {
                let mut carriers = choice.carriers();
                carriers.sort_unstable();
                carriers.dedup();
                let length = |place: usize| choice.prompt + choice.candidates[place].ids.len() - 1;
                carriers.into_iter().map(length).collect()
            }
            Target::One(_) | Target::Many(_) | Target::PerToken(_) | Target::Text(_) => {
                vec![self.ids.len()]
            }
            Target::Preference(pair) => vec![pair.chosen, self.ids.len() - pair.chosen],
        }
    }
}

/// A sequence of which nothing is to be predicted that is known beforehand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSequence {
    /// The tokens, special ones included.
    pub ids: Vec<u32>,
    /// The type of each token (BERT's segment); empty where all are 0.
    pub types: Vec<u32>,
    /// How many pieces the cut has cost.
    pub dropped: usize,
    /// The image, where the row is one; the tokens then hold its place.
    pub pixels: Option<Pixels>,
}

/// What is to be predicted of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// One class.
    One(u32),
    /// A set of codes.
    Many(Vec<u32>),
    /// For each token its label, or nothing.
    PerToken(Vec<Option<u32>>),
    /// One of several answers after a prompt; the sequence continues with the right one.
    Choice(EncodedChoice),
    /// A text after a prompt; the sequence continues with it.
    Text(EncodedText),
    /// Two conversations, end to end in the tokens, of which the first is preferred.
    Preference(EncodedPreference),
}

/// How answers in text are bounded and compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerRules {
    /// What the log-likelihood of an answer is divided by.
    pub length_norm: LengthNorm,
    /// The most tokens of a text that is written.
    pub max_new_tokens: usize,
    /// The token behind a text that is written.
    pub end: Option<u32>,
}

impl Default for AnswerRules {
    /// Likelihoods as they are, and texts of at most 64 tokens.
    fn default() -> Self {
        Self { length_norm: LengthNorm::None, max_new_tokens: 64, end: None }
    }
}

/// What the log-likelihood of an answer is divided by before answers are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LengthNorm {
    /// Nothing: the likelihood of the whole answer.
    #[default]
    None,
    /// The answer's tokens.
    Tokens,
    /// The answer's characters, which do not depend on the tokenizer.
    Characters,
}

/// A sequence of a prompt and the right answer, and the other answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedChoice {
    /// Tokens of the prompt; what follows is the right answer.
    pub prompt: usize,
    /// The label of the right answer.
    pub label: u32,
    /// All answers in the order of labels.
    pub candidates: Vec<Candidate>,
}

impl EncodedChoice {
    /// For each candidate the place of the one whose sequence it is read from. The last token of an
    /// answer is told and never read, so that may be another that begins with all the others of its
    /// tokens: answers of one token all follow from the prompt alone.
    pub fn carriers(&self) -> Vec<usize> {
        let read = |candidate: &Candidate| candidate.ids.len().saturating_sub(1);
        let carrier = |candidate: &Candidate| {
            let begins = |other: &&(usize, &Candidate)| {
                other.1.ids[..read(other.1)].starts_with(&candidate.ids[..read(candidate)])
            };
            let all: Vec<(usize, &Candidate)> = self.candidates.iter().enumerate().collect();
            let longest = all
                .iter()
                .filter(begins)
                .max_by_key(|(place, other)| (read(other), Reverse(*place)));
            longest.map_or(0, |(place, _)| *place)
        };
        self.candidates.iter().map(carrier).collect()
    }
}

/// One of the answers to a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its label.
    pub label: u32,
    /// Its tokens.
    pub ids: Vec<u32>,
    /// What its log-likelihood is divided by.
    pub length: u32,
}

/// Two conversations with the same beginning and different answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedPreference {
    /// Tokens of the one whose answer is preferred; the others are those of the other one.
    pub chosen: usize,
    /// For each token of both the next one, where that is part of an answer.
    pub told: Vec<Option<u32>>,
}

/// A sequence of a prompt and the text that should follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedText {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// The whole text, whatever was cut from its tokens.
    pub reference: String,
}
