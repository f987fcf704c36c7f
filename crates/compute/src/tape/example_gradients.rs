//! What a backward pass that tells examples apart brings back.

use super::example_factors::{ExampleFactors, Factors, add_weighted_rows};
use crate::device::Device;
use crate::gradients::Gradients;
use fedra_plan::Layer;
use std::collections::BTreeMap;

/// The norms of each example's gradient, and all that their weighted sum is made of.
///
/// Made by [`Tape::backward_by_example`](crate::Tape::backward_by_example). Squares are sums in f64; one
/// that is not finite says that the example's gradient is not, and the example is to be left out.
#[derive(Debug)]
pub struct ExampleGradients {
    pub(super) device: Device,
    pub(super) examples: usize,
    /// By layer and example.
    pub(super) squares: BTreeMap<Layer, Vec<f64>>,
    pub(super) kept: Vec<ExampleFactors>,
}

impl ExampleGradients {
    /// Number of examples.
    pub fn examples(&self) -> usize {
        self.examples
    }

    /// The layers where something trains, in order.
    pub fn layers(&self) -> impl ExactSizeIterator<Item = Layer> {
        self.squares.keys().copied()
    }

    /// The squared norm of an example's gradient of everything that trains.
    pub fn square(&self, example: usize) -> f64 {
        self.squares.values().map(|squares| squares[example]).sum()
    }

    /// The squared norm of an example's gradient of one layer's weights.
    pub fn square_at(&self, layer: Layer, example: usize) -> f64 {
        self.squares.get(&layer).map_or(0.0, |squares| squares[example])
    }

    /// The sum of all gradients, each multiplied by the factor of its layer and example.
    ///
    /// A factor of zero leaves the example out, also where its gradient is not finite. A weight that no
    /// example's loss depends on has no gradient here, as in [`Tape::backward`](crate::Tape::backward).
    pub fn weighted_sum(self, factor: impl Fn(Layer, usize) -> f32) -> Gradients {
        let Self { device, examples, squares, kept } = self;
        let of_layer = |layer: Layer| (layer, (0..examples).map(|e| factor(layer, e)).collect());
        let factors = Factors(squares.into_keys().map(of_layer).collect());
        let mut sum = Gradients::default();
        let mut rows = Vec::new();
        for kept in kept {
            rows.extend(kept.add_weighted(&device, &mut sum, &factors));
        }
        add_weighted_rows(&device, &mut sum, &factors, &rows);
        sum
    }
}
