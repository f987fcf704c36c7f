//! Attention. Saves its projected inputs and one number per query and head.
//!
//! Keys and values come from the same projection as the queries, from one of their own, or from a
//! cache for each sequence. A probe reads the attention that passes by, without keeping any of it:
//! the score of a block is a share in [0, 1], the same whatever the lengths in the batch.

use super::record::{Flow, Tape, wanted};
use crate::error::ComputeError;
use crate::geometry::{Attention, Mask, Span};
use crate::kernels::{self, Attended, ProbeWeights};
use crate::tensor::Tensor;
use crate::value::Value;

/// Queries, keys and values as the projections left them.
#[derive(Clone, Copy, Debug)]
pub enum Projected<'a> {
    /// One tensor with the columns of query, key and value side by side.
    Together(&'a Value),
    /// Queries for some rows only, key and value side by side for all.
    Apart {
        /// Queries.
        queries: &'a Value,
        /// Keys, then values.
        keys_values: &'a Value,
    },
    /// Queries of new tokens; the keys and values of each sequence, the new ones among them, are in a
    /// tensor of its own. Nothing can be trained through a cache.
    Cached {
        /// Queries.
        queries: &'a Value,
        /// For each span, keys, then values.
        keys_values: &'a [&'a Tensor],
    },
}

/// Which attention to count: that from weighted queries to weighted keys.
///
/// Per sequence, `score = sum over heads, i, j of q_i P_ij k_j / (heads * sum of q_i)`. All ones on
/// the queries and ones on the relevant keys give the key side (attention paid *to* `[CLS]` or to
/// entities); a one on the predicting query and ones on content keys give the query side.
#[derive(Clone, Debug)]
pub struct AttentionProbe {
    /// One weight per query row.
    pub queries: Vec<f32>,
    /// One weight per key row.
    pub keys: Vec<f32>,
    /// Receives one score per sequence for each attention layer it watched, in order.
    pub scores: Vec<Vec<f64>>,
    /// Receives, for each attention layer it watched, what each key head adds to the scores of all
    /// sequences; query heads that share a key head count together.
    pub heads: Vec<Vec<f64>>,
    /// When given, receives for each attention layer it watched and each key row the share of its
    /// sequence's attention that this key gets; weights of keys do not count here. The shares of the
    /// relevant keys add up to the sequence's score.
    pub received: Option<Vec<Vec<f32>>>,
    /// When given, receives all weights of each attention layer it watched: by sequence, head, query
    /// and key. Memory grows with the square of the length; use few and short sequences.
    pub patterns: Option<Vec<Vec<f32>>>,
}

