//! What each row of a loss counts.
//!
//! A loss is `sum over rows of weight * loss of the row / divisor`. The caller chooses the divisor: the
//! number of targets makes a mean, a fixed public number makes a private gradient, one makes a sum.

use crate::error::ComputeError;
use crate::kernels::Factors;
use crate::value::Value;

/// Weights of a loss's rows, and what their sum is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossWeights<'a> {
    /// What each row counts.
    pub rows: RowWeights<'a>,
    /// What the weighted sum is divided by.
    pub divisor: f64,
}

/// What each row of a loss counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowWeights<'a> {
    /// All the same: one.
    Uniform,
    /// A number for each row of targets, those without a target included.
    PerRow(&'a [f32]),
    /// A number for each sequence, for all of its rows.
    PerSequence(&'a [f32]),
}

impl LossWeights<'_> {
    /// The sum of all rows.
    pub const SUM: Self = Self { rows: RowWeights::Uniform, divisor: 1.0 };

    /// The mean over this many targets.
    pub fn mean(count: usize) -> Self {
        Self { rows: RowWeights::Uniform, divisor: count as f64 }
    }

    /// One weight for each row of a value, and the divisor.
    pub(super) fn resolve(
        self,
        operation: &'static str,
        of: &Value,
    ) -> Result<Resolved, ComputeError> {
        ComputeError::positive("divisor of a loss", self.divisor as f32)?;
        let rows = of.tensor.rows();
        let weights = match self.rows {
            RowWeights::Uniform => None,
            RowWeights::PerRow(weights) => {
                ComputeError::expect(operation, "number of row weights", weights.len(), rows)?;
                Some(weights.to_vec())
            }
            RowWeights::PerSequence(weights) => {
                let Some(sequences) = of.sequences() else {
                    let what = "description of where sequences begin";
                    return Err(ComputeError::Empty { operation, what });
                };
                let (what, expected) = ("number of sequence weights", sequences.len());
                ComputeError::expect(operation, what, weights.len(), expected)?;
                Some(sequences.spread(weights))
            }
        };
        if let Some(&found) = weights.iter().flatten().find(|weight| !weight.is_finite()) {
            let (what, expected) = ("weight of a loss", "a finite number");
            return Err(ComputeError::Setting { what, found, expected });
        }
        Ok(Resolved { weights, divisor: self.divisor })
    }
}

/// Checked weights of all rows.
#[derive(Debug)]
pub(super) struct Resolved {
    weights: Option<Vec<f32>>,
    divisor: f64,
}

impl Resolved {
    /// Those of the rows at these places.
    pub fn at(self, places: &[u32]) -> Self {
        let pick = |all: Vec<f32>| places.iter().map(|&place| all[place as usize]).collect();
        Self { weights: self.weights.map(pick), ..self }
    }

    /// Those of the rows at these places, each multiplied by a factor for its row.
    pub fn scaled(&self, factors: &[f32], places: &[u32]) -> Self {
        let weight = |row: usize| self.weights.as_ref().map_or(1.0, |weights| weights[row]);
        let scale = |&place: &u32| factors[place as usize] * weight(place as usize);
        Self { weights: Some(places.iter().map(scale).collect()), ..*self }
    }

    pub fn factors(&self) -> Factors<'_> {
        Factors { weights: self.weights.as_deref(), divisor: self.divisor }
    }
}
