//! Tails of the normal distribution, exact to a few units in the last place however far out.

use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

/// Beyond this the tail is computed from its continued fraction.
const FAR: f64 = 6.0;

/// The chance that a standard normal number exceeds `x`.
pub fn tail(x: f64) -> f64 {
    0.5 * libm::erfc(x * FRAC_1_SQRT_2)
}

/// The logarithm of [`tail`], where `tail` itself may underflow.
pub fn log_tail(x: f64) -> f64 {
    if x < FAR { tail(x).ln() } else { log_density(x) + mills(x).ln() }
}

/// The logarithm of the density.
pub fn log_density(x: f64) -> f64 {
    -0.5 * x * x - 0.5 * (2.0 * PI).ln()
}

/// The tail over the density.
pub fn mills(x: f64) -> f64 {
    if x < FAR {
        return tail(x) / log_density(x).exp();
    }
    // 1/(x + 1/(x + 2/(x + 3/(x + ...)))), from the inside out; 60 terms suffice from 6 on.
    let inner = (1..=60).rev().fold(x, |below, term| x + f64::from(term) / below);
    1.0 / inner
}

/// A number whose tail is at most `chance`, at most a little beyond the true quantile.
pub fn upper_quantile(chance: f64) -> f64 {
    // Chernoff's bound brackets it: tail(x) <= exp(-x*x/2).
    let (mut low, mut high) = (-40.0, SQRT_2 * (-chance.ln()).max(0.0).sqrt());
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if log_tail(middle) <= chance.ln() { high = middle } else { low = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_agree_with_published_values() {
        for (x, expected) in [
            (0.0, 0.5),
            (1.0, 0.158_655_253_931_457_07),
            (5.0, 2.866_515_718_791_94e-7),
            (7.0, 1.279_812_543_885_835e-12),
            (10.0, 7.619_853_024_160_527e-24),
        ] {
            assert!((tail(x) / expected - 1.0).abs() < 1e-13, "{x}");
            assert!((log_tail(x) - f64::ln(expected)).abs() < 1e-13, "{x}");
        }
        assert!((log_tail(50.0) + 1_254.831_361_139_42).abs() < 1e-9);
        assert!((mills(FAR - 1e-9) / mills(FAR) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_quantile_has_the_tail_it_was_asked_for() {
        for chance in [0.4, 1e-3, 1e-12, 1e-30] {
            let x = upper_quantile(chance);
            assert!(tail(x) <= chance * (1.0 + 1e-12) && tail(x) > chance * 0.999_999, "{chance}");
        }
    }
}
