//! Factors that bound what one example may contribute to a sum of gradients.
//!
//! The promise is about every contribution: `factor * norm <= C (1 + 1e-6)`, whatever the example. Norms
//! are computed with rounding, so a factor is made a little smaller than `C / norm`; see
//! `cpu/example_squares.rs` for what a norm may be wrong by. An example whose norm is not finite gets
//! zero: it contributes nothing, and the caller can count it.

use crate::tape::ExampleGradients;
use fedra_plan::Layer;
use std::collections::BTreeMap;

/// How much smaller than `C / norm` a factor is: more than what rounding takes from a norm.
const MARGIN: f64 = 5e-6;

/// How an example's gradient is bounded.
#[derive(Clone, Debug, PartialEq)]
pub enum Clipping {
    /// The norm over everything that trains is at most this.
    Flat(f64),
    /// The norm at each layer is at most that layer's; a layer that is not named contributes nothing.
    PerLayer(BTreeMap<Layer, f64>),
}

impl Clipping {
    /// The factors of all examples.
    pub fn factors(&self, gradients: &ExampleGradients) -> ClipFactors {
        let examples = gradients.examples();
        let totals: Vec<f64> = (0..examples).map(|example| gradients.square(example)).collect();
        let not_finite = totals.iter().filter(|square| !square.is_finite()).count();
        let of_layer = |layer: Layer| {
            let factor = |example: usize| match self {
                Self::Flat(norm) => factor(*norm, totals[example]),
                // One layer that is not finite spoils the example: its other layers say nothing either.
                Self::PerLayer(_) if !totals[example].is_finite() => 0.0,
                Self::PerLayer(norms) => {
                    let norm = norms.get(&layer).copied().unwrap_or(0.0);
                    factor(norm, gradients.square_at(layer, example))
                }
            };
            (layer, (0..examples).map(factor).collect())
        };
        let factors = gradients.layers().map(of_layer).collect();
        ClipFactors { factors, not_finite }
    }
}

/// A factor for each layer and example.
#[derive(Clone, Debug, PartialEq)]
pub struct ClipFactors {
    factors: BTreeMap<Layer, Vec<f32>>,
    not_finite: usize,
}

impl ClipFactors {
    /// What an example's gradient at a layer is multiplied by.
    pub fn at(&self, layer: Layer, example: usize) -> f32 {
        self.factors.get(&layer).map_or(0.0, |factors| factors[example])
    }

    /// Examples whose gradient is not finite; they contribute nothing.
    pub fn not_finite(&self) -> usize {
        self.not_finite
    }

    /// At a layer, how many finite examples were made smaller.
    pub fn clipped(&self, layer: Layer) -> usize {
        let factors = self.factors.get(&layer);
        factors.map_or(0, |factors| factors.iter().filter(|f| 0.0 < **f && **f < 1.0).count())
    }
}

/// `min(1, C / norm)`, on the safe side; zero where the norm is not finite.
fn factor(norm: f64, square: f64) -> f32 {
    if !square.is_finite() || norm.is_nan() || norm <= 0.0 {
        return 0.0;
    }
    let found = square.max(0.0).sqrt() * (1.0 + MARGIN);
    if found <= norm { 1.0 } else { (norm / found) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_never_lets_more_than_the_norm_through() {
        for square in [0.0, 1e-300, 0.25, 1.0, 1.0 + 1e-9, 3.0, 1e30, f64::MAX] {
            let through = f64::from(factor(1.0, square)) * square.sqrt();
            assert!(through <= 1.0, "{square}: {through}");
            assert!(square > 1.0 || through >= (1.0 - 1e-5) * square.sqrt().min(1.0));
        }
    }

    #[test]
    fn what_is_not_finite_and_a_norm_of_nothing_give_zero() {
        for (norm, square) in [
            (1.0, f64::NAN),
            (1.0, f64::INFINITY),
            (0.0, 1.0),
            (0.0, 0.0),
            (f64::NAN, 1.0),
            (-1.0, 1.0),
        ] {
            assert_eq!(factor(norm, square), 0.0, "{norm} {square}");
        }
    }
}