impl Tape {
    /// Attention of each span's queries over its keys.
    pub fn attention(
        &mut self,
        geometry: Attention,
        projected: Projected<'_>,
        spans: &[Span],
        probe: Option<&mut AttentionProbe>,
    ) -> Result<Value, ComputeError> {
        let (queries, own, keys_values, key_column) = sources(geometry, projected)?;
        let given = Attended {
            geometry,
            spans,
            queries: &queries.tensor,
            keys_values: &keys_values,
            key_column,
        };
        check_spans(&given, own.is_none())?;
        // What wants a gradient, if anything does: queries, and keys and values, which may be one value.
        let trained = match own {
            None if queries.slot.is_some() => {
                return Err(ComputeError::NoBackward { operation: "attention over a cache" });
            }
            None => None,
            Some(own) => wanted(&[queries, own], &[]).then(|| (queries.clone(), own.clone())),
        };
        let rows = queries.tensor.rows();
        let mut out = Tensor::activation(&self.device, rows, geometry.heads * geometry.width);
        let mut log_sums =
            trained.is_some().then(|| Tensor::scratch(&self.device, rows, geometry.heads));
        let mut received = probe.as_deref().and_then(|probe| probe.room_for_received(geometry));
        let room = received.as_deref_mut();
        let weights = probe.as_deref().map(|probe| probe.weights(&given, room)).transpose()?;
        let into = (&mut out, log_sums.as_mut());
        let masses = kernels::attention(&self.device, &given, into, weights);
        if let Some(probe) = probe {
            probe.record(geometry, spans, &masses);
            if let Some(received) = received {
                probe.record_received(geometry, spans, &received);
            }
            if let Some(patterns) = &mut probe.patterns {
                patterns.push(kernels::attention_pattern(&self.device, &given));
            }
        }
        let (Some(log_sums), Some((own_queries, keys_values))) = (log_sums, trained) else {
            return Ok(self.constant(out).with_rows_of(queries));
        };
        let kept = self.device.reads_attention_results().then(|| out.clone());
        let out = self.finish(out, true, || {
            let (queries, spans) = (own_queries, spans.to_vec());
            move |flow: &mut Flow, dout: Tensor| {
                let gradient_of = |value: &Value| {
                    let (rows, cols) = value.tensor.shape();
                    Tensor::activation(&flow.device, rows, cols)
                };
                let mut d_keys_values = gradient_of(&keys_values);
                let mut d_queries = (key_column == 0).then(|| gradient_of(&queries));
                let given = Attended {
                    geometry,
                    spans: &spans,
                    queries: &queries.tensor,
                    keys_values: &[&keys_values.tensor],
                    key_column,
                };
                let into = (d_queries.as_mut(), &mut d_keys_values);
                let saved = (kept.as_ref(), &log_sums, &dout);
                kernels::attention_backward(&flow.device, &given, saved, into);
                flow.add(keys_values.slot, d_keys_values);
                if let Some(d_queries) = d_queries {
                    flow.add(queries.slot, d_queries);
                }
            }
        });
        Ok(out.with_rows_of(queries))
    }
}

/// Queries, the value that keys and values are in unless it is caches, their tensors, and the column
/// where the keys begin.
type Sources<'a> = (&'a Value, Option<&'a Value>, Vec<&'a Tensor>, usize);

