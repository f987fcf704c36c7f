//! Hidden states behind a frozen prefix, computed once per example and replayed in later epochs.
//!
//! When the embedding and the first blocks do not train for a round, an example's hidden states
//! behind them are the same in every epoch. They are kept up to a memory budget; what does not fit
//! is computed anew each time.

use crate::batch::Batch;
use crate::error::ModelError;
use crate::model::Model;
use crate::reading::Reading;
use fedra_compute::{Params, Tape, Tensor, Value};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};

/// A cache for one set of frozen weights; throw it away when they change.
#[derive(Debug)]
pub struct PrefixCache {
    blocks: usize,
    budget: usize,
    used: usize,
    kept: BTreeMap<u64, CachedPrefix>,
}

/// An example's hidden states, and what they are of: a name alone proves nothing.
#[derive(Debug)]
struct CachedPrefix {
    ids: Vec<u32>,
    /// Of an image, which may be flipped or cropped in another epoch.
    pixels: u64,
    hidden: Tensor,
}

impl PrefixCache {
    /// A cache of what leaves the first `blocks` blocks, of at most `budget` bytes.
    pub fn new(blocks: usize, budget: usize) -> Self {
        Self { blocks, budget, used: 0, kept: BTreeMap::new() }
    }

    /// Blocks in the prefix: training starts in front of block `blocks()`.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Bytes kept.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Examples kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The hidden states behind the prefix for a batch whose sequences are the named examples.
    pub fn hidden(
        &mut self,
        tape: &mut Tape,
        (model, params): (&Model, &Params),
        batch: &Batch,
        examples: &[u64],
    ) -> Result<Value, ModelError> {
        let packing = batch.packing();
        if examples.len() != packing.sequences() {
            let (found, expected) = (examples.len(), packing.sequences());
            return Err(ModelError::batch("number of example names", &found, &expected));
        }
        let sequences = || {
            let rows = packing.starts().zip(packing.lengths());
            let ids = rows.map(|(start, &length)| (start, &batch.ids()[start..start + length]));
            ids.enumerate()
                .map(|(number, (start, ids))| (start, ids, hash(batch.pixels_of(number))))
        };
        let cached: Option<Vec<Tensor>> = examples
            .iter()
            .zip(sequences())
            .map(|(example, (_, ids, pixels))| {
                let is_of = |kept: &&CachedPrefix| kept.ids == ids && kept.pixels == pixels;
                let kept = self.kept.get(example).filter(is_of)?;
                Some(kept.hidden.clone())
            })
            .collect();
        if let Some(cached) = cached {
            let stacked = Tensor::stack(tape.device(), &cached)?;
            return Ok(tape.constant(stacked));
        }
        let frozen = params.frozen();
        let hidden = model.embed(tape, frozen, batch)?;
        let range = 0..self.blocks;
        let hidden = model.run_blocks(tape, frozen, hidden, packing, range, &Reading::All)?;
        for (&example, (start, ids, pixels)) in examples.iter().zip(sequences()) {
            let bytes = ids.len() * hidden.tensor.cols() * size_of::<f32>();
            if self.used + bytes <= self.budget && !self.kept.contains_key(&example) {
                let mine = hidden.tensor.row_range(tape.device(), start, ids.len())?;
                let ids = ids.to_vec();
                self.kept.insert(example, CachedPrefix { ids, pixels, hidden: mine });
                self.used += bytes;
            }
        }
        Ok(hidden)
    }
}

/// Tells two images apart.
fn hash(pixels: &[f32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for value in pixels {
        hasher.write_u32(value.to_bits());
    }
    hasher.finish()
}
