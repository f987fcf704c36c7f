//! Canaries: rows that are in or out of the training by a coin, and what was seen of them.
//!
//! The attacker is the strongest that a privacy guarantee speaks of. It sees every noised sum, knows all
//! rows and the gradient of every canary, and does not know the coins. Gradients of canaries are not
//! orthogonal, so looking at each alone would drown it in the others; the attacker weighs all of them
//! together instead. With `A` the canaries' clipped gradients over the clip norm, one row each, and
//! `y` a noised sum over the clip norm, less what the other rows gave to it:
//!
//! ```text
//! y = q A^T b + sigma z,   b a coin each       belief = (q^2 A A^T + 4 sigma^2)^-1 (q A y - q^2 A A^T / 2)
//! ```
//! summed over releases: the mean of `b - 1/2` for normal coins of the same spread. The surest beliefs
//! become guesses, and the guesses a bound ([`OneRun`]). Whatever the attacker gets wrong makes the
//! bound weak and never false.

use fedra_compute::{Device, Tensor};
use serde::Serialize;

use crate::error::{AuditError, Result};
use crate::lower_bound::{Confidence, OneRun};
use crate::product::{inverse, product};

/// Shares of the canaries that are guessed. The best of them counts, so each is tried at a confidence
/// that holds for all together.
const GUESSED: [f64; 4] = [1.0, 0.5, 0.25, 0.1];
/// Shares of the claimed noise that the attacker reckons with: it need not believe the claim, and who
/// reckons with too much noise does not tell canaries apart that can be.
const RECKONED: [f64; 2] = [1.0, 0.25];

/// What all releases so far say about the canaries.
#[derive(Clone, Debug)]
pub struct CanaryEvidence {
    canaries: usize,
    rate: f64,
    noise: f64,
    /// `A A^T` over all releases.
    gram: Vec<f64>,
    /// `A y` over all releases.
    aligned: Vec<f64>,
}

/// What the guesses came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CanaryFinding {
    /// Canaries.
    pub canaries: usize,
    /// Of which so many were guessed.
    pub guesses: u64,
    /// Of which so many were right.
    pub right: u64,
    /// An epsilon that the program exceeds.
    pub epsilon: f64,
    /// For this delta and at this confidence.
    #[serde(flatten)]
    pub trust: Confidence,
}

impl CanaryEvidence {
    /// Nothing seen yet. A row joins a batch with this rate, and the noise is claimed to have this
    /// deviation over the clip norm.
    pub fn new(canaries: usize, rate: f64, noise: f64) -> Self {
        let (gram, aligned) = (vec![0.0; canaries * canaries], vec![0.0; canaries]);
        Self { canaries, rate, noise, gram, aligned }
    }

    /// Takes in one release: the noised sum over the clip norm less what other rows gave to it, and
    /// the canaries' clipped gradients over the clip norm, one after another.
    pub fn see(&mut self, released: &[f32], gradients: &[f32]) -> Result<()> {
        let numbers = released.len();
        if gradients.len() != self.canaries * numbers {
            let found = format!("{} numbers of gradients", gradients.len());
            let expected = format!("{} canaries of {numbers} numbers", self.canaries);
            return Err(AuditError::setting("canaries", found, expected));
        }
        let device = Device::cpu();
        let rows = Tensor::from_slice(&device, self.canaries, numbers, gradients)?;
        let sum = Tensor::from_slice(&device, 1, numbers, released)?;
        let gram = product(rows.clone(), rows.clone(), None)?;
        let aligned = product(sum, rows, None)?;
        for (all, more) in [(&mut self.gram, gram), (&mut self.aligned, aligned)] {
            all.iter_mut()
                .zip(more.to_host().iter())
                .for_each(|(all, one)| *all += f64::from(*one));
        }
        Ok(())
    }

    /// For each canary how sure it is to be in, above zero, or out, below: a list for each share of the
    /// claimed noise that the attacker reckons with.
    pub fn beliefs(&self) -> Result<Vec<Vec<f64>>> {
        RECKONED.iter().map(|share| self.beliefs_under(share * self.noise)).collect()
    }

    fn beliefs_under(&self, noise: f64) -> Result<Vec<f64>> {
        let (size, square) = (self.canaries, self.rate * self.rate);
        let mut spread: Vec<f64> = self.gram.iter().map(|one| square * one).collect();
        for place in 0..size {
            spread[place * size + place] += 4.0 * noise * noise;
        }
        let inverse = inverse(&spread, size)?;
        let half = |row: &[f64]| 0.5 * square * row.iter().sum::<f64>();
        let seen: Vec<f64> = (self.gram.chunks(size.max(1)).zip(&self.aligned))
            .map(|(row, aligned)| self.rate * aligned - half(row))
            .collect();
        let belief = |row: &[f64]| row.iter().zip(&seen).map(|(a, b)| a * b).sum();
        Ok(inverse.chunks(size.max(1)).map(belief).collect())
    }
}

impl CanaryFinding {
    /// What is proved by several readings of the same releases, each with the evidence of all clients in
    /// order; the coins are those of all clients in order.
    pub fn of_readings(
        readings: &[Vec<CanaryEvidence>],
        coins: &[bool],
        trust: Confidence,
    ) -> Result<Self> {
        let mut lists = vec![Vec::with_capacity(coins.len()); readings.len() * RECKONED.len()];
        for (reading, clients) in readings.iter().enumerate() {
            for evidence in clients {
                for (place, list) in evidence.beliefs()?.into_iter().enumerate() {
                    lists[reading * RECKONED.len() + place].extend(list);
                }
            }
        }
        Self::of(&lists, coins, trust)
    }

