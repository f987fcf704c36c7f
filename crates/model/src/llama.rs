//! LLaMA (Touvron et al. 2023, <https://arxiv.org/abs/2302.13971>): pre-norm decoder blocks with
//! rotary positions, grouped-query attention and SwiGLU.
//!
//! ```text
//! x = h + O attention(rope(Q n), rope(K n), V n)   where n = rms(h)
//! h = x + Down (silu(Gate m) * Up m)               where m = rms(x)
//! ```

use crate::batch::Batch;
use crate::error::ModelError;
use crate::hf::LlamaConfig;
use crate::packing::Packing;
use crate::parts::Parts;
use crate::reading::Reading;
use fedra_compute::{
    Activation, Angles, Attention, AttentionProbe, Mask, Projected, Span, Tape, Tensor, Value,
};
use fedra_plan::Role;
use std::sync::{Arc, PoisonError, RwLock};

/// A LLaMA decoder's structure.
#[derive(Clone, Debug)]
pub struct Llama {
    config: LlamaConfig,
    angles: Arc<RwLock<Arc<Angles>>>,
}

impl Llama {
    /// The decoder that a configuration describes.
    pub fn new(config: LlamaConfig) -> Self {
        let angles = Arc::new(Angles::new(0, config.head_dim, config.rope_theta));
        Self { config, angles: Arc::new(RwLock::new(angles)) }
    }

    /// Its configuration.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// Token ids to hidden states.
    pub fn embed(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        batch: &Batch,
    ) -> Result<Value, ModelError> {
        Ok(tape.embed(&[(&parts.weight(Role::Token)?, batch.ids())])?)
    }

    /// One block. When only some rows are read afterwards, everything behind keys and values is
    /// computed for those rows alone.
    pub fn block(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        hidden: &Value,
        (spans, reading, positions): (&[Span], &Reading, &[u32]),
        probe: Option<&mut AttentionProbe>,
    ) -> Result<Value, ModelError> {
        let [query, key, value] =
            [Role::Query, Role::Key, Role::Value].map(|r| parts.projection(r));
        let (query, key, value) = (query?, key?, value?);
        let geometry = self.geometry();
        let angles = self.angles(positions);
        let normed = self.norm(tape, parts, hidden, Role::AttentionNorm)?;
        let (attended, residual) = match reading {
            Reading::All => {
                let together = tape.linear(&normed, &[query, key, value])?;
                let turning = geometry.heads + geometry.kv_heads;
                let together = tape.rotary(together, turning, positions, &angles)?;
                let projected = Projected::Together(&together);
                (tape.attention(geometry, projected, spans, probe)?, hidden.clone())
            }
            Reading::Rows(rows) => {
                let (read, normed_read) = (tape.rows(hidden, rows)?, tape.rows(&normed, rows)?);
                let keys_values = tape.linear(&normed, &[key, value])?;
                let keys_values =
                    tape.rotary(keys_values, geometry.kv_heads, positions, &angles)?;
                let queries = tape.linear(&normed_read, &[query])?;
                let at: Vec<u32> = rows.iter().map(|&row| positions[row as usize]).collect();
                let queries = tape.rotary(queries, geometry.heads, &at, &angles)?;
                let projected = Projected::Apart { queries: &queries, keys_values: &keys_values };
                (tape.attention(geometry, projected, spans, probe)?, read)
            }
        };
        drop(normed);
        self.behind_attention(tape, parts, attended, residual)
    }

    /// One block over new rows of sequences whose keys and values are kept; theirs are added.
    pub(crate) fn cached_block(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        hidden: &Value,
        (packing, positions): (&Packing, &[u32]),
        kept: Vec<&mut Tensor>,
    ) -> Result<Value, ModelError> {
        let geometry = self.geometry();
        let angles = self.angles(positions);
        let normed = self.norm(tape, parts, hidden, Role::AttentionNorm)?;
        let queries = tape.linear(&normed, &[parts.projection(Role::Query)?])?;
        let queries = tape.rotary(queries, geometry.heads, positions, &angles)?;
        let both = [parts.projection(Role::Key)?, parts.projection(Role::Value)?];
        let new = tape.linear(&normed, &both)?;
        let new = tape.rotary(new, geometry.kv_heads, positions, &angles)?;
        drop(normed);
        let mut keys_values = Vec::with_capacity(kept.len());
        for (kept, rows) in kept.into_iter().zip(packing.boundaries().ranges()) {
            kept.append_rows(&new.tensor, rows)?;
            keys_values.push(&*kept);
        }
        let projected = Projected::Cached { queries: &queries, keys_values: &keys_values };
        let attended = tape.attention(geometry, projected, &packing.cached_spans(), None)?;
        self.behind_attention(tape, parts, attended, hidden.clone())
    }

    /// The rest of a block.
    fn behind_attention(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        attended: Value,
        residual: Value,
    ) -> Result<Value, ModelError> {
        let x = tape.linear_onto(&attended, &parts.projection(Role::Output)?, &residual)?;
        drop((attended, residual));
        let normed = self.norm(tape, parts, &x, Role::MlpNorm)?;
        let wide = [parts.projection(Role::Gate)?, parts.projection(Role::Up)?];
        let gated = tape.linear(&normed, &wide)?;
        drop(normed);
        let inner = tape.gated(&gated, Activation::Silu)?;
        drop(gated);
        Ok(tape.linear_onto(&inner, &parts.projection(Role::Down)?, &x)?)
    }

    /// The norm behind the last block, which belongs to the head.
    pub fn final_norm(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        hidden: &Value,
    ) -> Result<Value, ModelError> {
        self.norm(tape, parts, hidden, Role::FinalNorm)
    }

    fn norm(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        x: &Value,
        role: Role,
    ) -> Result<Value, ModelError> {
        Ok(tape.rms_norm(x, &parts.weight(role)?, self.config.rms_norm_eps as f32, 0.0)?)
    }

    /// Rotary angles for these positions. The configuration may promise millions, so a table is
    /// made for the positions that sequences really have, and made again when a longer one comes.
    fn angles(&self, positions: &[u32]) -> Arc<Angles> {
        let needed = positions.iter().max().map_or(0, |&last| last as usize + 1);
        let known = self.angles.read().unwrap_or_else(PoisonError::into_inner).clone();
        if known.positions() >= needed {
            return known;
        }
        let mut table = self.angles.write().unwrap_or_else(PoisonError::into_inner);
        if table.positions() < needed {
            // Powers of two: sequences of all lengths cost a handful of tables.
            let most = self.config.max_position_embeddings.max(needed);
            let length = needed.next_power_of_two().min(most);
            let angles = Angles::new(length, self.config.head_dim, self.config.rope_theta);
            *table = Arc::new(angles);
        }
        table.clone()
    }

    fn geometry(&self) -> Attention {
        let LlamaConfig { num_attention_heads, num_key_value_heads, head_dim, .. } = self.config;
        Attention::new(num_attention_heads, num_key_value_heads, head_dim, Mask::Causal)
    }
}
