//! What each row of a loss counts.
//!
//! A loss is `sum over rows of weight * loss of the row / divisor`. The caller chooses the divisor: the
//! number of targets makes a mean, a fixed public number makes a private gradient, one makes a sum. With
//! weights of classes, the sum of the targets' weights makes PyTorch's mean.

use crate::error::ComputeError;
use crate::kernels::{Factors, Smoothing};
use crate::value::Value;

/// Weights of a loss's rows, and what their sum is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossWeights<'a> {
    /// What each row counts.
    pub rows: RowWeights<'a>,
    /// What the weighted sum is divided by.
    pub divisor: f64,
    /// What a row counts beside that, by the class of its target; all are one when absent.
    pub class_weights: Option<&'a [f32]>,
    /// What share of a target goes to all classes alike, from 0 to 1.
    pub smoothing: f32,
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
    pub const SUM: Self =
        Self { rows: RowWeights::Uniform, divisor: 1.0, class_weights: None, smoothing: 0.0 };

    /// The mean over this many targets.
    pub fn mean(count: usize) -> Self {
        Self { divisor: count as f64, ..Self::SUM }
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
        Ok(Resolved { weights, divisor: self.divisor, smoothing: None })
    }

    /// Refuses weights of classes and smoothing, where targets are not classes.
    pub(super) fn expect_no_classes(self) -> Result<(), ComputeError> {
        let expected = "0 where several labels are told at once";
        let found = self.smoothing;
        match self.class_weights {
            None if found == 0.0 => Ok(()),
            None => Err(ComputeError::Setting { what: "label smoothing", found, expected }),
            Some(weights) => {
                let (what, found) = ("number of class weights", weights.len() as f32);
                Err(ComputeError::Setting { what, found, expected })
            }
        }
    }
}

/// Checked weights of all rows.
#[derive(Debug)]
pub(super) struct Resolved {
    weights: Option<Vec<f32>>,
    divisor: f64,
    /// The share, and the weights of classes, which are not in the rows' then.
    smoothing: Option<(f32, Option<Vec<f32>>)>,
}

impl Resolved {
    /// The same for rows with these labels of so many classes.
    pub fn of_classes(
        self,
        given: LossWeights<'_>,
        (labels, classes): (&[u32], usize),
    ) -> Result<Self, ComputeError> {
        let LossWeights { class_weights, smoothing: share, .. } = given;
        if !(0.0..=1.0).contains(&share) {
            let (what, expected) = ("label smoothing", "from 0 to 1");
            return Err(ComputeError::Setting { what, found: share, expected });
        }
        if let Some(weights) = class_weights {
            let what = "number of class weights";
            ComputeError::expect("cross-entropy", what, weights.len(), classes)?;
            if let Some(&found) = weights.iter().find(|it| !(it.is_finite() && **it >= 0.0)) {
                let (what, expected) = ("weight of a class", "a finite number, 0 or more");
                return Err(ComputeError::Setting { what, found, expected });
            }
        }
        if share > 0.0 {
            let smoothing = Some((share, class_weights.map(<[f32]>::to_vec)));
            return Ok(Self { smoothing, ..self });
        }
        let Some(by_class) = class_weights else { return Ok(self) };
        let of_row = |row: usize| self.weights.as_ref().map_or(1.0, |weights| weights[row]);
        let weights = labels.iter().enumerate();
        let weights = weights.map(|(row, &label)| of_row(row) * by_class[label as usize]).collect();
        Ok(Self { weights: Some(weights), ..self })
    }

    /// Those of the rows at these places.
    pub fn at(self, places: &[u32]) -> Self {
        let pick = |all: Vec<f32>| places.iter().map(|&place| all[place as usize]).collect();
        Self { weights: self.weights.map(pick), ..self }
    }

    /// Those of the rows at these places, each multiplied by a factor for its row.
    pub fn scaled(&self, factors: &[f32], places: &[u32]) -> Self {
        let weight = |row: usize| self.weights.as_ref().map_or(1.0, |weights| weights[row]);
        let scale = |&place: &u32| factors[place as usize] * weight(place as usize);
        let weights = Some(places.iter().map(scale).collect());
        Self { weights, divisor: self.divisor, smoothing: self.smoothing.clone() }
    }

    /// What each row counts beside its class; all are one when absent.
    pub fn rows(&self) -> Option<&[f32]> {
        self.weights.as_deref()
    }

    pub fn factors(&self) -> Factors<'_> {
        let smoothing = self.smoothing.as_ref().map(|(share, class_weights)| Smoothing {
            share: *share,
            class_weights: class_weights.as_deref(),
        });
        Factors { weights: self.weights.as_deref(), divisor: self.divisor, smoothing }
    }
}
