//! What a backward pass brings back.

use crate::device::Device;
use crate::error::ComputeError;
use crate::kernels::{self, Fill};
use crate::tensor::Tensor;
use crate::value::Value;
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
    pub fn of_input(&self, input: &Value) -> Option<&Tensor> {
        self.inputs.get(&input.slot?.0)
    }

    /// Sum of squares over all parameter gradients.
    pub fn sum_of_squares(&self) -> f64 {
        self.weights.values().map(|gradient| gradient.values().sum_of_squares()).sum()
    }

    /// Scales all parameter gradients so that their joint norm is at most `norm`.
    pub fn clip(&mut self, norm: f32) {
        let found = self.sum_of_squares().sqrt();
        if found <= f64::from(norm) {
            return;
        }
        self.scale((f64::from(norm) / found) as f32);
    }

    /// Multiplies all parameter gradients.
    pub fn scale(&mut self, factor: f32) {
        for gradient in self.weights.values_mut() {
            gradient.values_mut().scale(factor);
        }
    }

    /// Adds the gradients of another batch.
    pub fn add(&mut self, other: Self) -> Result<(), ComputeError> {
        other.weights.into_iter().try_for_each(|(id, gradient)| self.add_one(id, gradient))
    }

    /// Takes a parameter's gradient out to be written, and says whether there is anything to add to; the
    /// caller puts it back with [`Gradients::close`].
    pub(crate) fn open(
        &mut self,
        device: &Device,
        id: ParamId,
        (rows, cols): (usize, usize),
    ) -> (Tensor, Fill) {
        match self.weights.remove(&id) {
            None => (Tensor::scratch(device, rows, cols), Fill::Overwrite),
            Some(sum) => (sum.into_dense(), Fill::Add),
        }
    }

    /// Puts back what [`Gradients::open`] took out.
    pub(crate) fn close(&mut self, id: ParamId, sum: Tensor) {
        self.weights.insert(id, Gradient::Dense(sum));
    }

    /// Adds a gradient, whole or in rows, to a parameter's.
    pub(crate) fn add_one(&mut self, id: ParamId, gradient: Gradient) -> Result<(), ComputeError> {
        let sum = match self.weights.remove(&id) {
            None => gradient,
            Some(there) => there.plus(&gradient)?,
        };
        self.weights.insert(id, sum);
        Ok(())
    }

    /// All parameter gradients in order.
    pub(crate) fn into_weights(self) -> impl Iterator<Item = (ParamId, Gradient)> {
        self.weights.into_iter()
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

    /// The stored numbers, whatever they cover, and nothing else.
    pub(crate) fn into_values(self) -> Tensor {
        match self {
            Self::Dense(values) | Self::Rows { values, .. } => values,
        }
    }

    /// Every element on the host, zeros included.
    pub fn to_dense(&self) -> Vec<f32> {
        match self {
            Self::Dense(tensor) => tensor.to_host().into_owned(),
            Self::Rows { .. } => self.clone().into_dense().to_host().into_owned(),
        }
    }

    /// Every element on its device, zeros included.
    pub fn into_dense(self) -> Tensor {
        match self {
            Self::Dense(tensor) => tensor,
            Self::Rows { of, rows, values } => {
                let device = values.device();
                let mut dense = Tensor::zeros(&device, of, values.cols());
                kernels::scatter_add(&mut dense, &rows, &values);
                dense
            }
        }
    }

    /// The same gradient with every row in it, to be written.
    pub fn densify(&mut self) -> &mut Tensor {
        if let Self::Rows { values, .. } = self {
            let nothing = Self::Dense(Tensor::zeros(&values.device(), 0, 0));
            *self = Self::Dense(std::mem::replace(self, nothing).into_dense());
        }
        self.values_mut()
    }

    /// Adds this gradient to a sum of the parameter's shape.
    pub fn add_to(&self, sum: &mut Tensor) -> Result<(), ComputeError> {
        self.check("gradient sum", sum.shape())?;
        match self {
            Self::Dense(values) => sum.add_scaled(1.0, values),
            Self::Rows { rows, values, .. } => {
                kernels::scatter_add(sum, rows, values);
                Ok(())
            }
        }
    }

    /// Refuses a gradient that is not of this shape, or whose rows are not ascending or not in it.
    pub(crate) fn check(
        &self,
        operation: &'static str,
        shape: (usize, usize),
    ) -> Result<(), ComputeError> {
        match self {
            Self::Dense(values) => {
                ComputeError::expect(operation, "gradient shape", values.shape(), shape)
            }
            Self::Rows { of, rows, values } => {
                let found = (*of, values.cols());
                ComputeError::expect(operation, "gradient shape", found, shape)?;
                ComputeError::expect(operation, "gradient rows", values.rows(), rows.len())?;
                ComputeError::within(operation, "gradient row", rows, *of)?;
                if rows.is_sorted_by(|a, b| a < b) {
                    return Ok(());
                }
                let found = format!("{rows:?}");
                Err(ComputeError::shape(operation, "order of rows", found, "ascending"))
            }
        }
    }

    /// Rows and columns of the parameter.
    fn shape(&self) -> (usize, usize) {
        match self {
            Self::Dense(values) => values.shape(),
            Self::Rows { of, values, .. } => (*of, values.cols()),
        }
    }

    /// The sum of two gradients of one parameter; stays sparse only when both are.
    pub(crate) fn plus(self, other: &Self) -> Result<Self, ComputeError> {
        let cols = (self.values().cols(), other.values().cols());
        ComputeError::expect("gradient sum", "width", cols.0, cols.1)?;
        self.check("gradient sum", self.shape())?;
        other.check("gradient sum", self.shape())?;
        match (self, other) {
            (
                Self::Rows { of, rows, mut values },
                Self::Rows { rows: theirs, values: more, .. },
            ) if rows == *theirs => {
                values.add_scaled(1.0, more)?;
                Ok(Self::Rows { of, rows, values })
            }
            (Self::Dense(mut sum), more) => {
                more.add_to(&mut sum)?;
                Ok(Self::Dense(sum))
            }
            (mine @ Self::Rows { .. }, Self::Dense(more)) => {
                let mut sum = more.clone();
                mine.add_to(&mut sum)?;
                Ok(Self::Dense(sum))
            }
            (Self::Rows { of, rows, values }, Self::Rows { rows: theirs, values: more, .. }) => {
                Ok(merge(of, (&rows, &values), (theirs, more)))
            }
        }
    }
}

fn merge(of: usize, mine: (&[u32], &Tensor), theirs: (&[u32], &Tensor)) -> Gradient {
    let mut rows: Vec<u32> = mine.0.iter().chain(theirs.0).copied().collect();
    rows.sort_unstable();
    rows.dedup();
    let device: Device = mine.1.device();
    let mut values = Tensor::zeros(&device, rows.len(), mine.1.cols());
    let place = |row: &u32| rows.binary_search(row).expect("every row was collected above") as u32;
    for (from, part) in [mine, theirs] {
        let places: Vec<u32> = from.iter().map(place).collect();
        kernels::scatter_add(&mut values, &places, part);
    }
    Gradient::Rows { of, rows, values }
}
