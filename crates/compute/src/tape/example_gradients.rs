//! What a backward pass that tells examples apart brings back.

use super::book::Book;
use super::example_factors::Factors;
use crate::device::Device;
use crate::gradients::Gradients;
use fedra_plan::Layer;

/// The norms of each example's gradient, and all that their weighted sum is made of.
///
/// Made by [`Tape::backward_by_example`](crate::Tape::backward_by_example). Squares are sums in f64; one
/// that is not finite says that the example's gradient is not, and the example is to be left out.
#[derive(Debug)]
pub struct ExampleGradients {
    pub(super) device: Device,
    pub(super) book: Book,
}

impl ExampleGradients {
    /// Number of examples.
    pub fn examples(&self) -> usize {
        self.book.examples
    }

    /// The sites where something trains, in order.
    pub fn sites(&self) -> impl ExactSizeIterator<Item = Layer> {
        self.book.squares.keys().copied()
    }

    /// The squared norm of an example's gradient of everything that trains.
    pub fn square(&self, example: usize) -> f64 {
        self.book.squares.values().map(|squares| squares[example]).sum()
    }

    /// The squared norm of an example's gradient of one site's weights.
    pub fn square_at(&self, site: Layer, example: usize) -> f64 {
        self.book.squares.get(&site).map_or(0.0, |squares| squares[example])
    }

    /// The sum of all gradients, each multiplied by the factor of its site and example.
    ///
    /// A factor of zero leaves the example out, also where its gradient is not finite. A weight that no
    /// example's loss depends on has no gradient here, as in [`Tape::backward`](crate::Tape::backward).
    pub fn weighted_sum(self, factor: impl Fn(Layer, usize) -> f32) -> Gradients {
        let Book { examples, squares, kept, .. } = self.book;
        let of_site = |site: Layer| (site, (0..examples).map(|e| factor(site, e)).collect());
        let factors = Factors(squares.into_keys().map(of_site).collect());
        let mut sum = Gradients::default();
        for kept in kept {
            kept.add_weighted(&self.device, &mut sum, &factors);
        }
        sum
    }
}
