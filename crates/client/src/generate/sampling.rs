//! Which token follows: the likeliest one, or a draw from a filtered distribution.
//!
//! Filters apply in the order that users of other libraries know: temperature, then top-k, then
//! top-p. Every draw has a seed of its own, made from the seed and the token's number, so a
//! generation that was interrupted continues as if it had not been.
//!
//! ```text
//! p = softmax(logits / temperature)      over the k likeliest (ties with the last one stay)
//! a token goes if it and all less likely ones together have at most 1 - top_p
//! ```

use crate::logits::highest;
use crate::{ClientError, Result};
use fedra_compute::Tensor;
use fedra_seed::Seed;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Sampling {
    /// The likeliest token; of equal ones the one with the lowest number.
    #[default]
    Greedy,
    /// A draw.
    Random(RandomSampling),
}

/// A draw from the filtered distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomSampling {
    /// Logits are divided by it: below 1 sharpens, above 1 flattens.
    pub temperature: f64,
    /// Only this many of the likeliest tokens, if given.
    pub top_k: Option<usize>,
    /// Only the smallest set of likeliest tokens that holds this probability, if given.
    pub top_p: Option<f64>,
    /// What all draws start from.
    pub seed: Seed,
}

/// A token that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Its number.
    pub token: u32,
    /// Its share among the candidates.
    pub probability: f64,
}

impl Sampling {
    /// Refuses settings under which nothing could be drawn.
    pub fn check(&self) -> Result<()> {
        let Self::Random(RandomSampling { temperature, top_k, top_p, .. }) = *self else {
            return Ok(());
        };
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(ClientError::generate("temperature", temperature, "a number above 0"));
        }
        if top_k == Some(0) {
            return Err(ClientError::generate("top_k", 0, "at least 1"));
        }
        match top_p {
            Some(top_p) if !(top_p > 0.0 && top_p <= 1.0) => {
                Err(ClientError::generate("top_p", top_p, "above 0 and at most 1"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The token that follows a row of logits, as number `index` of those generated. The likeliest is found where
    /// the logits are.
    pub fn choose_from(&self, logits: &Tensor, index: u64) -> Result<u32> {
        match (self, logits.argmax().first().copied().flatten()) {
            (Self::Greedy, Some(likeliest)) => Ok(likeliest),
            (Self::Greedy | Self::Random(_), _) => self.choose(&logits.to_host(), index),
        }
    }

    /// The token that follows, as number `index` of those generated.
    pub fn choose(&self, logits: &[f32], index: u64) -> Result<u32> {
        if let Some(at) = logits.iter().position(|logit| logit.is_nan()) {
            return Err(ClientError::generate("logits", format!("NaN for token {at}"), "numbers"));
        }
        if logits.is_empty() {
            return Err(ClientError::generate("logits", "none", "one for each word"));
        }
        let likeliest = highest(logits);
        match self {
            Self::Greedy => Ok(likeliest),
            Self::Random(random) => {
                let seed = random.seed.of("token").with(index);
                let mut left = seed.generator().uniform();
                for candidate in random.candidates(logits) {
                    left -= candidate.probability;
                    if left < 0.0 {
                        return Ok(candidate.token);
                    }
                }
                // Shares that round to a little less than one leave the rest to the likeliest.
                Ok(likeliest)
            }
        }
    }
}

impl RandomSampling {
    /// The tokens that may be drawn, likeliest first; equal ones by number.
    pub fn candidates(&self, logits: &[f32]) -> Vec<Candidate> {
        let mut kept: Vec<(u32, f64)> = (0..)
            .zip(logits)
            .map(|(id, logit)| (id, f64::from(*logit) / self.temperature))
            .collect();
        if let Some(k) = self.top_k.filter(|k| *k < kept.len()) {
            let (_, last, _) = kept.select_nth_unstable_by(k - 1, |a, b| b.1.total_cmp(&a.1));
            let least = last.1;
            kept.retain(|(_, logit)| *logit >= least);
        }
        let highest = kept.iter().fold(f64::NEG_INFINITY, |most, (_, logit)| most.max(*logit));
        // Infinite logits share everything among themselves, as their limit would.
        let weight = |logit: f64| if logit == highest { 1.0 } else { (logit - highest).exp() };
        for (_, logit) in &mut kept {
            *logit = weight(*logit);
        }
        kept.sort_unstable_by_key(|(id, _)| *id); // the order of the sum
        let total: f64 = kept.iter().map(|(_, weight)| weight).sum();
        if let Some(top_p) = self.top_p {
            kept = within(kept, total, top_p);
        }
        kept.retain(|(_, weight)| *weight > 0.0);
        kept.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let total: f64 = kept.iter().map(|(_, weight)| weight).sum();
        let candidate = |(token, weight)| Candidate { token, probability: weight / total };
        kept.into_iter().map(candidate).collect()
    }
}

/// The likeliest tokens without those that, with all less likely ones, have at most `1 - top_p`.
fn within(weights: Vec<(u32, f64)>, total: f64, top_p: f64) -> Vec<(u32, f64)> {
    let tail = (1.0 - top_p) * total;
    // What is this light goes in any case, and need not be sorted: all of them together are in
    // the tail.
    let light = tail / weights.len() as f64;
    let (mut rest, mut kept) = (0.0, Vec::new());
    let highest = weights.iter().fold(0.0f64, |most, (_, weight)| most.max(*weight));
    for (id, weight) in weights {
        if weight <= light && weight < highest {
            rest += weight;
        } else {
            kept.push((id, weight));
        }
    }
    kept.sort_unstable_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
    let last = kept.len().saturating_sub(1);
    let gone = kept[..last]
        .iter()
        .take_while(|(_, weight)| {
            rest += weight;
            rest <= tail
        })
        .count();
    kept.drain(..gone);
    kept
}
