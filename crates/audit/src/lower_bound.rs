//! How large epsilon must be at least, given what an attack guessed right.
//!
//! An accountant bounds epsilon from above and can be wrong about the program; a bound from below is
//! evidence from the program itself. If it lies above the accountant's claim, one of the two is broken.
//!
//! [`OneRun`] needs a single run with many canaries (Steinke, Nasr and Jagielski 2023): canaries are in
//! or out by independent fair coins, the attacker guesses some of them, and
//!
//! ```text
//! P[right >= v] <= P[Bin(r, q) >= v] + 2 m delta max_i P[v > Bin(r, q) >= v - i] / i,
//! q = exp(epsilon) / (1 + exp(epsilon))
//! ```
//! for any (epsilon, delta) mechanism, however the guesses were made.

use fedra_privacy::binomial;
use serde::Serialize;

use crate::error::{AuditError, Result};

/// Epsilons beyond this are all alike: nothing is guaranteed.
const LARGEST: f64 = 700.0;
/// Halvings of an interval; more than a double can tell apart.
const HALVINGS: usize = 80;

/// How far a bound may be trusted, and for which delta it holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Confidence {
    /// The delta of the claim.
    pub delta: f64,
    /// Chance that the bound is below the true epsilon, as 0.95.
    pub confidence: f64,
}

impl Confidence {
    /// Refuses what is no chance.
    pub fn new(delta: f64, confidence: f64) -> Result<Self> {
        if !(0.0..1.0).contains(&delta) {
            return Err(AuditError::setting("delta", delta, "at least 0 and less than 1"));
        }
        if !(confidence > 0.0 && confidence < 1.0) {
            return Err(AuditError::setting("confidence", confidence, "between 0 and 1"));
        }
        Ok(Self { delta, confidence })
    }
}

/// Guesses about the canaries of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OneRun {
    canaries: u64,
    guesses: u64,
    right: u64,
}

impl OneRun {
    /// Of so many canaries, each in or out by a fair coin, so many were guessed and so many of the
    /// guesses were right.
    pub fn new(canaries: u64, guesses: u64, right: u64) -> Result<Self> {
        if guesses > canaries {
            let expected = format!("at most {canaries}, the number of canaries");
            return Err(AuditError::setting("guesses", guesses, expected));
        }
        if right > guesses {
            let expected = format!("at most {guesses}, the number of guesses");
            return Err(AuditError::setting("right guesses", right, expected));
        }
        Ok(Self { canaries, guesses, right })
    }

    /// An epsilon that the mechanism exceeds with this confidence; zero where nothing was shown.
    pub fn epsilon(&self, trust: Confidence) -> f64 {
        let significance = 1.0 - trust.confidence;
        let refuted = |epsilon: f64| self.chance(epsilon, trust.delta) < significance;
        if !refuted(0.0) {
            return 0.0;
        }
        let (mut low, mut high) = (0.0, 1.0);
        while refuted(high) {
            if high >= LARGEST {
                return LARGEST;
            }
            (low, high) = (high, 2.0 * high);
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if refuted(middle) { low = middle } else { high = middle }
        }
        low
    }

    /// The largest chance with which an (epsilon, delta) mechanism lets so many guesses be right.
    fn chance(&self, epsilon: f64, delta: f64) -> f64 {
        let Self { canaries, guesses, right } = *self;
        let q = 1.0 / (1.0 + (-epsilon).exp());
        let at_least = binomial::tail(right, guesses, q);
        if delta == 0.0 || q >= 1.0 {
            return at_least.min(1.0);
        }
        let (mut sum, mut worst) = (0.0, 0.0_f64);
        for fewer in 1..=right {
            sum += binomial::term(right - fewer, guesses, q);
            worst = worst.max(sum / fewer as f64);
        }
        (at_least + 2.0 * canaries as f64 * delta * worst).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trust(delta: f64) -> Confidence {
        Confidence::new(delta, 0.95).unwrap()
    }

    #[test]
    fn guesses_that_are_all_right_have_a_closed_form_without_delta() {
        // q^r = 0.05, so epsilon = ln(q / (1 - q)).
        for guesses in [5, 100, 1000] {
            let q = 0.05_f64.powf(1.0 / guesses as f64);
            let found = OneRun::new(guesses, guesses, guesses).unwrap().epsilon(trust(0.0));
            assert!((found - (q / (1.0 - q)).ln()).abs() < 1e-9, "{guesses}: {found}");
        }
    }

    #[test]
    fn guesses_no_better_than_a_coin_show_nothing() {
        for right in [0, 40, 50, 55] {
            assert_eq!(OneRun::new(1000, 100, right).unwrap().epsilon(trust(1e-5)), 0.0);
        }
        assert_eq!(OneRun::new(1000, 0, 0).unwrap().epsilon(trust(0.0)), 0.0);
    }

    #[test]
    fn the_bound_rises_with_right_guesses_and_falls_with_delta_and_confidence() {
        let bound = |right| OneRun::new(1000, 200, right).unwrap().epsilon(trust(1e-5));
        assert!(bound(150) < bound(180) && bound(180) < bound(200));
        let run = OneRun::new(1000, 200, 190).unwrap();
        assert!(run.epsilon(trust(1e-4)) < run.epsilon(trust(1e-5)));
        assert!(run.epsilon(trust(1e-5)) < run.epsilon(trust(0.0)));
        let sure = Confidence::new(1e-5, 0.999).unwrap();
        assert!(run.epsilon(sure) < run.epsilon(trust(1e-5)));
    }

    #[test]
    fn a_mechanism_that_is_as_bad_as_allowed_is_rarely_refuted() {
        // Randomised response of epsilon 1 guesses each canary right with chance q; at a confidence of
        // 95 % at most one bound in twenty may lie above 1.
        let (q, mut generator) = (1.0 / (1.0 + (-1.0_f64).exp()), fedra_seed::Seed(4).generator());
        let above = (0..400).filter(|_| {
            let right = (0..300).filter(|_| generator.uniform() < q).count() as u64;
            OneRun::new(300, 300, right).unwrap().epsilon(trust(0.0)) > 1.0
        });
        let above = above.count();
        assert!(above > 2 && above <= 30, "{above} of 400");
    }

    #[test]
    fn what_cannot_have_been_counted_is_refused() {
        let words = |outcome: Result<OneRun>| outcome.unwrap_err().to_string();
        let refused = words(OneRun::new(10, 11, 0));
        assert_eq!(refused, "guesses: found 11, expected at most 10, the number of canaries");
        assert!(words(OneRun::new(10, 5, 6)).contains("the number of guesses"));
        for (delta, confidence) in
            [(-1e-9, 0.95), (1.0, 0.95), (f64::NAN, 0.95), (0.0, 0.0), (0.0, 1.0), (0.0, f64::NAN)]
        {
            assert!(Confidence::new(delta, confidence).is_err(), "{delta} {confidence}");
        }
    }
}