/// What attention reads; checks the columns.
fn sources(geometry: Attention, projected: Projected<'_>) -> Result<Sources<'_>, ComputeError> {
    let Attention { heads, kv_heads, width, .. } = geometry;
    ComputeError::not_empty("attention", "set of heads", heads.min(width))?;
    ComputeError::positive("scale of attention scores", geometry.scale)?;
    geometry.soft_cap.map_or(Ok(()), |cap| ComputeError::positive("soft cap of scores", cap))?;
    if kv_heads == 0 || heads % kv_heads != 0 {
        let (what, expected) = ("number of key heads", format!("a divisor of {heads}"));
        return Err(ComputeError::shape("attention", what, kv_heads.to_string(), expected));
    }
    let query_columns = heads.saturating_mul(width);
    let (queries, own, keys_values, key_column) = match projected {
        Projected::Together(all) => (all, Some(all), vec![&all.tensor], query_columns),
        Projected::Apart { queries, keys_values: own } => {
            (queries, Some(own), vec![&own.tensor], 0)
        }
        Projected::Cached { queries, keys_values } => (queries, None, keys_values.to_vec(), 0),
    };
    let found = queries.tensor.cols();
    match own {
        Some(_) if key_column > 0 => {}
        Some(_) => ComputeError::expect("attention", "query columns", found, query_columns)?,
        // Their own keys and values may stand behind the queries.
        None if found >= query_columns => {}
        None => {
            let expected = format!("at least {query_columns}");
            let (what, found) = ("query columns", found.to_string());
            return Err(ComputeError::shape("attention", what, found, expected));
        }
    }
    let pairs = kv_heads.saturating_mul(width).saturating_mul(2);
    for tensor in &keys_values {
        let expected = key_column.saturating_add(pairs);
        ComputeError::expect("attention", "projected columns", tensor.cols(), expected)?;
    }
    Ok((queries, own, keys_values, key_column))
}

/// Spans must tile the query rows and, unless each sequence has a cache, the key rows, in order.
fn check_spans(given: &Attended<'_>, cached: bool) -> Result<(), ComputeError> {
    let Attended { geometry, spans, queries, keys_values, .. } = *given;
    if cached {
        ComputeError::expect("attention", "number of caches", keys_values.len(), spans.len())?;
        for (span, cache) in spans.iter().zip(keys_values) {
            let (found, expected) = ((span.keys.start, span.keys.end), (0, cache.rows()));
            ComputeError::expect("attention", "keys of a cache", found, expected)?;
        }
    }
    let (mut query, mut key) = (0, 0);
    for span in spans {
        ComputeError::expect("attention", "start of queries", span.queries.start, query)?;
        if !cached {
            ComputeError::expect("attention", "start of keys", span.keys.start, key)?;
        }
        (query, key) = (span.queries.end.max(query), span.keys.end.max(key));
        let shorter = span.keys.len().min(span.queries.len());
        ComputeError::not_empty("attention", "sequence", shorter)?;
        let last = span.offset.saturating_add(span.queries.len());
        let is_placed = geometry.mask == Mask::Causal || geometry.window.is_some();
        if is_placed && last > span.keys.len() {
            let expected = format!("at most {}", span.keys.len());
            let what = "position behind the last query";
            return Err(ComputeError::shape("attention", what, last.to_string(), expected));
        }
    }
    ComputeError::expect("attention", "query rows", query, queries.rows())?;
    if cached {
        return Ok(());
    }
    ComputeError::expect("attention", "key rows", key, keys_values[0].rows())
}

impl AttentionProbe {
    fn room_for_received(&self, geometry: Attention) -> Option<Vec<f32>> {
        self.received.as_ref().map(|_| vec![0.0; geometry.kv_heads * self.keys.len()])
    }

    fn weights<'a>(
        &'a self,
        given: &Attended<'_>,
        received: Option<&'a mut [f32]>,
    ) -> Result<ProbeWeights<'a>, ComputeError> {
        let (rows, keys) =
            (given.queries.rows(), given.keys_values.first().map_or(0, |k| k.rows()));
        ComputeError::expect("attention probe", "tensors of keys", given.keys_values.len(), 1)?;
        ComputeError::expect("attention probe", "query weights", self.queries.len(), rows)?;
        ComputeError::expect("attention probe", "key weights", self.keys.len(), keys)?;
        Ok(ProbeWeights { queries: &self.queries, keys: &self.keys, received })
    }

    /// Notes the attention that each key got, of all heads together.
    fn record_received(&mut self, geometry: Attention, spans: &[Span], by_head: &[f32]) {
        let mut shares = vec![0.0; self.keys.len()];
        for span in spans {
            let counted: f32 = self.queries[span.queries.clone()].iter().sum();
            if counted <= 0.0 {
                continue;
            }
            for key in span.keys.clone() {
                let all: f32 = by_head.iter().skip(key).step_by(self.keys.len()).sum();
                shares[key] = all / (geometry.heads as f32 * counted);
            }
        }
        self.received.get_or_insert_default().push(shares);
    }

    /// Notes the attention that counted, by span and key head.
    fn record(&mut self, geometry: Attention, spans: &[Span], masses: &[f64]) {
        let share = |span: &Span, mass: f64| {
            let counted: f32 = self.queries[span.queries.clone()].iter().sum();
            if counted > 0.0 { mass / (geometry.heads as f64 * f64::from(counted)) } else { 0.0 }
        };
        let by_head = || spans.iter().zip(masses.chunks_exact(geometry.kv_heads));
        let score = |(span, heads): (&Span, &[f64])| share(span, heads.iter().sum());
        let mut heads = vec![0.0; geometry.kv_heads];
        for (span, masses) in by_head() {
            heads.iter_mut().zip(masses).for_each(|(sum, mass)| *sum += share(span, *mass));
        }
        let scores = by_head().map(score).collect();
        self.scores.push(scores);
        self.heads.push(heads);
    }
}
