//! Text that a language model writes in answer to prompts, the likeliest token each time.
//!
//! Several prompts are continued together, each with a cache of its own, until each has reached a
//! token that ends a text or its bound. What is written does not depend on who shares a batch.

use std::fmt;
use std::sync::Arc;

use fedra_compute::{Device, Params, Tape};
use fedra_data::Tokenizer;
use fedra_model::{Batch, KeyValueCache, Model};

use crate::error::Result;
use fedra_model::highest;

/// How text is written and read.
#[derive(Clone)]
pub struct Writing {
    /// Turns tokens into text.
    pub tokenizer: Arc<Tokenizer>,
    /// The most tokens of a text.
    pub max_new_tokens: usize,
    /// Tokens that end a text.
    pub stop: Vec<u32>,
}

impl Writing {
    /// A text for each prompt.
    pub(crate) fn greedy(
        &self,
        (model, device): (&Model, &Device),
        params: &Params,
        prompts: &[&[u32]],
    ) -> Result<Vec<String>> {
        let mut written: Vec<Vec<u32>> = vec![Vec::new(); prompts.len()];
        let mut caches = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let room = prompt.len() + self.max_new_tokens;
            caches.push(KeyValueCache::new(device, model, 0..model.blocks(), room)?);
        }
        let mut batch = Batch::new(prompts)?;
        let mut open: Vec<usize> = (0..prompts.len()).collect();
        for _ in 0..self.max_new_tokens {
            let mut tape = Tape::new(device);
            let weights = params.frozen();
            let hidden = model.embed(&mut tape, weights, &batch)?;
            let mut going: Vec<&mut KeyValueCache> = Vec::with_capacity(open.len());
            for (place, cache) in caches.iter_mut().enumerate() {
                if open.binary_search(&place).is_ok() {
                    going.push(cache);
                }
            }
            let hidden = model.decode(&mut tape, weights, (hidden, batch.packing()), &mut going)?;
            let last = tape.rows(&hidden, &batch.packing().last_rows())?;
            let logits = model.head_logits(&mut tape, weights, &last)?.tensor;
            let numbers = logits.to_host();
            let (mut next, mut lengths, mut still) = (Vec::new(), Vec::new(), Vec::new());
            for (&place, row) in open.iter().zip(numbers.chunks_exact(logits.cols())) {
                let token = highest(row);
                let ends = self.stop.contains(&token);
                if !ends {
                    written[place].push(token);
                }
                let cache = &mut caches[place];
                if ends || cache.len() == model.longest() {
                    continue;
                }
                let before = next.len();
                if cache.must_restart(model, cache.len() + 1) {
                    cache.restart_long();
                    next.extend(prompts[place].iter().chain(&written[place]));
                } else {
                    next.push(token);
                }
                lengths.push(next.len() - before);
                still.push(place);
            }
            if still.is_empty() {
                break;
            }
            let before = still.iter().map(|&place| caches[place].len()).collect();
            batch = Batch::packed(next, lengths)?.continuing(before)?;
            open = still;
        }
        written.iter().map(|ids| Ok(self.tokenizer.text(ids)?)).collect()
    }
}

/// The same tokenizer, and equal settings.
impl PartialEq for Writing {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tokenizer, &other.tokenizer)
            && self.max_new_tokens == other.max_new_tokens
            && self.stop == other.stop
    }
}

impl Eq for Writing {}

impl fmt::Debug for Writing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Writing");
        shown.field("max_new_tokens", &self.max_new_tokens).field("stop", &self.stop);
        shown.finish_non_exhaustive()
    }
}
