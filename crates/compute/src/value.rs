//! A tensor on its way through the model.

use crate::error::ComputeError;
use crate::sequences::Sequences;
use crate::tensor::Tensor;

/// A tensor on the way through the model, and where its gradient will gather if it wants one.
#[derive(Clone, Debug)]
pub struct Value {
    /// The numbers.
    pub tensor: Tensor,
    pub(crate) slot: Option<Slot>,
    pub(crate) sequences: Option<Sequences>,
}

impl Value {
    /// Rows that nobody has divided into sequences yet.
    pub(crate) fn new(tensor: Tensor, slot: Option<Slot>) -> Self {
        Self { tensor, slot, sequences: None }
    }

    /// Where sequences begin among the rows, if whoever made the value said so.
    pub fn sequences(&self) -> Option<&Sequences> {
        self.sequences.as_ref()
    }

    /// The same value with its rows divided into sequences; what is computed from it row by row
    /// inherits them.
    pub fn in_sequences(self, sequences: &Sequences) -> Result<Self, ComputeError> {
        let (found, expected) = (sequences.rows(), self.tensor.rows());
        ComputeError::expect("sequences", "number of rows", found, expected)?;
        Ok(Self { sequences: Some(sequences.clone()), ..self })
    }

    /// The same value, whose rows are those of another.
    pub(crate) fn with_rows_of(self, other: &Self) -> Self {
        Self { sequences: other.sequences.clone(), ..self }
    }
}

/// Where a value's gradient gathers during backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) usize);
