//! Draws that data needs: choices by chance and by weight, and points of a simplex.

use crate::{Generator, Seed};

impl Generator {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Seed(seed).generator()
    }

    /// The stream of a seed for a purpose, independent of every other purpose.
    pub fn for_purpose(seed: u64, purpose: &str) -> Self {
        Seed(seed).of(purpose).generator()
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// One item of a slice.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// An index drawn in proportion to non-negative weights.
    pub fn weighted(&mut self, weights: &[f64]) -> usize {
        index_at(self.uniform(), weights)
    }

    /// A point of the simplex from a symmetric Dirichlet(alpha).
    ///
    /// Worked in logarithms, so that an alpha of 0.001 still leaves one share near 1 where plain
    /// Gamma variates would all underflow to zero.
    pub fn dirichlet(&mut self, alpha: f64, parts: usize) -> Vec<f64> {
        let logs: Vec<f64> = (0..parts).map(|_| self.log_gamma_variate(alpha)).collect();
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares: Vec<f64> = logs.iter().map(|log| (log - top).exp()).collect();
        let total: f64 = shares.iter().sum();
        shares.into_iter().map(|share| share / total).collect()
    }

    /// Logarithm of a Gamma(alpha, 1) variate: Marsaglia and Tsang 2000, with the usual boost
    /// Gamma(a) = Gamma(a + 1) U^(1/a) below 1.
    fn log_gamma_variate(&mut self, alpha: f64) -> f64 {
        if alpha < 1.0 {
            let boost = (1.0 - self.uniform()).ln() / alpha;
            return self.log_gamma_variate(alpha + 1.0) + boost;
        }
        let d = alpha - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v <= 0.0 {
                continue;
            }
            let u = 1.0 - self.uniform();
            if u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d.ln() + v.ln();
            }
        }
    }
}

/// The index of the part in which a point of [0, 1) lies, where parts are as wide as their weights say.
pub fn index_at(point: f64, weights: &[f64]) -> usize {
    let mut left = point * weights.iter().sum::<f64>();
    for (index, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return index;
        }
    }
    weights.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_of_one_seed_give_different_streams() {
        let first = Generator::for_purpose(3, "order").bits();
        assert_ne!(first, Generator::for_purpose(3, "split").bits());
        assert_ne!(first, Generator::for_purpose(4, "order").bits());
        assert_eq!(first, Generator::for_purpose(3, "order").bits());
    }

    #[test]
    fn dirichlet_has_the_right_mean_and_variance() {
        let (alpha, parts, draws) = (0.5, 4, 20_000);
        let mut generator = Generator::new(1);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..draws {
            let first = generator.dirichlet(alpha, parts)[0];
            sum += first;
            squares += first * first;
        }
        let mean = sum / draws as f64;
        let variance = squares / draws as f64 - mean * mean;
        // a0 = 2: mean 1/4, variance (1/4)(3/4)/(a0 + 1) = 1/16; tolerance about 4 standard errors.
        assert!((mean - 0.25).abs() < 0.008, "{mean}");
        assert!((variance - 0.0625).abs() < 0.004, "{variance}");
    }

    #[test]
    fn a_tiny_alpha_still_sums_to_one() {
        let shares = Generator::new(5).dirichlet(1e-4, 10);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(shares.iter().all(|share| share.is_finite()));
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<usize> = (0..100).collect();
        Generator::new(2).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
