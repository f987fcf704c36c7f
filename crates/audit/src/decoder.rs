//! A decoder as somebody holds it: structure, weights and who computes.
//!
//! A client and an attacker both run the same blocks, so this is one type for both. What differs is
//! whose weights are in it.

use std::ops::Range;

use fedra_client::evaluation_batches;
use fedra_compute::{Device, Params, Tape, Tensor};
use fedra_model::{Batch, Head, KeyValueCache, Model, Reading, Targets};

use crate::error::{AuditError, Result};

/// Tokens that run through blocks together.
const BATCH_TOKENS: usize = 2048;
/// Candidates for a next token that run together, each with a copy of the prefix's cache.
const BATCH_CANDIDATES: usize = 256;

/// A language model with weights.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    pub(crate) model: &'a Model,
    pub(crate) params: &'a Params,
    pub(crate) device: &'a Device,
}

impl<'a> Decoder<'a> {
    /// Takes a decoder with a language head. An encoder's token sees those that come after it, so
    /// its states cannot be searched one by one.
    pub fn new(model: &'a Model, params: &'a Params, device: &'a Device) -> Result<Self> {
        if !model.is_decoder() {
            return Err(AuditError::setting("model", "an encoder", "a decoder, such as a LLaMA"));
        }
        if model.head() != Head::Language {
            let found = format!("the head {:?}", model.head());
            let expected = "a head that predicts the next token";
            return Err(AuditError::setting("model", found, expected));
        }
        Ok(Self { model, params, device })
    }

    /// The same structure with other weights.
    pub fn with<'b>(&self, params: &'b Params) -> Decoder<'b>
    where
        'a: 'b,
    {
        Decoder { model: self.model, params, device: self.device }
    }

    /// Width of a hidden state.
    pub fn width(&self) -> usize {
        self.model.width()
    }

    /// How many tokens there are.
    pub fn vocabulary(&self) -> usize {
        self.model.config().vocab_size
    }

    /// Refuses a cut that leaves the server no block.
    pub fn check_first(&self, first: usize) -> Result<()> {
        if first < self.model.blocks() {
            return Ok(());
        }
        let expected = format!("less than {}, the blocks of the model", self.model.blocks());
        Err(AuditError::setting("first", first, expected))
    }

    /// The states behind the first blocks, for each sequence its rows end to end.
    pub fn states(&self, first: usize, sequences: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = sequences.iter().map(Vec::len).collect();
        let mut all = vec![Vec::new(); sequences.len()];
        for chosen in evaluation_batches(&lengths, BATCH_TOKENS) {
            let batch: Vec<&Vec<u32>> = chosen.iter().map(|&number| &sequences[number]).collect();
            let batch = Batch::new(&batch)?;
            let (mut tape, weights) = (Tape::new(self.device), self.params.frozen());
            let hidden = self.model.embed(&mut tape, weights, &batch)?;
            let (packing, range) = (batch.packing(), 0..first);
            let hidden =
                self.model.run_blocks(&mut tape, weights, hidden, packing, range, &Reading::All)?;
            let rows = hidden.tensor.to_host();
            let mut rest = &rows[..];
            for number in chosen {
                let (own, others) = rest.split_at(lengths[number] * self.width());
                all[number] = own.to_vec();
                rest = others;
            }
        }
        Ok(all)
    }

    /// The sum of next-token losses of a sequence whose states in front of block `first` are these.
    pub fn loss_from(&self, first: usize, sequence: &[u32], states: &[f32]) -> Result<f64> {
        let mut tape = Tape::new(self.device);
        let states = Tensor::from_slice(self.device, sequence.len(), self.width(), states)?;
        let hidden = tape.constant(states);
        let next: Vec<Option<u32>> =
            sequence[1..].iter().map(|&token| Some(token)).chain([None]).collect();
        let batch = Batch::new(&[sequence])?;
        let (weights, targets) = (self.params.frozen(), Targets::Classes(&next));
        let loss = self.model.loss_from(&mut tape, weights, (hidden, first), &batch, targets)?;
        Ok(f64::from(loss.tensor.item()) * (sequence.len() - 1) as f64)
    }

    /// Logits of the whole vocabulary behind every token of a sequence.
    pub fn logits(&self, sequence: &[u32]) -> Result<Tensor> {
        let mut tape = Tape::new(self.device);
        let batch = Batch::new(&[sequence])?;
        Ok(self.model.logits(&mut tape, self.params.frozen(), &batch)?.tensor)
    }

    /// An empty cache for some of the blocks.
    pub(crate) fn cache(&self, blocks: Range<usize>, tokens: usize) -> Result<KeyValueCache> {
        Ok(KeyValueCache::new(self.device, self.model, blocks, tokens)?)
    }

    /// Reads one more token into each cache; a row each.
    pub(crate) fn read(&self, caches: &mut [&mut KeyValueCache], tokens: &[u32]) -> Result<Tensor> {
        let before = caches.iter().map(|cache| cache.len()).collect();
        let batch = Batch::packed(tokens.to_vec(), vec![1; tokens.len()])?.continuing(before)?;
        let (mut tape, weights) = (Tape::new(self.device), self.params.frozen());
        let hidden = self.model.embed(&mut tape, weights, &batch)?;
        let hidden = self.model.decode(&mut tape, weights, (hidden, batch.packing()), caches)?;
        Ok(hidden.tensor)
    }

    /// The state that each candidate would have as the next token of a prefix.
    pub(crate) fn next_states(
        &self,
        prefix: &KeyValueCache,
        candidates: &[u32],
    ) -> Result<Vec<f32>> {
        let mut all = Vec::with_capacity(candidates.len() * self.width());
        for some in candidates.chunks(BATCH_CANDIDATES) {
            let mut copies = vec![prefix.clone(); some.len()];
            let mut caches: Vec<&mut KeyValueCache> = copies.iter_mut().collect();
            all.extend_from_slice(&self.read(&mut caches, some)?.to_host());
        }
        Ok(all)
    }

    /// Log-probabilities of the next token behind rows that have left the last block.
    pub(crate) fn next_tokens(&self, rows: Tensor) -> Result<Vec<f32>> {
        let mut tape = Tape::new(self.device);
        let hidden = tape.constant(rows);
        let logits = self.model.head_logits(&mut tape, self.params.frozen(), &hidden)?.tensor;
        let mut numbers = logits.to_host().into_owned();
        for row in numbers.chunks_exact_mut(logits.cols()) {
            let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = row.iter().map(|logit| f64::from(logit - top).exp()).sum();
            let total = top + sum.ln() as f32;
            for logit in row {
                *logit -= total;
            }
        }
        Ok(numbers)
    }
}
