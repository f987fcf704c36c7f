//! Attention. Saves its projected inputs and one number per query and head.
//!
//! A probe reads the attention that passes by, without keeping any of it: the score of a block is a
//! share in [0, 1], the same whatever the lengths in the batch.

use super::{Flow, Recorded, Slot, Tape, Value};
use crate::cpu::attention::{self as kernel, Columns, Geometry, Inputs, ProbeWeights, Target};
pub use crate::cpu::attention::{Geometry as Attention, Span};
use crate::cpu::pattern::pattern;
use crate::cpu::shared::Shared;
use crate::device::Device;
use crate::error::ComputeError;
use crate::tensor::Tensor;

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
    /// Receives one score per sequence for each attention that it watched, in order.
    pub scores: Vec<Vec<f64>>,
    /// Receives, for each attention that it watched, what each key head adds to the scores of all
    /// sequences; query heads that share a key head count together.
    pub heads: Vec<Vec<f64>>,
    /// When given, receives the whole of each attention that it watched: by sequence, head, query
    /// and key. That takes memory by the square of the length; give it few and short sequences.
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
        let layout = Layout::of(geometry, projected)?;
        layout.check(spans)?;
        let (rows, wanted) = (layout.queries.tensor.rows(), layout.wanted());
        let mut out = Tensor::scratch(&self.device, rows, geometry.heads * geometry.width);
        let mut log_sums = wanted.then(|| Tensor::scratch(&self.device, rows, geometry.heads));
        let weights =
            probe.as_ref().map(|probe| ProbeWeights { queries: &probe.queries, keys: &probe.keys });
        if let Some(weights) = weights {
            ComputeError::expect("attention probe", "query weights", weights.queries.len(), rows)?;
            let keys = layout.keys_values.tensor.rows();
            ComputeError::expect("attention probe", "key weights", weights.keys.len(), keys)?;
        }
        let masses = match &self.device {
            Device::Cpu(pool) => kernel::forward(
                pool,
                geometry,
                spans,
                layout.inputs(),
                out.data_mut(),
                log_sums.as_mut().map(Tensor::data_mut),
                weights,
            ),
        };
        if let Some(probe) = probe {
            let share = |span: &Span, mass: f64| {
                let counted: f32 = probe.queries[span.queries.clone()].iter().sum();
                if counted > 0.0 {
                    mass / (geometry.heads as f64 * f64::from(counted))
                } else {
                    0.0
                }
            };
            let by_head = || spans.iter().zip(masses.chunks_exact(geometry.kv_heads));
            let score = |(span, heads): (&Span, &[f64])| share(span, heads.iter().sum());
            let mut heads = vec![0.0; geometry.kv_heads];
            for (span, masses) in by_head() {
                heads.iter_mut().zip(masses).for_each(|(sum, mass)| *sum += share(span, *mass));
            }
            probe.scores.push(by_head().map(score).collect());
            probe.heads.push(heads);
            if let Some(patterns) = &mut probe.patterns {
                patterns.push(match &self.device {
                    Device::Cpu(_) => pattern(geometry, spans, layout.inputs()),
                });
            }
        }
        let Some(log_sums) = log_sums else { return Ok(self.constant(out)) };
        Ok(self.finish(out, wanted, |result| Attended {
            result,
            layout,
            spans: spans.to_vec(),
            log_sums,
        }))
    }
}

/// The projected tensors and where the columns of each kind start.
#[derive(Debug)]
struct Layout {
    geometry: Geometry,
    queries: Value,
    keys_values: Value,
    key_column: usize,
}

impl Layout {
    fn of(geometry: Geometry, projected: Projected<'_>) -> Result<Self, ComputeError> {
        let Geometry { heads, kv_heads, width, .. } = geometry;
        if kv_heads == 0 || heads % kv_heads != 0 {
            let (found, expected) = (format!("{kv_heads}"), format!("a divisor of {heads}"));
            let (operation, what) = ("attention", "number of key heads");
            return Err(ComputeError::Shape { operation, what, found, expected });
        }
        let (queries, keys_values, key_column) = match projected {
            Projected::Together(all) => (all, all, heads * width),
            Projected::Apart { queries, keys_values } => {
                let found = queries.tensor.cols();
                ComputeError::expect("attention", "query columns", found, heads * width)?;
                (queries, keys_values, 0)
            }
        };
        let (found, expected) = (keys_values.tensor.cols(), key_column + 2 * kv_heads * width);
        ComputeError::expect("attention", "projected columns", found, expected)?;
        Ok(Self {
            geometry,
            queries: queries.clone(),
            keys_values: keys_values.clone(),
            key_column,
        })
    }

    /// Spans must tile the query rows and the key rows, in order.
    fn check(&self, spans: &[Span]) -> Result<(), ComputeError> {
        let (mut query, mut key) = (0, 0);
        for span in spans {
            ComputeError::expect("attention", "start of queries", span.queries.start, query)?;
            ComputeError::expect("attention", "start of keys", span.keys.start, key)?;
            (query, key) = (span.queries.end.max(query), span.keys.end.max(key));
            if span.keys.is_empty() || span.queries.is_empty() {
                return Err(ComputeError::Empty { operation: "attention", what: "sequence" });
            }
        }
        ComputeError::expect("attention", "query rows", query, self.queries.tensor.rows())?;
        ComputeError::expect("attention", "key rows", key, self.keys_values.tensor.rows())
    }

    fn wanted(&self) -> bool {
        self.queries.slot.is_some() || self.keys_values.slot.is_some()
    }

    fn together(&self) -> bool {
        self.key_column > 0
    }

    fn inputs(&self) -> Inputs<'_> {
        let (queries, keys_values) = (&self.queries.tensor, &self.keys_values.tensor);
        let stride = keys_values.cols();
        let value_column = self.key_column + self.geometry.kv_heads * self.geometry.width;
        Inputs {
            q: Columns { data: queries.data(), stride: queries.cols(), column: 0 },
            k: Columns { data: keys_values.data(), stride, column: self.key_column },
            v: Columns { data: keys_values.data(), stride, column: value_column },
        }
    }
}

#[derive(Debug)]
struct Attended {
    result: Slot,
    layout: Layout,
    spans: Vec<Span>,
    log_sums: Tensor,
}

impl Recorded for Attended {
    fn backward(self: Box<Self>, flow: &mut Flow) {
        let Some(dout) = flow.take(self.result) else { return };
        let layout = &self.layout;
        let gradient_of =
            |tensor: &Tensor| Tensor::scratch(&flow.device, tensor.rows(), tensor.cols());
        let mut d_keys_values = gradient_of(&layout.keys_values.tensor);
        let mut d_queries = (!layout.together()).then(|| gradient_of(&layout.queries.tensor));
        let inputs = layout.inputs();
        let target = |data, columns: Columns<'_>| {
            let Columns { stride, column, .. } = columns;
            Target { data, stride, column }
        };
        let shared = Shared::new(d_keys_values.data_mut());
        let into_queries = match &mut d_queries {
            Some(apart) => Shared::new(apart.data_mut()),
            None => shared,
        };
        let into =
            [target(into_queries, inputs.q), target(shared, inputs.k), target(shared, inputs.v)];
        match &flow.device {
            Device::Cpu(pool) => kernel::backward(
                pool,
                layout.geometry,
                &self.spans,
                inputs,
                self.log_sums.data(),
                dout.data(),
                into,
            ),
        }
        flow.add(layout.keys_values.slot, d_keys_values);
        if let Some(d_queries) = d_queries {
            flow.add(layout.queries.slot, d_queries);
        }
    }
}
