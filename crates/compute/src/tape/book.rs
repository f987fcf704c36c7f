//! What a tape that tells examples apart knows of them, before and during the backward pass.

use super::example_factors::ExampleFactors;
use crate::device::Device;
use crate::gradients::Gradient;
use crate::kernels::ExampleSquares;
use crate::params::Weight;
use crate::sequences::Sequences;
use fedra_plan::ParamId;
use std::collections::BTreeMap;

/// What a tape that tells examples apart knows before it is replayed.
#[derive(Debug)]
pub(super) struct Examples {
    pub sequences: Sequences,
    /// How many times each weight that trains is used.
    pub trained: BTreeMap<ParamId, usize>,
}

impl Examples {
    /// Counts a use of each of these that trains; says whether there is any.
    pub fn count<'a>(&mut self, weights: impl Iterator<Item = &'a Weight>) -> bool {
        let mut any = false;
        for weight in weights.filter(|weight| weight.trains) {
            *self.trained.entry(weight.id).or_default() += 1;
            any = true;
        }
        any
    }
}

/// What operations have found out and kept.
#[derive(Debug)]
pub(super) struct Book {
    pub examples: usize,
    /// Squared norms by layer and example.
    pub squares: ExampleSquares,
    /// In the order of the backward pass.
    pub kept: Vec<ExampleFactors>,
    /// Weights that several operations train: an example's gradient is the sum of what each gives, so
    /// its norm is not known before the last of them.
    pub shared: Vec<ParamId>,
}

impl Book {
    pub fn new(device: &Device, examples: usize, shared: Vec<ParamId>) -> Self {
        let squares = ExampleSquares::new(device, examples);
        Self { examples, squares, kept: Vec::new(), shared }
    }

    /// The squares of weights that several operations train, from each example's gradient itself.
    pub fn add_shared(&mut self, device: &Device) {
        for id in &self.shared {
            let gradient = |example| {
                let parts = self.kept.iter().filter_map(|kept| kept.gradient(device, *id, example));
                let sum = parts.reduce(|sum, part| {
                    Gradient::plus(sum, &part).expect("both have the weight's shape")
                });
                sum.map(Gradient::into_values)
            };
            self.squares.add_gradients(id.layer, (0..self.examples).map(gradient));
        }
    }
}
