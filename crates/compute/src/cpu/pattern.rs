//! Attention as a matrix, for those who want to look at it: `P = softmax(s Q K^T)`, row by row.
//!
//! The fused kernel never holds it. This one is plain and slow, meant for a handful of short
//! sequences, and computes each row by itself in a fixed order, so the same inputs give the same
//! bits.

use super::attention_inputs::Inputs;
use crate::geometry::{Attention, Span};

/// For each span, head and query, the weights of all of the span's keys; zero where the mask hides
/// a key.
pub fn pattern(geometry: Attention, spans: &[Span], inputs: Inputs<'_>) -> Vec<f32> {
    let Attention { heads, kv_heads, width, .. } = geometry;
    let numbers: usize = spans.iter().map(|span| span.queries.len() * span.keys.len()).sum();
    let mut all = Vec::with_capacity(heads * numbers);
    for (number, span) in spans.iter().enumerate() {
        let (q, [k, _]) = (inputs.q, inputs.of_span(number));
        for head in 0..heads {
            let (q_column, k_column) =
                (q.column + head * width, k.column + head / (heads / kv_heads) * width);
            for (place, query) in span.queries.clone().enumerate() {
                let query = &q.data[query * q.stride + q_column..][..width];
                let seen = geometry.visible(span, place);
                let score = |key: usize| {
                    let key = &k.data[key * k.stride + k_column..][..width];
                    let products =
                        query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k));
                    let score = f64::from(geometry.scale) * products.sum::<f64>();
                    geometry.soft_cap.map(f64::from).map_or(score, |cap| cap * (score / cap).tanh())
                };
                let scores: Vec<f64> =
                    seen.clone().map(|key| score(span.keys.start + key)).collect();
                let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let powers: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
                let sum: f64 = powers.iter().sum();
                all.extend(std::iter::repeat_n(0.0, seen.start));
                all.extend(powers.iter().map(|power| (power / sum) as f32));
                all.extend(std::iter::repeat_n(0.0, span.keys.len() - seen.end));
            }
        }
    }
    all
}
