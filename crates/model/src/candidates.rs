//! The tokens that may be drawn, by logits and filters.
//!
//! Filters apply in the order that users of other libraries know: temperature, then top-k, then top-p. A row of logits
//! is as long as the vocabulary and comes with every token, so this stands with the model, whose passes are optimised.

use fedra_compute::Seed;

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
