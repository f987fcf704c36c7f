//! Attention of new tokens over caches, which take their keys and values. Nothing can be trained through a cache.

use super::attention::Projected;
use super::record::Tape;
use crate::cpu::rotary::Angles;
use crate::error::ComputeError;
use crate::geometry::{Attention, Span};
use crate::kernels::{self, Attended};
use crate::tensor::Tensor;
use crate::value::Value;
use std::sync::Arc;

/// Positions of rows and their angles.
pub type Turned<'a> = (&'a [u32], &'a Arc<Angles>);

impl Tape {
    /// Turns queries and keys where there are angles, adds the keys and values of each span to its cache, and
    /// attends over it. Queries, keys and values are side by side in `projected`. On an error, a cache may have rows
    /// behind those that it had.
    pub fn cached_attention(
        &mut self,
        geometry: Attention,
        projected: Value,
        turned: Option<Turned<'_>>,
        (spans, mut caches): (&[Span], Vec<&mut Tensor>),
    ) -> Result<Value, ComputeError> {
        let Attention { heads, kv_heads, width, .. } = geometry;
        let columns = heads.saturating_add(kv_heads.saturating_mul(2)).saturating_mul(width);
        let found = projected.tensor.cols();
        ComputeError::expect("attention", "projected columns", found, columns)?;
        ComputeError::expect("attention", "number of caches", caches.len(), spans.len())?;
        if projected.slot.is_some() {
            return Err(ComputeError::NoBackward { operation: "attention over a cache" });
        }
        if self.decodes_at_once(geometry, &projected, (spans, &caches)) {
            for (cache, span) in caches.iter_mut().zip(spans) {
                cache.grow(span.queries.len());
                ComputeError::expect("attention", "keys of a cache", span.keys.end, cache.rows())?;
            }
            let mut out = Tensor::activation(&self.device, projected.tensor.rows(), heads * width);
            let keys_values: Vec<&Tensor> = caches.iter().map(|cache| &**cache).collect();
            let given = attended(geometry, &projected, (spans, &keys_values));
            let turned = turned.map(|(positions, angles)| (positions, &**angles));
            kernels::attention_decoding(&given, turned, &mut out);
            return Ok(self.constant(out).with_rows_of(&projected));
        }
        let projected = match turned {
            Some((positions, angles)) => {
                self.rotary(projected, heads + kv_heads, positions, angles)?
            }
            None => projected,
        };
        for (cache, span) in caches.iter_mut().zip(spans) {
            cache.append_columns(&projected.tensor, span.queries.clone(), heads * width)?;
        }
        let keys_values: Vec<&Tensor> = caches.iter().map(|cache| &**cache).collect();
        let cached = Projected::Cached { queries: &projected, keys_values: &keys_values };
        self.attention(geometry, cached, spans, None)
    }

    fn decodes_at_once(
        &self,
        geometry: Attention,
        projected: &Value,
        (spans, caches): (&[Span], &[&mut Tensor]),
    ) -> bool {
        let keys_values: Vec<&Tensor> = caches.iter().map(|cache| &**cache).collect();
        let given = attended(geometry, projected, (spans, &keys_values));
        kernels::decodes_at_once(&self.device, &given)
    }
}

fn attended<'a>(
    geometry: Attention,
    projected: &'a Value,
    (spans, keys_values): (&'a [Span], &'a [&'a Tensor]),
) -> Attended<'a> {
    Attended { geometry, spans, queries: &projected.tensor, keys_values, key_column: 0 }
}
