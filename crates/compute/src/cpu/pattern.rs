//! Attention as a matrix, for those who want to look at it: `P = softmax(s Q K^T)`, row by row.
//!
//! The fused kernel never holds it. This one is plain and slow, meant for a handful of short
//! sequences, and computes each row by itself in a fixed order, so the same inputs give the same
//! bits.

use super::attention_inputs::Inputs;
use crate::geometry::{Attention, Mask, Span};

/// For each span, head and query, the weights of all of the span's keys; zero where the mask hides
/// a key.
pub fn pattern(geometry: Attention, spans: &[Span], inputs: Inputs<'_>) -> Vec<f32> {
    let Attention { heads, kv_heads, width, mask } = geometry;
    let numbers: usize = spans.iter().map(|span| span.queries.len() * span.keys.len()).sum();
    let scale = 1.0 / (width as f64).sqrt();
    let mut all = Vec::with_capacity(heads * numbers);
    for (number, span) in spans.iter().enumerate() {
        let (q, [k, _]) = (inputs.q, inputs.of_span(number));
        for head in 0..heads {
            let (q_column, k_column) =
                (q.column + head * width, k.column + head / (heads / kv_heads) * width);
            for (place, query) in span.queries.clone().enumerate() {
                let query = &q.data[query * q.stride + q_column..][..width];
                let seen = match mask {
                    Mask::Bidirectional => span.keys.len(),
                    Mask::Causal => (span.offset + place + 1).min(span.keys.len()),
                };
                let score = |key: usize| {
                    let key = &k.data[key * k.stride + k_column..][..width];
                    let products =
                        query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k));
                    scale * products.sum::<f64>()
                };
                let scores: Vec<f64> = span.keys.clone().take(seen).map(score).collect();
                let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let powers: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
                let sum: f64 = powers.iter().sum();
                all.extend(powers.iter().map(|power| (power / sum) as f32));
                all.extend(std::iter::repeat_n(0.0, span.keys.len() - seen));
            }
        }
    }
    all
}