    /// Guesses the canaries of which the attacker is surest, half of them in and half of them out, and
    /// says what the right guesses prove: the most of what each list of beliefs proves, at a confidence
    /// that holds for all of them together.
    pub fn of(beliefs: &[Vec<f64>], coins: &[bool], trust: Confidence) -> Result<Self> {
        let tries = (beliefs.len().max(1) * GUESSED.len()) as f64;
        let each = Confidence::new(trust.delta, 1.0 - (1.0 - trust.confidence) / tries)?;
        let mut best: Option<Self> = None;
        for list in beliefs {
            let found = Self::of_list(list, coins, (trust, each))?;
            if best.is_none_or(|best| found.epsilon > best.epsilon) {
                best = Some(found);
            }
        }
        best.ok_or_else(|| AuditError::setting("beliefs", "none", "at least one list"))
    }

    fn of_list(
        beliefs: &[f64],
        coins: &[bool],
        (trust, each): (Confidence, Confidence),
    ) -> Result<Self> {
        if beliefs.len() != coins.len() || beliefs.len() < 2 {
            let found = format!("{} beliefs about {} coins", beliefs.len(), coins.len());
            return Err(AuditError::setting("canaries", found, "one for each of two or more"));
        }
        if beliefs.iter().any(|belief| belief.is_nan()) {
            return Err(AuditError::setting("beliefs", "no number", "a number for each canary"));
        }
        let mut order: Vec<(f64, bool)> =
            beliefs.iter().copied().zip(coins.iter().copied()).collect();
        order.sort_by(|left, right| right.0.total_cmp(&left.0));
        let mut best: Option<Self> = None;
        for share in GUESSED {
            let side = ((share * order.len() as f64) as usize / 2).max(1);
            let found = order[..side].iter().filter(|(_, inside)| *inside).count();
            let missed = order[order.len() - side..].iter().filter(|(_, inside)| !*inside).count();
            let (guesses, right) = (2 * side as u64, (found + missed) as u64);
            let epsilon = OneRun::new(coins.len() as u64, guesses, right)?.epsilon(each);
            if best.is_none_or(|best| epsilon > best.epsilon) {
                best = Some(Self { canaries: coins.len(), guesses, right, epsilon, trust });
            }
        }
        Ok(best.expect("shares are tried"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_privacy::gaussian;
    use fedra_seed::Seed;

    const CANARIES: usize = 300;
    const NUMBERS: usize = 1200;

    /// Gradients of norm 1 that share a direction, as real ones do, and the bound that noise of
    /// this deviation leaves.
    fn bound(claimed: f64, real: f64, releases: u64) -> f64 {
        let mut generator = Seed(5).generator();
        let coins: Vec<bool> = (0..CANARIES).map(|_| generator.uniform() < 0.5).collect();
        let mut evidence = CanaryEvidence::new(CANARIES, 1.0, claimed);
        for _ in 0..releases {
            let mut gradients = Vec::with_capacity(CANARIES * NUMBERS);
            for _ in 0..CANARIES {
                let own: Vec<f64> = (0..NUMBERS).map(|_| 0.3 + generator.normal()).collect();
                let norm = own.iter().map(|one| one * one).sum::<f64>().sqrt();
                gradients.extend(own.iter().map(|one| (one / norm) as f32));
            }
            let mut sum: Vec<f32> =
                (0..NUMBERS).map(|_| (real * generator.normal()) as f32).collect();
            for (row, _) in gradients.chunks(NUMBERS).zip(&coins).filter(|(_, inside)| **inside) {
                sum.iter_mut().zip(row).for_each(|(sum, one)| *sum += one);
            }
            evidence.see(&sum, &gradients).unwrap();
        }
        let trust = Confidence::new(1e-5, 0.95).unwrap();
        CanaryFinding::of(&evidence.beliefs().unwrap(), &coins, trust).unwrap().epsilon
    }

    fn claim(noise: f64, releases: u64) -> f64 {
        gaussian::epsilon((releases as f64).sqrt() / noise, 1e-5)
    }

    #[test]
    fn honest_noise_stays_below_its_claim_and_shows_something() {
        for (noise, releases) in [(0.5, 1), (1.0, 1), (1.0, 4), (2.0, 1)] {
            let (found, claimed) = (bound(noise, noise, releases), claim(noise, releases));
            assert!(found < claimed, "noise {noise}: {found} above {claimed}");
        }
        assert!(bound(0.5, 0.5, 1) > 1.5, "{}", bound(0.5, 0.5, 1));
    }

    #[test]
    fn a_quarter_of_the_noise_is_above_the_claim() {
        // Where the claim is larger, or the noise that is left, 300 canaries prove too little.
        let (found, claimed) = (bound(3.0, 0.75, 1), claim(3.0, 1));
        assert!(found > claimed, "{found} below {claimed}");
    }

    #[test]
    fn coins_that_nothing_is_known_of_prove_nothing() {
        let trust = Confidence::new(1e-5, 0.95).unwrap();
        let coins: Vec<bool> = (0..200).map(|place| place % 2 == 0).collect();
        let found = CanaryFinding::of(&[vec![0.0; 200]], &coins, trust).unwrap();
        assert_eq!(found.epsilon, 0.0);
        let refused = |beliefs: &[Vec<f64>]| {
            CanaryFinding::of(beliefs, &[true, false], trust).unwrap_err().to_string()
        };
        assert!(refused(&[vec![0.0]]).contains("1 beliefs about 2 coins"));
        assert!(refused(&[vec![0.0, f64::NAN]]).contains("no number"));
        assert!(refused(&[]).contains("at least one list"));
        assert!(CanaryEvidence::new(2, 1.0, 1.0).see(&[0.0; 3], &[0.0; 5]).is_err());
    }
}
