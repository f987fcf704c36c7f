//! Token ids to the hidden states in front of block 0.

use crate::batch::Batch;
use crate::config::Positions;
use crate::error::ModelError;
use crate::model::Model;
use fedra_compute::{Tape, Value, Weights};
use fedra_plan::{Layer, Role};

impl Model {
    /// Token ids to the hidden states in front of block 0.
    pub fn embed(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        batch: &Batch,
    ) -> Result<Value, ModelError> {
        self.check_packing(batch.packing())?;
        let (parts, config) = (self.parts(weights, Layer::Embedding), self.config());
        let token = parts.weight(Role::Token)?;
        let mut tables = vec![(&token, batch.ids())];
        let position = match config.positions {
            Positions::Learned { offset } => {
                let mut at = batch.packing().positions();
                for position in &mut at {
                    *position += offset as u32;
                }
                Some((parts.weight(Role::Position)?, at))
            }
            Positions::Rotary(_) => None,
        };
        tables.extend(position.as_ref().map(|(weight, at)| (weight, &at[..])));
        let segment = match config.type_vocab_size {
            0 => None,
            _ => Some(parts.weight(Role::Segment)?),
        };
        tables.extend(segment.as_ref().map(|weight| (weight, batch.segments())));
        let mut hidden = tape.embed(&tables)?;
        if config.embedding_scaled {
            hidden = tape.scaled(hidden, (config.hidden_size as f32).sqrt());
        }
        if config.embedding_norm {
            hidden = self.blocks_of().norm(tape, parts, &hidden, Role::EmbeddingNorm)?;
        }
        if config.embedding_size.is_some() {
            hidden = tape.linear(&hidden, &[parts.projection(Role::EmbeddingProjection)?])?;
        }
        Ok(hidden.in_sequences(&batch.packing().boundaries())?)
    }
}
