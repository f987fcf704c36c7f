//! Rényi differential privacy: the second accountant, simple and independent of any grid.
//!
//! Divergences of one order add up over steps; the best of many orders becomes epsilon.
//!
//! ```text
//! divergence(a) = log E_Q[(P/Q)^a] / (a - 1)
//! epsilon       = divergence(a) + log((a-1)/a) - (log delta + log a) / (a - 1)
//! ```
//! Mironov, Talwar and Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism", 2019,
//! for integer orders; Canonne, Kamath and Steinke, 2020, proposition 12, for the conversion. Other
//! orders and relations are integrated by the trapezoidal rule, which for functions like these is
//! exact to rounding.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::binomial::log_choose;
use crate::pair::{Change, Pair};
use crate::phase::{StepKey, Weighted};

/// The orders to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Orders(Vec<f64>);

impl Default for Orders {
    /// Tenths to 11, whole numbers to 64, then coarser to 1024.
    fn default() -> Self {
        let fine = (11..110).map(|tenths| f64::from(tenths) / 10.0);
        let whole = (11..64).map(f64::from);
        let coarse = [64, 72, 80, 96, 112, 128, 160, 192, 256, 384, 512, 768, 1024].map(f64::from);
        Self(fine.chain(whole).chain(coarse).collect())
    }
}

impl Orders {
    /// These orders; those that are not above 1 are left out.
    pub fn new(orders: impl IntoIterator<Item = f64>) -> Self {
        Self(orders.into_iter().filter(|order| *order > 1.0 && order.is_finite()).collect())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The orders.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &f64> {
        self.0.iter()
    }

    /// The smallest epsilon over all orders, and its order; `divergences` has one number for each.
    pub(crate) fn best(&self, delta: f64, divergences: &[f64]) -> (f64, f64) {
        let mut best = (f64::INFINITY, f64::INFINITY);
        for (order, divergence) in self.0.iter().zip(divergences) {
            let below = order - 1.0;
            let rest = (below / order).ln() - (delta.ln() + order.ln()) / below;
            let epsilon = divergence * (1.0 + ROUNDING) + rest;
            if epsilon < best.0 {
                best = (epsilon.max(0.0), *order);
            }
        }
        best
    }
}

/// What a divergence may be wrong by, as a share of it: sums of thousands of exponentials of logarithms.
const ROUNDING: f64 = 1e-10;

/// The divergences of steps at some orders, each computed once: they depend neither on how many steps there
/// are nor on delta, and take a thousand times as long as their sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curves {
    pub orders: Orders,
    known: BTreeMap<(Change, StepKey), Arc<[f64]>>,
}

impl Curves {
    /// Kinds of steps whose divergences are kept: a kilobyte and a half each.
    const MOST: usize = 40_000;

    /// At these orders.
    pub fn over(orders: Orders) -> Self {
        Self { orders, known: BTreeMap::new() }
    }

    /// The divergences of a step.
    pub fn of(
        &mut self,
        step: (Change, StepKey),
        pairs: impl FnOnce() -> Vec<Weighted>,
    ) -> Arc<[f64]> {
        if let Some(known) = self.known.get(&step) {
            return known.clone();
        }
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        let pairs = pairs();
        let curve: Arc<[f64]> =
            self.orders.iter().map(|order| divergence(&pairs, *order)).collect();
        self.known.insert(step, curve.clone());
        curve
    }
}

/// The divergence of one step; infinite where it is too large to be of use.
pub(crate) fn divergence(pairs: &[Weighted], order: f64) -> f64 {
    let excess: Vec<f64> =
        pairs.iter().map(|part| part.weight.ln() + log_excess(&part.pair, order)).collect();
    let excess = log_sum(&excess);
    let log = if excess > 30.0 { excess } else { excess.exp().ln_1p() };
    log / (order - 1.0)
}

/// The logarithm of `E_Q[(P/Q)^order] - 1`, which may be tiny.
fn log_excess(pair: &Pair, order: f64) -> f64 {
    if order.fract() == 0.0 && pair.change == Change::Remove {
        by_binomial(pair, order)
    } else {
        by_integral(pair, order)
    }
}

