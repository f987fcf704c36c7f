//! How well any attack can tell members from others under a promise of differential privacy.
//!
//! A promise bounds the whole curve of true against false positives, so it is stated as that curve:
//! whatever lies above it is evidence against the promise. Kairouz, Oh and Viswanath 2015 for
//! (epsilon, delta); Dong, Roth and Su 2022 for Gaussian differential privacy.

use fedra_privacy::normal;

/// The largest share of members that is found at this share of false alarms, under (epsilon, delta):
///
/// ```text
/// min(exp(epsilon) fpr + delta,  1 - exp(-epsilon) (1 - delta - fpr),  1)
/// ```
pub fn most_found(epsilon: f64, delta: f64, fpr: f64) -> f64 {
    let low = epsilon.exp() * fpr + delta;
    let high = 1.0 - (-epsilon).exp() * (1.0 - delta - fpr);
    low.min(high).clamp(0.0, 1.0)
}

/// The same under mu-Gaussian differential privacy: `Phi(Phi^-1(fpr) + mu)`.
pub fn most_found_gaussian(mu: f64, fpr: f64) -> f64 {
    if fpr <= 0.0 || fpr >= 1.0 {
        return fpr.clamp(0.0, 1.0);
    }
    normal::tail(normal::upper_quantile(fpr) - mu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_privacy_loss_no_attack_beats_a_coin() {
        for fpr in [0.0, 1e-3, 0.3, 1.0] {
            assert!((most_found(0.0, 0.0, fpr) - fpr).abs() < 1e-12);
            assert!((most_found_gaussian(0.0, fpr) - fpr).abs() < 1e-9);
        }
    }

    #[test]
    fn both_curves_rise_with_what_is_allowed_and_never_leave_the_unit() {
        let mut before = (0.0, 0.0);
        for allowed in [0.1, 0.5, 1.0, 2.0, 4.0, 8.0] {
            let now = (most_found(allowed, 1e-5, 0.01), most_found_gaussian(allowed, 0.01));
            assert!(now.0 > before.0 && now.1 > before.1 && now.0 <= 1.0 && now.1 <= 1.0);
            before = now;
        }
        // Closed form: the median of one normal under another that lies one deviation away.
        assert!((most_found_gaussian(1.0, 0.5) - 0.841_344_746_068_543).abs() < 1e-12);
        assert!((most_found(1.0, 0.0, 0.1) - 0.1 * 1.0_f64.exp()).abs() < 1e-12);
    }
}
