//! How well any attack can tell members from others under a differential privacy guarantee.
//!
//! A guarantee bounds the whole curve of true against false positives, so it is stated as that curve:
//! whatever lies above it is evidence against the guarantee. Kairouz, Oh and Viswanath 2015 for
//! (epsilon, delta).

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_privacy_loss_no_attack_beats_a_coin() {
        for fpr in [0.0, 1e-3, 0.3, 1.0] {
            assert!((most_found(0.0, 0.0, fpr) - fpr).abs() < 1e-12);
        }
    }

    #[test]
    fn the_curve_rises_with_what_is_allowed_and_never_leaves_the_unit() {
        let mut before = 0.0;
        for allowed in [0.1, 0.5, 1.0, 2.0, 4.0, 8.0] {
            let now = most_found(allowed, 1e-5, 0.01);
            assert!(now > before && now <= 1.0);
            before = now;
        }
        assert!((most_found(1.0, 0.0, 0.1) - 0.1 * 1.0_f64.exp()).abs() < 1e-12);
    }
}
