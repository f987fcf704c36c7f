//! The golden files of `tools/golden.py`, read into types.

use crate::formula::{Compact, Spec};
use crate::step::Answers;
use fedra_model::{Batch, Head};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// For each token the one that follows it in its sequence: what a language model predicts.
pub fn next_tokens(batch: &Batch) -> Vec<Option<u32>> {
    let mut next: Vec<Option<u32>> = batch.ids().iter().skip(1).copied().map(Some).collect();
    next.push(None);
    batch.packing().last_rows().into_iter().for_each(|row| next[row as usize] = None);
    next
}

/// The cases of a golden file.
pub fn cases<C: DeserializeOwned>(file: &str) -> Vec<C> {
    #[derive(Deserialize)]
    struct File<C> {
        cases: Vec<C>,
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str::<File<C>>(&text).unwrap().cases
}

/// A published model beside this checkout.
pub fn published(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models").join(name)
}

/// A model small enough to be made by formula.
#[derive(Debug, Deserialize)]
pub struct TinyCase {
    /// What the script calls it, in the file of all families.
    #[serde(default)]
    pub family: String,
    pub config: serde_json::Value,
    pub logits: Vec<f64>,
    pub last_hidden_state: Vec<f64>,
    /// In front of block 0, behind block 0, and so on; only in the first case of a file.
    pub hidden: Option<Vec<Vec<f64>>>,
    #[serde(flatten)]
    pub case: Case,
}

/// A published model.
#[derive(Debug, Deserialize)]
pub struct CheckpointCase {
    pub logits: Option<Vec<f64>>,
    pub logits_compact: Option<Logits>,
    /// In front of block 0, behind every block, and the last hidden state.
    pub hidden: Vec<Hidden>,
    /// The first values of the last hidden state of some tokens.
    #[serde(default)]
    pub positions: BTreeMap<usize, Vec<f64>>,
    /// The norm of every 64th row of the last hidden state.
    #[serde(default)]
    pub row_norms: Vec<f64>,
    /// Parameters that the checkpoint lacks, by the library's names.
    #[serde(default)]
    pub head: BTreeMap<String, Spec>,
    #[serde(flatten)]
    pub case: Case,
}

/// What both kinds have.
#[derive(Debug, Deserialize)]
pub struct Case {
    pub task: Task,
    pub ids: Vec<Vec<u32>>,
    /// Images in place of ids that mean something.
    pixels: Option<Spec>,
    labels: Option<Labels>,
    pub attention: Attention,
    pub loss: Option<f64>,
    pub logits_shape: Option<[usize; 2]>,
    pub gradient_norm: Option<f64>,
    #[serde(default)]
    pub gradients: Vec<GradientEntry>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    SequenceClassification,
    MultiLabel,
    TokenClassification,
    ImageClassification,
    MaskedLm,
    CausalLm,
    CausalLmTied,
    Longest,
}

/// -100 is not counted.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Labels {
    PerSequence(Vec<i64>),
    PerToken(Vec<Vec<i64>>),
}

/// Per block, per example: the share of attention that goes to the relevant keys.
#[derive(Debug, Deserialize)]
pub struct Attention {
    pub first_token: Vec<Vec<f64>>,
    pub odd_positions: Vec<Vec<f64>>,
    pub last_query: Option<Vec<Vec<f64>>>,
}

#[derive(Debug, Deserialize)]
pub struct GradientEntry {
    /// The library's name of the parameter.
    pub name: String,
    pub shape: Vec<usize>,
    #[serde(flatten)]
    pub compact: Compact,
    pub first: Vec<f64>,
}

#[derive(Debug, Deserialize)]
pub struct Hidden {
    #[serde(flatten)]
    pub compact: Compact,
    /// The first values of each sequence's first token.
    pub first_tokens: Vec<Vec<f64>>,
}

#[derive(Debug, Deserialize)]
pub struct Logits {
    #[serde(flatten)]
    pub compact: Compact,
    /// The first values of the first rows.
    pub first: Vec<Vec<f64>>,
    pub argmax: Vec<usize>,
    pub max: Vec<f64>,
}

impl Case {
    pub fn batch(&self) -> Batch {
        let batch = Batch::new(&self.ids).unwrap();
        match &self.pixels {
            None => batch,
            Some(pixels) => batch.with_pixels(pixels.values()).unwrap(),
        }
    }

    /// The head that the task needs.
    pub fn head(&self) -> Head {
        let classes = self.logits_shape.map_or(0, |[_, classes]| classes);
        match self.task {
            Task::SequenceClassification | Task::ImageClassification | Task::MultiLabel => {
                Head::Sequence { classes, pooler: true }
            }
            Task::TokenClassification => Head::Tokens { classes },
            Task::MaskedLm | Task::CausalLm | Task::CausalLmTied => Head::Language,
            Task::Longest if self.labels.is_some() => Head::Language,
            Task::Longest => Head::Bare,
        }
    }

    pub fn answers(&self) -> Option<Answers> {
        let class = |label: &i64| u32::try_from(*label).ok();
        Some(match (self.task, self.labels.as_ref()?) {
            (Task::CausalLm | Task::CausalLmTied | Task::Longest, _) => {
                Answers::Classes(next_tokens(&self.batch()))
            }
            (Task::MultiLabel, Labels::PerToken(rows)) => {
                Answers::Labels(rows.iter().flatten().map(|label| *label as f32).collect())
            }
            (_, Labels::PerToken(rows)) => {
                Answers::Classes(rows.iter().flatten().map(class).collect())
            }
            (_, Labels::PerSequence(labels)) => {
                Answers::Classes(labels.iter().map(class).collect())
            }
        })
    }
}
