//! Keys and values of what a decoder has read, so that the next token costs one row.
//!
//! A cache is of one sequence and some neighbouring blocks: those that its holder has. Several
//! sequences are decoded together by handing in their caches side by side. Its tensors have room
//! for tokens to come, so a step writes the new rows and copies nothing.

use crate::error::ModelError;
use crate::model::Model;
use crate::packing::Packing;
use fedra_compute::{Device, Tape, Tensor, Value, Weights};
use fedra_plan::Layer;
use std::ops::Range;

/// What some blocks of a decoder remember of one sequence.
#[derive(Clone, Debug)]
pub struct KeyValueCache {
    /// The first block.
    first: usize,
    /// For each block, a row of keys, then values, per token.
    blocks: Vec<Tensor>,
    tokens: usize,
    /// Whether its keys have the rotary positions of long texts, where these have others than short ones.
    is_long: bool,
}

impl KeyValueCache {
    /// An empty cache for some blocks of a model, with room for `capacity` tokens; when it is full,
    /// the room doubles. Refuses encoders, whose tokens also see those that come after them.
    pub fn new(
        device: &Device,
        model: &Model,
        blocks: Range<usize>,
        capacity: usize,
    ) -> Result<Self, ModelError> {
        model.check_range(&blocks)?;
        refuse_encoder(model)?;
        let width = 2 * model.config().kv_heads() * model.config().head_width();
        let tensors =
            blocks.clone().map(|_| Tensor::with_capacity(device, capacity, width)).collect();
        Ok(Self { first: blocks.start, blocks: tensors, tokens: 0, is_long: false })
    }

    /// Tokens in the cache.
    pub fn len(&self) -> usize {
        self.tokens
    }

    /// Whether nothing has been read yet.
    pub fn is_empty(&self) -> bool {
        self.tokens == 0
    }

    /// The blocks that it remembers for.
    pub fn blocks(&self) -> Range<usize> {
        self.first..self.first + self.blocks.len()
    }

    /// Bytes that its room takes.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.capacity() * row_bytes(block)).sum()
    }

    /// Bytes that its room will take once `more` tokens were added.
    pub fn bytes_with(&self, more: usize) -> usize {
        let tokens = self.tokens.saturating_add(more);
        let room = |block: &Tensor| {
            // As a tensor grows: twice what is needed.
            let rows = if tokens <= block.capacity() {
                block.capacity()
            } else {
                tokens.saturating_mul(2)
            };
            rows.saturating_mul(row_bytes(block))
        };
        self.blocks.iter().map(room).fold(0, usize::saturating_add)
    }

    /// Whether a text that grows to so many tokens has to be read again from its start: it has become a long one,
    /// and a long text has other rotary positions in this model (see [`Model::longest_short_text`]).
    pub fn must_restart(&self, model: &Model, tokens: usize) -> bool {
        !self.is_long && model.longest_short_text().is_some_and(|short| tokens > short)
    }

    /// Forgets all tokens; those that are read now are of a long text.
    pub fn restart_long(&mut self) {
        self.truncate(0);
        self.is_long = true;
    }

    /// Forgets all tokens behind the first `tokens`, to go on from there.
    pub fn truncate(&mut self, tokens: usize) {
        self.tokens = self.tokens.min(tokens);
        self.blocks.iter_mut().for_each(|block| block.truncate(tokens));
    }
}

impl Model {
    /// Runs new tokens through the blocks of their caches and adds them to these.
    ///
    /// Each sequence of the packing has a cache, in order, all of the same blocks, and continues at
    /// the position that its cache has reached. The result is what [`Model::run_blocks`] gives for
    /// these rows of the whole sequences. On an error the caches are as they were.
    pub fn decode(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        (hidden, packing): (Value, &Packing),
        caches: &mut [&mut KeyValueCache],
    ) -> Result<Value, ModelError> {
        let before: Vec<usize> = caches.iter().map(|cache| cache.len()).collect();
        if caches.len() != packing.sequences() {
            let (found, expected) = (caches.len(), packing.sequences());
            return Err(ModelError::batch("number of caches", &found, &expected));
        }
        let range = caches.first().map_or(0..0, |cache| cache.blocks());
        if let Some(other) = caches.iter().find(|cache| cache.blocks() != range) {
            let (found, expected) = (format!("{:?}", other.blocks()), format!("{range:?}"));
            return Err(ModelError::batch("blocks of a cache", &found, &expected));
        }
        if packing.offsets() != before {
            let (found, expected) = (format!("{:?}", packing.offsets()), format!("{before:?}"));
            return Err(ModelError::batch("positions to continue from", &found, &expected));
        }
        let mut is_long = Vec::with_capacity(caches.len());
        for (cache, length) in caches.iter().zip(packing.lengths()) {
            let tokens = cache.len() + length;
            let begins = cache.must_restart(self, tokens);
            if begins && !cache.is_empty() {
                let most = self.longest_short_text().unwrap_or(self.longest());
                let expected =
                    format!("at most {most}: a longer one has to be read again from its start");
                return Err(ModelError::batch("length of a text in a cache", &tokens, &expected));
            }
            is_long.push(begins || cache.is_long);
        }
        let outcome =
            self.decode_blocks(tape, weights, (hidden, packing), (caches, range), &is_long);
        for ((cache, length), is_long) in caches.iter_mut().zip(packing.lengths()).zip(is_long) {
            match &outcome {
                Ok(_) => (cache.tokens, cache.is_long) = (cache.tokens + length, is_long),
                Err(_) => cache.truncate(cache.tokens),
            }
        }
        outcome
    }

    fn decode_blocks(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        (hidden, packing): (Value, &Packing),
        (caches, range): (&mut [&mut KeyValueCache], Range<usize>),
        is_long: &[bool],
    ) -> Result<Value, ModelError> {
        refuse_encoder(self)?;
        self.check_packing(packing)?;
        self.check_range(&range)?;
        let positions = self.blocks_of().turns(packing, |sequence| is_long[sequence]);
        let mut hidden = hidden.in_sequences(&packing.boundaries())?;
        for (number, block) in range.enumerate() {
            let parts = self.parts(weights, Layer::Block(block as u16));
            let kept = caches.iter_mut().map(|cache| &mut cache.blocks[number]).collect();
            hidden =
                self.blocks_of().run_cached(tape, parts, &hidden, (packing, &positions), kept)?;
        }
        Ok(hidden)
    }
}

/// Bytes of the keys and values of a token.
fn row_bytes(block: &Tensor) -> usize {
    block.cols() * if block.is_bf16() { size_of::<u16>() } else { size_of::<f32>() }
}

/// An encoder reads both ways and has nothing to keep.
fn refuse_encoder(model: &Model) -> Result<(), ModelError> {
    if model.is_decoder() {
        return Ok(());
    }
    Err(ModelError::structure("model", &"an encoder", &"a decoder, which can write text"))
}
