//! BERT (Devlin et al. 2019, <https://arxiv.org/abs/1810.04805>): post-norm encoder blocks.
//!
//! ```text
//! h = norm(token + position + segment)
//! x = norm(h + O attention(Q h, K h, V h))        h = norm(x + Down gelu(Up x))
//! ```

use crate::batch::Batch;
use crate::error::ModelError;
use crate::hf::BertConfig;
use crate::parts::Parts;
use crate::reading::Reading;
use fedra_compute::{Activation, Attention, AttentionProbe, Mask, Projected, Span, Tape, Value};
use fedra_plan::Role;

/// A BERT encoder's structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Bert {
    config: BertConfig,
}

impl Bert {
    /// The encoder that a configuration describes.
    pub fn new(config: BertConfig) -> Self {
        Self { config }
    }

    /// Its configuration.
    pub fn config(&self) -> &BertConfig {
        &self.config
    }

    /// Token ids to hidden states.
    pub fn embed(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        batch: &Batch,
    ) -> Result<Value, ModelError> {
        let (token, position) = (parts.weight(Role::Token)?, parts.weight(Role::Position)?);
        let positions = batch.packing().positions();
        let sum = if self.config.type_vocab_size == 0 {
            tape.embed(&[(&token, batch.ids()), (&position, &positions)])?
        } else {
            let segment = parts.weight(Role::Segment)?;
            tape.embed(&[
                (&token, batch.ids()),
                (&position, &positions),
                (&segment, batch.segments()),
            ])?
        };
        self.norm(tape, parts, &sum, Role::EmbeddingNorm)
    }

    /// One block. When only some rows are read afterwards, everything behind keys and values is
    /// computed for those rows alone.
    pub fn block(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        hidden: &Value,
        (spans, reading): (&[Span], &Reading),
        probe: Option<&mut AttentionProbe>,
    ) -> Result<Value, ModelError> {
        let [query, key, value] =
            [Role::Query, Role::Key, Role::Value].map(|r| parts.projection(r));
        let (query, key, value) = (query?, key?, value?);
        let (attended, residual) = match reading {
            Reading::All => {
                let together = tape.linear(hidden, &[query, key, value])?;
                let projected = Projected::Together(&together);
                (tape.attention(self.geometry(), projected, spans, probe)?, hidden.clone())
            }
            Reading::Rows(rows) => {
                let read = tape.rows(hidden, rows)?;
                let keys_values = tape.linear(hidden, &[key, value])?;
                let queries = tape.linear(&read, &[query])?;
                let projected = Projected::Apart { queries: &queries, keys_values: &keys_values };
                (tape.attention(self.geometry(), projected, spans, probe)?, read)
            }
        };
        let x = tape.linear_onto(&attended, &parts.projection(Role::Output)?, &residual)?;
        drop((attended, residual));
        let x = self.norm(tape, parts, &x, Role::AttentionNorm)?;
        let inner = tape.linear_activated(&x, &parts.projection(Role::Up)?, Activation::Gelu)?;
        let x = tape.linear_onto(&inner, &parts.projection(Role::Down)?, &x)?;
        drop(inner);
        self.norm(tape, parts, &x, Role::MlpNorm)
    }

    fn norm(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        x: &Value,
        role: Role,
    ) -> Result<Value, ModelError> {
        let epsilon = self.config.layer_norm_eps as f32;
        Ok(tape.layer_norm(x, &parts.weight(role)?, Some(&parts.bias(role)?), epsilon)?)
    }

    fn geometry(&self) -> Attention {
        let heads = self.config.num_attention_heads;
        let width = self.config.hidden_size / heads;
        Attention::new(heads, heads, width, Mask::Bidirectional)
    }
}
