//! What a backward pass brings back.

use crate::cpu::elementwise::add_into;
use crate::error::ComputeError;
use crate::tensor::Tensor;
use fedra_plan::ParamId;
use std::collections::BTreeMap;

/// Gradients of the trained parameters, and of the inputs that asked for one.
#[derive(Clone, Debug, Default)]
pub struct Gradients {
    weights: BTreeMap<ParamId, Gradient>,
    inputs: BTreeMap<usize, Tensor>,
}

impl Gradients {
    /// The gradient of a parameter; `None` when the loss does not depend on it.
    pub fn get(&self, id: ParamId) -> Option<&Gradient> {
        self.weights.get(&id)
    }

    /// All parameter gradients in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ParamId, &Gradient)> {
        self.weights.iter().map(|(id, gradient)| (*id, gradient))
    }

    /// All parameter gradients in order, to be written (clipped, noised, corrected).
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (ParamId, &mut Gradient)> {
        self.weights.iter_mut().map(|(id, gradient)| (*id, gradient))
    }

    /// The gradient of an input made with [`Tape::input`](crate::Tape::input).
    pub fn of_input(&self, input: &crate::Value) -> Option<&Tensor> {
        self.inputs.get(&input.slot?.0)
    }

    /// Sum of squares over all parameter gradients.
    pub fn sum_of_squares(&self) -> f64 {
        self.weights.values().map(|gradient| gradient.values().sum_of_squares()).sum()
    }

    /// Adds the gradients of another batch.
    pub fn add(&mut self, other: Self) -> Result<(), ComputeError> {
        for (id, gradient) in other.weights {
            match self.weights.remove(&id) {
                None => drop(self.weights.insert(id, gradient)),
                Some(mine) => drop(self.weights.insert(id, mine.plus(&gradient)?)),
            }
        }
        Ok(())
    }

    pub(crate) fn take(&mut self, id: ParamId) -> Option<Gradient> {
        self.weights.remove(&id)
    }

    pub(crate) fn put(&mut self, id: ParamId, gradient: Gradient) {
        self.weights.insert(id, gradient);
    }

    pub(crate) fn put_input(&mut self, slot: usize, gradient: Tensor) {
        self.inputs.insert(slot, gradient);
    }
}

/// A parameter's gradient: every element, or only the rows that were looked up.
#[derive(Clone, Debug)]
pub enum Gradient {
    /// Every element.
    Dense(Tensor),
    /// Some rows of a table; all others are zero.
    Rows {
        /// Rows of the whole table.
        of: usize,
        /// Which rows, ascending.
        rows: Vec<u32>,
        /// Their gradients, one row each.
        values: Tensor,
    },
}

impl Gradient {
    /// The stored numbers, whatever they cover.
    pub fn values(&self) -> &Tensor {
        match self {
            Self::Dense(values) | Self::Rows { values, .. } => values,
        }
    }

    /// The stored numbers, to be written.
    pub fn values_mut(&mut self) -> &mut Tensor {
        match self {
            Self::Dense(values) | Self::Rows { values, .. } => values,
        }
    }

    /// Every element on the host, zeros included.
    pub fn to_dense(&self) -> Vec<f32> {
        match self {
            Self::Dense(tensor) => tensor.data().to_vec(),
            Self::Rows { of, rows, values } => {
                let mut dense = vec![0.0; of * values.cols()];
                scatter(&mut dense, rows, values);
                dense
            }
        }
    }

    /// The sum of two gradients of one parameter; stays sparse only when both touch the same rows.
    pub(crate) fn plus(self, other: &Self) -> Result<Self, ComputeError> {
        let cols = (self.values().cols(), other.values().cols());
        ComputeError::expect("gradient sum", "width", cols.0, cols.1)?;
        match (self, other) {
            (
                Self::Rows { of, rows, mut values },
                Self::Rows { rows: theirs, values: more, .. },
            ) if rows == *theirs => {
                add_into(values.data_mut(), more.data());
                Ok(Self::Rows { of, rows, values })
            }
            (Self::Dense(mut sum), Self::Dense(more)) => {
                ComputeError::expect("gradient sum", "shape", sum.shape(), more.shape())?;
                add_into(sum.data_mut(), more.data());
                Ok(Self::Dense(sum))
            }
            (Self::Dense(mut sum), Self::Rows { rows, values, .. }) => {
                scatter(sum.data_mut(), rows, values);
                Ok(Self::Dense(sum))
            }
            (Self::Rows { rows, values, .. }, Self::Dense(more)) => {
                let mut sum = more.clone();
                scatter(sum.data_mut(), &rows, &values);
                Ok(Self::Dense(sum))
            }
            (Self::Rows { of, rows, values }, Self::Rows { rows: theirs, values: more, .. }) => {
                Ok(merge(of, (&rows, &values), (theirs, more)))
            }
        }
    }
}

/// Adds each gradient row to its row of the table.
fn scatter(table: &mut [f32], rows: &[u32], values: &Tensor) {
    let cols = values.cols();
    for (row, value) in rows.iter().zip(values.data().chunks_exact(cols)) {
        add_into(&mut table[*row as usize * cols..][..cols], value);
    }
}

fn merge(of: usize, mine: (&[u32], &Tensor), theirs: (&[u32], &Tensor)) -> Gradient {
    let mut rows: Vec<u32> = mine.0.iter().chain(theirs.0).copied().collect();
    rows.sort_unstable();
    rows.dedup();
    let cols = mine.1.cols();
    let mut values = mine.1.zeros_like(rows.len());
    let into = values.data_mut();
    for (from, part) in [mine, theirs] {
        for (row, value) in from.iter().zip(part.data().chunks_exact(cols)) {
            let place = rows.binary_search(row).expect("every row was collected above");
            add_into(&mut into[place * cols..][..cols], value);
        }
    }
    Gradient::Rows { of, rows, values }
}
