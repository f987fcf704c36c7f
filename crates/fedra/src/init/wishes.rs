//! What somebody decided, and what is proposed for the rest.

use std::path::PathBuf;

use fedra_data::{Missing, Task};

/// What somebody decided; the rest is proposed.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// The task to learn.
    pub task: Option<Task>,
    /// The column that is read; two are a pair.
    pub text: Vec<String>,
    /// The column with the label, or with the text to write.
    pub label: Option<String>,
    /// The column that says who holds a row.
    pub client: Option<String>,
    /// Over how many clients rows are partitioned, in place of a column.
    pub clients: Option<usize>,
    /// A file with rows to report on.
    pub test: Option<PathBuf>,
    /// A folder in Hugging Face layout, or a GGUF file.
    pub model: Option<PathBuf>,
    /// A shape with fresh weights.
    pub preset: Option<String>,
    /// A tokenizer for a preset.
    pub tokenizer: Option<PathBuf>,
    /// The method.
    pub method: Option<String>,
    /// How many rounds.
    pub rounds: Option<u32>,
    /// The most that a private run may spend.
    pub epsilon: Option<f64>,
    /// What becomes of rows without a text or a label.
    pub missing: Option<Missing>,
}

/// A value and why it was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen<T> {
    /// The value.
    pub value: T,
    /// The reason, as a comment says it.
    pub why: String,
}

impl<T> Chosen<T> {
    pub(super) fn new(value: T, why: impl Into<String>) -> Self {
        Self { value, why: why.into() }
    }

    pub(super) fn wished(value: T) -> Self {
        Self::new(value, "as requested")
    }
}

/// A file, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFile {
    /// The client; none where the rows say it themselves, or nobody does.
    pub client: Option<String>,
    /// Where it is.
    pub path: PathBuf,
}