/// Sum over j >= 2 of C(a, j) (1-q)^(a-j) q^j (exp(j(j-1) / 2 sigma^2) - 1): all terms positive.
fn by_binomial(pair: &Pair, order: f64) -> f64 {
    let variance = pair.sigma * pair.sigma;
    let (stays, joins) = ((-pair.rate).ln_1p(), pair.rate.ln());
    let terms = (2..=order as u32).map(|drawn| {
        let j = f64::from(drawn);
        let exponent = j * (j - 1.0) / (2.0 * variance);
        let grown = if exponent > 30.0 { exponent } else { exponent.exp_m1().ln() };
        // 0 times minus infinity, where everything is sampled and nothing stays.
        let rest = if order > j { (order - j) * stays } else { 0.0 };
        log_choose(order, j) + rest + j * joins + grown
    });
    log_sum(&terms.collect::<Vec<_>>())
}

/// More points than this are not worth an order that cannot be the best one.
const MOST_POINTS: f64 = 200_000.0;

/// Integral of Q (r^a - 1 - a (r - 1)) with r = P/Q: as `E_Q[r]` is 1, that is `E_Q[r^a] - 1`.
fn by_integral(pair: &Pair, order: f64) -> f64 {
    const REACH: f64 = 12.0;
    let sigma = pair.sigma;
    let step = 0.3 * sigma.min(sigma * sigma);
    let low = -1.0 - REACH * sigma;
    let high = 2.0 * order + REACH * sigma;
    let points = (high - low) / step;
    if points > MOST_POINTS {
        return f64::INFINITY;
    }
    let terms = (0..=points.ceil() as u32).map(|index| {
        let t = low + step * f64::from(index);
        let (p, q) = pair.log_ratios(t);
        let loss = p - q;
        let grown = if order * loss > 40.0 {
            order * loss
        } else {
            ((order * loss).exp_m1() - order * loss.exp_m1()).max(0.0).ln()
        };
        pair.log_base(t) + q + grown
    });
    log_sum(&terms.collect::<Vec<_>>()) + step.ln()
}

/// The logarithm of a sum of exponentials.
fn log_sum(terms: &[f64]) -> f64 {
    let largest = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !largest.is_finite() {
        return largest;
    }
    largest + terms.iter().map(|term| (term - largest).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(rate: f64, sigma: f64) -> [Weighted; 1] {
        [Weighted { pair: Pair { change: Change::Remove, rate, sigma }, weight: 1.0 }]
    }

    #[test]
    fn divergences_agree_with_the_reference() {
        for (rate, sigma, order, expected) in [
            (0.01, 4.0, 1.5, 4.835_493_180_200_857e-6),
            (0.01, 4.0, 2.0, 6.449_425_094_185_267_5e-6),
            (0.01, 4.0, 63.0, 2.116_982_165_682_416_6e-4),
            (0.064, 1.2, 1.5, 0.002_968_303_816_105_314_2),
            (0.064, 1.2, 2.5, 0.005_317_597_060_147_227),
            (0.064, 1.2, 63.0, 19.081_791_156_061_044),
        ] {
            let found = divergence(&step(rate, sigma), order);
            assert!((found / expected - 1.0).abs() < 1e-8, "{rate} {sigma} {order}: {found}");
        }
    }

    #[test]
    fn the_integral_and_the_binomial_sum_agree() {
        for (rate, sigma) in [(0.01, 1.0), (0.2, 0.5), (0.001, 3.0), (0.5, 0.4)] {
            for order in [2.0, 3.0, 8.0, 32.0] {
                let pair = Pair { change: Change::Remove, rate, sigma };
                let (sum, integral) = (by_binomial(&pair, order), by_integral(&pair, order));
                assert!((sum - integral).abs() < 1e-9, "{pair:?} {order}: {sum} {integral}");
            }
        }
    }

    #[test]
    fn without_sampling_the_divergence_is_that_of_two_normal_distributions() {
        let replace = Pair { change: Change::Replace, rate: 1.0, sigma: 2.0 };
        for order in [1.5, 4.0] {
            let found = divergence(&[Weighted { pair: replace, weight: 1.0 }], order);
            assert!((found - order * 4.0 / 8.0).abs() < 1e-10, "{found}");
            assert!((divergence(&step(1.0, 2.0), order) - order / 8.0).abs() < 1e-10);
        }
    }
}
