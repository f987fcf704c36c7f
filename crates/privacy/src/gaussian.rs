//! The Gaussian mechanism in closed form.
//!
//! Any number of Gaussian releases is one Gaussian release: with mu = sensitivity / deviation, the
//! squares add up. So no grid is needed where nothing is sampled, and the answer is exact.
//!
//! ```text
//! delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)
//! ```
//! Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", 2018, theorem 8.

use crate::normal::{log_density, mills};

/// The logarithm of delta at this epsilon, on the safe side of rounding.
pub fn log_delta(mu: f64, epsilon: f64) -> f64 {
    let near = epsilon / mu - 0.5 * mu;
    let far = epsilon / mu + 0.5 * mu;
    // exp(epsilon) density(far) = density(near): what is left is a difference of Mills ratios.
    if near < -5.0 {
        // Mills ratios overflow on this side, and the second term is as good as nothing.
        let second = (log_density(near) + mills(far).ln()).exp();
        return (crate::normal::tail(near) - second).ln();
    }
    let (first, second) = (mills(near), mills(far));
    // What is left of two numbers that are nearly equal is known less well: an upper bound of it is told.
    let rounding = 8.0 * f64::EPSILON * (first / (first - second) + near * near);
    log_density(near) + (first - second).ln() + rounding
}

/// The smallest epsilon that holds with this delta, rounded up.
pub fn epsilon(mu: f64, delta: f64) -> f64 {
    let target = delta.ln();
    if mu <= 0.0 || log_delta(mu, 0.0) <= target {
        return 0.0;
    }
    // By the tail bound of the loss, which is normal with mean mu*mu/2 and deviation mu.
    let (mut low, mut high) = (0.0, 0.5 * mu * mu + mu * (-2.0 * target).sqrt());
    while low < high {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if log_delta(mu, middle) <= target { high = middle } else { low = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "found {found}, expected {expected}");
    }

    #[test]
    fn epsilon_agrees_with_the_reference() {
        near(epsilon(1.0 / 0.3, 1e-5), 19.130_767_834_361_926);
        near(epsilon(0.1, 1e-6), 0.396_857_377_644_083_2);
        near(epsilon(128.0, 1e-5), 8_736.922_338_959_132);
    }

    #[test]
    fn noise_agrees_with_the_reference() {
        near(epsilon(1.0 / 30.749_566_131_977_69, 1e-5), 0.1);
        near(epsilon(1.0 / 0.433_619_590_995_456_1, 1e-9), 16.0);
    }

    #[test]
    fn a_large_delta_needs_no_epsilon() {
        assert_eq!(epsilon(0.01, 0.1), 0.0);
        assert_eq!(epsilon(0.0, 1e-9), 0.0);
    }
}
